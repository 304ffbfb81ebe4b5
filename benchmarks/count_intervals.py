"""Coverage of 90 % predictive intervals of missing counts, on simulated data.

    python benchmarks/count_intervals.py [--seeds 3] [--only auto]

Counts are negative binomial with dispersion 5 and a log mean that is a smooth function of two latents; 30 %
are missing. The seed draws the data, the mask, the fit and the draws. Rows of the data have no sizes, and the
default of SRFLVM, "auto", should detect that. The effect of estimated sizes ("ratios") on the intervals is
measured, too.

The interval from the 5 % to the 95 % quantile of the draws, both included, covers at least 90 % of counts,
more where they are small. The randomised probability integral transform (PIT) is uniform for discrete data
too: with y counted among its n draws, {#(draws < y) + u [#(draws = y) + 1]} / (n + 1), u uniform. So it lies
in (0.05, 0.95) with probability 0.9 exactly, if y and the draws have the same distribution.
"""

from __future__ import annotations

import argparse

import numpy as np
from common import CONSOLE, command_line, report, timed
from missing_entries import missing_mask

from srflvm import SRFLVM

N_ROWS, N_COLUMNS, DISPERSION = 500, 40, 5.0
SHARE, N_DRAWS = 0.3, 200
SIZE_FACTORS = {"auto": "auto", "ratios": "ratios"}


def simulate(seed: int) -> np.ndarray:
    """Draw counts (N, M) with log mean b_m + sin(x_n · u_m + c_m) + x_n · v_m / 4."""
    rng = np.random.RandomState(seed)
    latents = rng.standard_normal((N_ROWS, 2))
    waves, slopes = rng.standard_normal((2, 2, N_COLUMNS))
    phase, level = rng.uniform(0, 2 * np.pi, N_COLUMNS), rng.normal(2.0, 0.5, N_COLUMNS)
    mean = np.exp(level + np.sin(latents @ waves + phase) + latents @ slopes / 4)
    return rng.poisson(rng.gamma(DISPERSION, mean / DISPERSION)).astype(float)


def transforms(counts: np.ndarray, draws: np.ndarray, rng: np.random.RandomState) -> np.ndarray:
    """Compute the randomised PIT of counts (n,) among draws (D, n)."""
    below, equal = np.sum(draws < counts, axis=0), np.sum(draws == counts, axis=0)
    return (below + rng.uniform(size=counts.shape) * (equal + 1)) / (len(draws) + 1)


def row(sizes: str, seed: int) -> list[str]:
    Y = simulate(seed)
    hidden = missing_mask(Y, SHARE, seed)
    model = SRFLVM(likelihood="negative_binomial", size_factors=SIZE_FACTORS[sizes], random_state=seed)
    _, seconds = timed(lambda: model.fit(np.where(hidden, np.nan, Y)))
    copies = model.impute(np.where(hidden, np.nan, Y), n_draws=N_DRAWS, random_state=seed)
    counts, draws = Y[hidden], np.asarray(copies)[:, hidden]
    low, high = np.quantile(draws, [0.05, 0.95], axis=0, method="inverted_cdf")
    pit = transforms(counts, draws, np.random.RandomState(seed))
    shares = [(counts >= low) & (counts <= high), (pit > 0.05) & (pit < 0.95), pit <= 0.05, pit >= 0.95]
    dispersion = np.median(model.likelihood_parameters_["dispersion"])
    found = [f"{np.mean(share):.4f}" for share in shares]
    line = [sizes, str(seed), *found, f"{dispersion:.2f}", str(counts.size), f"{seconds:.1f}"]
    CONSOLE.print(" | ".join(line))
    return line


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", choices=SIZE_FACTORS, nargs="*", default=list(SIZE_FACTORS))
    arguments = parser.parse_args()
    rows = [row(sizes, seed) for sizes in arguments.only for seed in range(arguments.seeds)]
    columns = [
        "size factors",
        "seed",
        "5 % to 95 % quantile",
        "PIT in (0.05, 0.95)",
        "PIT below",
        "PIT above",
    ]
    columns += [f"median dispersion (true {DISPERSION:g})", "entries", "seconds"]
    title = f"Coverage of missing counts, {N_ROWS} x {N_COLUMNS}, {SHARE:.0%} missing, {N_DRAWS} draws"
    report("count_intervals", title, columns, rows, command_line())


if __name__ == "__main__":
    main()
