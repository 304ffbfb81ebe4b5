"""Recovery of a known manifold, and coverage of predictive intervals on held-out rows.

    python benchmarks/manifold.py [--seeds 5]

The S-curve of the paper's appendix, 500 rows of 100 columns; 125 further rows of the same functions are
held out for the intervals. R^2 is that of the latents after the best affine map.
"""

from __future__ import annotations

import argparse

import numpy as np
from common import CONSOLE, report, timed
from scipy.stats import norm

from srflvm import SRFLVM
from srflvm.datasets import make_s_curve_gp


def affine_r2(Z: np.ndarray, X: np.ndarray) -> float:
    design = np.column_stack([Z, np.ones(len(Z))])
    fitted = design @ np.linalg.lstsq(design, X, rcond=None)[0]
    return float(1.0 - np.sum((X - fitted) ** 2) / np.sum((X - X.mean(axis=0)) ** 2))


def coverage(model: SRFLVM, Y: np.ndarray, level: float = 0.9) -> float:
    mean, std = model.inverse_transform(model.transform(Y), return_std=True)
    return float(np.mean(np.abs(Y - mean) < norm.ppf(0.5 + level / 2) * std))


def measure(seed: int) -> list[str]:
    data = make_s_curve_gp(500, 100, random_state=seed)
    model, seconds = timed(lambda: SRFLVM(random_state=seed).fit(data.Y))
    more = make_s_curve_gp(625, 100, random_state=seed)
    split = SRFLVM(random_state=seed).fit(more.Y[:500])
    values = [affine_r2(model.embedding_, data.X), coverage(split, more.Y[500:])]
    CONSOLE.print(seed, model.start_, [round(value, 4) for value in values], f"{seconds:.1f} s")
    return [str(seed), model.start_, *(f"{value:.4f}" for value in values), f"{seconds:.1f}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    rows = [measure(seed) for seed in range(parser.parse_args().seeds)]
    means = [f"{np.mean([float(row[column]) for row in rows]):.4f}" for column in (2, 3)]
    columns = ["seed", "start", "R² of the latents", "coverage of 90 % intervals", "seconds"]
    title = "The S-curve of the paper's appendix"
    report("s_curve", title, columns, [*rows, ["mean", "", *means, ""]], "python benchmarks/manifold.py")


if __name__ == "__main__":
    main()
