"""Time in which the explorer shows its points, and draws a frame while they are dragged.

    python benchmarks/explorer.py [--rows 100000] [--runs 5]

A small fit of the bundled digits, whose latents are repeated with a little noise up to the number of rows.
The page is opened in headless Chromium without a graphics card, each time with a fresh page load. "First
paint" is from the start of the navigation until two frames after the points were drawn; a frame while panning
is the time from one animation frame to the next while the plane is dragged by pointer events, one a frame.
The worst of the runs is reported.
"""

from __future__ import annotations

import argparse
import copy
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from common import CONSOLE, command_line, report
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning

from srflvm import SRFLVM

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))

FRAMES = 60

PAN = """
const done = arguments[arguments.length - 1];
const marks = document.getElementById("marks");
const box = marks.getBoundingClientRect();
const send = (type, x) => marks.dispatchEvent(new PointerEvent(type, {
  pointerId: 1, button: 0, clientX: box.left + x, clientY: box.top + 200 + x / 3, bubbles: true }));
marks.setPointerCapture = () => {};
send("pointerdown", 300);
const times = [], draws = [];
let frame = 0;
const step = (now) => {
  times.push(now);
  draws.push(app.plane.drawMilliseconds);
  if (frame++ === FRAMES) { send("pointerup", 300); return done({ times, draws }); }
  send("pointermove", 300 + 150 * Math.sin(frame / 6));
  requestAnimationFrame(step);
};
requestAnimationFrame(step);
""".replace("FRAMES", str(FRAMES))


def repeated(n_rows: int) -> tuple[Any, np.ndarray]:
    """Return a model with so many rows, and their digits."""
    digits: Any = load_digits()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        small = SRFLVM(n_frequencies=50, max_iter=3, init="pca", random_state=0).fit(digits.data[:300])
    model, rng = copy.copy(small), np.random.RandomState(0)
    row = rng.randint(300, size=n_rows)
    model.embedding_ = small.embedding_[row] + 0.05 * rng.standard_normal((n_rows, 2))
    model.embedding_std_ = small.embedding_std_[row]
    return model, digits.target[row]


def measure(driver: Any, path: Path) -> dict[str, float]:
    """Measure the milliseconds of one visit to a page."""
    driver.get(path.as_uri())
    first = driver.execute_async_script(
        "srflvm.then(({app, firstPaint}) => { window.app = app; arguments[0](firstPaint); })"
    )
    found = driver.execute_async_script(PAN)
    gaps = np.diff(found["times"])
    return {
        "first": first,
        "median": float(np.median(gaps)),
        "worst": float(np.quantile(gaps, 0.95)),
        "draw": float(np.median(found["draws"])),
    }


def main() -> None:
    from helpers import browsers  # pyright: ignore[reportMissingImports]

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--runs", type=int, default=5)
    arguments = parser.parse_args()
    if missing := browsers.missing_parts():
        raise SystemExit(f"The benchmark needs {missing}.")
    with tempfile.TemporaryDirectory() as name:
        driver = browsers.start(Path(name))
        try:
            numbers = sorted({10_000, arguments.rows})
            rows = [measured_row(driver, Path(name) / f"{n}.html", n, arguments.runs) for n in numbers]
        finally:
            driver.quit()
    columns = ["rows", "page, MB", "load to first paint, s", "ms a frame in panning", "95 %", "of it drawing"]
    title = "The explorer in headless Chromium, without a graphics card"
    report("explorer", title, columns, rows, command_line())


def measured_row(driver: Any, path: Path, n_rows: int, n_runs: int) -> list[str]:
    model, labels = repeated(n_rows)
    model.explore(path, labels=labels)
    runs = [measure(driver, path) for _ in range(n_runs)]
    worst = {name: max(run[name] for run in runs) for name in runs[0]}
    CONSOLE.print(n_rows, worst)
    return [
        str(n_rows),
        f"{path.stat().st_size / 1e6:.1f}",
        f"{worst['first'] / 1e3:.2f}",
        *(f"{worst[name]:.1f}" for name in ("median", "worst", "draw")),
    ]


if __name__ == "__main__":
    main()
