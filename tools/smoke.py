"""Try an installed srflvm outside of the checkout: import, fits, saving and loading, the commands."""

import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

import numpy as np

import srflvm
from srflvm.datasets import make_s_curve_gp

LIBRARIES = ("jax", "numpy", "scipy", "scikit-learn", "optax", "safetensors", "typer", "rich")


def main() -> None:
    """Try everything, and raise an AssertionError if anything is wrong."""
    print(", ".join(f"{name} {version(name)}" for name in LIBRARIES))
    assert "site-packages" in srflvm.__file__, srflvm.__file__
    assert srflvm.__version__ == version("srflvm")
    started = time.perf_counter()
    check_fit(make_s_curve_gp(60, 6, random_state=0).Y, "gaussian")
    check_fit(np.random.default_rng(0).poisson(3.0, size=(40, 4)).astype(float), "poisson")
    check_command()
    print(f"passed in {time.perf_counter() - started:.0f} s")


def check_fit(Y: np.ndarray, likelihood: str) -> None:
    """Fit with a missing entry, fill it, and load the same model from a file."""
    Y[3, 1] = np.nan
    model = srflvm.SRFLVM(likelihood=likelihood, n_frequencies=5, random_state=0).fit(Y)
    filled = model.impute(Y)
    assert np.isfinite(filled).all()
    assert np.array_equal(filled[~np.isnan(Y)], Y[~np.isnan(Y)])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.srflvm"
        model.save(path)
        again = srflvm.load(path)
    assert np.array_equal(again.transform(Y), model.transform(Y))
    assert np.isfinite(model.score(Y))


def check_command() -> None:
    """Check that the commands are installed, print the version, and refuse a file in one line."""
    command = Path(sys.executable).parent / "srflvm"
    printed = subprocess.run([command, "--version"], capture_output=True, text=True, check=True).stdout
    assert printed.strip() == f"srflvm {srflvm.__version__}", printed
    for name in ("fit", "bench"):  # of srflvm, and of srflvm_bench
        subprocess.run([command, name, "--help"], capture_output=True, check=True)
    refused = subprocess.run([command, "fit", "no-such.csv"], capture_output=True, text=True, check=False)
    assert refused.returncode != 0
    assert len(refused.stderr.strip().splitlines()) == 1, refused.stderr


if __name__ == "__main__":
    main()
