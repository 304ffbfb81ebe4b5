"""Help and wrong arguments come at once: no large library is imported before files have been looked for."""

import subprocess
import sys

import pytest

LARGE = ("jax", "sklearn", "scipy", "pandas", "pyarrow", "zarr", "anndata", "h5py", "matplotlib")

PROGRAM = f"""
import sys
from srflvm.cli import app
try:
    app(sys.argv[1:])
except SystemExit as ended:
    print(ended.code, [name for name in {LARGE!r} if name in sys.modules])
"""


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--help"], 0),
        (["fit", "--help"], 0),
        (["fit", "none.csv"], 1),
        (["fit", "none.csv", "--processes", "2"], 1),
        (["fit", "none.xlsx"], 1),
        (["impute", "none.parquet", "-o", "f.parquet"], 1),
        (["impute", "none.h5ad", "-o", "f.zarr"], 1),
        (["transform", "none.srflvm", "none.npy", "-o", "z.csv"], 1),
        (["score", "none.srflvm", "none.csv"], 1),
        (["sample", "none.srflvm", "-o", "s.csv"], 1),
        (["inspect", "none.srflvm"], 1),
        (["plot", "none.srflvm", "-o", "p.png"], 1),
        (["explore", "none.srflvm", "-o", "p.html"], 1),
        (["fit", "none.csv", "--components", "0"], 2),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_large_libraries_are_not_imported(arguments, code, tmp_path):
    command = [sys.executable, "-c", PROGRAM, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.stdout.splitlines()[-1] == f"{code} []", done.stderr
