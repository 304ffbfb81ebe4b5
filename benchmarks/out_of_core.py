"""Fit of a table on disk that is not held in memory: time, peak memory and its prediction.

    SRFLVM_DATA=folder python benchmarks/out_of_core.py [--rows 1000000] [--frequencies 50] [--folder .]

The table is made of the images of MNIST, one after the other and again, each time with new noise (standard
deviation 0.1), in float32. The fit makes 17 sweeps, 102 gradient steps, over all rows. It runs in a process
of its own, whose peak memory the system reports. The fixed part of the prediction does not grow with the
rows; the process holds some memory before the fit begins, which is added to it.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
from common import CONSOLE, command_line, load_mnist, report, timed
from numpy.lib.format import open_memmap

N_SWEEPS, SHARE_ON_ALL_ROWS = 17, 0.2
ROWS_AT_ONCE = 20_000

FIT = """
import json, resource, sys, warnings
from common import timed
from srflvm import SRFLVM
import jax
path, n_frequencies, max_iter = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
jax.numpy.zeros(3).block_until_ready()
before = int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize()
model = SRFLVM(n_frequencies=n_frequencies, max_iter=max_iter, tol=0, random_state=0, verbose=2)
_, seconds = timed(lambda: model.fit(path))
# of this program alone: the maximum of getrusage includes that of the process that started it
status = open("/proc/self/status").read().splitlines()
peak = next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))
print(json.dumps({"before": before, "peak": peak, "seconds": seconds, "sweeps": model.n_iter_,
                  "bound": model.elbo_}))
"""


def write_table(path: Path, n_rows: int) -> None:
    images, _ = load_mnist()
    table = open_memmap(path, mode="w+", dtype=np.float32, shape=(n_rows, images.shape[1]))
    random = np.random.default_rng(0)
    for start in range(0, n_rows, ROWS_AT_ONCE):
        index = np.arange(start, min(start + ROWS_AT_ONCE, n_rows)) % len(images)
        noise = random.standard_normal((len(index), images.shape[1]), dtype=np.float32)
        table[start : start + len(index)] = images[index] + np.float32(0.1) * noise
    table.flush()


def predicted(shape: tuple[int, int], n_frequencies: int) -> tuple[float, float]:
    """Return the whole prediction and the part of it that does not grow with the rows."""
    from srflvm import SRFLVM

    model = SRFLVM(n_frequencies=n_frequencies)
    whole = model.predict_memory(*shape)
    growing = sum(whole.parts[name] for name in ("scores", "latents", "embedding"))
    return whole.total, whole.total - growing


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--frequencies", type=int, default=50)
    parser.add_argument("--folder", type=Path, default=Path("."))
    arguments = parser.parse_args()
    path = arguments.folder / f"mnist-{arguments.rows}.npy"
    if not path.exists():
        _, seconds = timed(lambda: write_table(path, arguments.rows))
        CONSOLE.print(f"{path} written in {seconds:.0f} s")
    max_iter = round(N_SWEEPS / SHARE_ON_ALL_ROWS)
    command = [sys.executable, "-c", FIT, str(path.resolve()), str(arguments.frequencies), str(max_iter)]
    outcome = subprocess.run(
        command, cwd=Path(__file__).parent, stdout=subprocess.PIPE, text=True, check=True
    )
    found = json.loads(outcome.stdout.splitlines()[-1])
    shape = np.load(path, mmap_mode="r").shape
    need, fixed = predicted((shape[0], shape[1]), arguments.frequencies)
    columns = ["what", "value"]
    rows = [
        ["table", f"{shape[0]:,} x {shape[1]}, {path.stat().st_size / 1e9:.2f} GB on disk"],
        ["features, sweeps over all rows", f"{2 * arguments.frequencies}, {found['sweeps']}"],
        ["seconds", f"{found['seconds']:.0f}"],
        ["bound per entry", f"{found['bound'] / (shape[0] * shape[1]):.4f}"],
        ["held before the fit", f"{found['before'] / 1e9:.2f} GB"],
        ["peak of the process", f"{found['peak'] / 1e9:.2f} GB"],
        ["predicted peak", f"{(found['before'] + need) / 1e9:.2f} GB"],
        ["peak / predicted", f"{found['peak'] / (found['before'] + need):.3f}"],
        ["peak beyond the fixed part", f"{(found['peak'] - found['before'] - fixed) / 1e9:.2f} GB (bar 3)"],
    ]
    report("out_of_core", "A table on disk", columns, rows, command_line())


if __name__ == "__main__":
    main()
