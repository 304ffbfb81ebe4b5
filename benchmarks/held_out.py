"""Predictive densities of held-out counts, by likelihood.

    SRFLVM_DATA=folder python benchmarks/held_out.py [--only montreal]

A tenth of the entries is held out, completely at random; the seed of the mask is in the table, that of the
fit is 0, all else is at its default. A Gaussian has a density where the others have probabilities: its
second row takes instead the mass that N(mean, std^2) of the entry gives to the unit interval around the
count, the fairer comparison.
"""

from __future__ import annotations

import argparse

import numpy as np
from common import CONSOLE, command_line, count_table, report, timed
from missing_entries import hide_entries, missing_mask
from scipy.special import log_ndtr

from srflvm import SRFLVM

SHARE = 0.1
MASKS = {"montreal": (0, 1, 2), "newsgroups": (0,)}
LIKELIHOODS = ("negative_binomial", "poisson", "gaussian")


def log_unit_mass(counts: np.ndarray, mean: np.ndarray, std: np.ndarray) -> np.ndarray:
    """Compute log {P(z < y + 1/2) - P(z < y - 1/2)} for z ~ N(mean, std^2) without cancellation."""
    distance = np.abs(counts - mean)
    near, far = log_ndtr((0.5 - distance) / std), log_ndtr((-0.5 - distance) / std)
    return near + np.log(-np.expm1(far - near))


def scores(model: SRFLVM, Y: np.ndarray, mask_seed: int) -> dict[str, np.ndarray]:
    """Compute log scores of the held-out entries, one array for each way to score them."""
    hidden, seen = missing_mask(Y, SHARE, mask_seed), hide_entries(Y, SHARE, mask_seed)
    kind = "density" if model.likelihood == "gaussian" else "probability"
    found = {kind: model.score_entries(seen, Y)[hidden]}
    if model.likelihood == "gaussian":
        mean, std = model.impute(seen, return_std=True)
        found["mass of the unit interval"] = log_unit_mass(Y[hidden], mean[hidden], std[hidden])
    return found


def rows(name: str, mask_seed: int, likelihood: str) -> list[list[str]]:
    Y, _ = count_table(name)
    model = SRFLVM(likelihood=likelihood, random_state=0)
    _, seconds = timed(lambda: model.fit(hide_entries(Y, SHARE, mask_seed)))
    table = []
    for kind, found in scores(model, Y, mask_seed).items():
        summary = [f"{np.mean(found):.4f}", f"{np.median(found):.4f}", f"{found.min():.1f}"]
        table.append([name, str(mask_seed), likelihood, kind, *summary, str(found.size), f"{seconds:.1f}"])
        CONSOLE.print(" | ".join(table[-1]))
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=MASKS, nargs="*", default=list(MASKS))
    names = parser.parse_args().only
    table = [
        line
        for name in names
        for mask_seed in MASKS[name]
        for likelihood in LIKELIHOODS
        for line in rows(name, mask_seed, likelihood)
    ]
    columns = ["data", "mask seed", "likelihood", "log of", "mean", "median", "lowest", "entries", "seconds"]
    title = "Log scores of counts held out, in nats per entry, 10 % of the entries, seed 0"
    report("held_out", title, columns, table, command_line())


if __name__ == "__main__":
    main()
