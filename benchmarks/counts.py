"""Nearest-neighbour accuracy of embeddings of binary data and counts.

    SRFLVM_DATA=folder python benchmarks/counts.py [--seeds 5] [--only montreal bridges]

Default settings except the likelihood and the seed. No fit sees labels. The seed also draws the images
of MNIST; the other data are the same for every seed. Fits are those of `srflvm bench table1` and are kept in
a store like its: the command makes the fits that are missing there.
"""

from __future__ import annotations

import argparse
from typing import NamedTuple

import numpy as np
from common import add_store_option, command_line, outcomes, report

from srflvm_bench.baselines import SYSTEMS
from srflvm_bench.tasks import Task, task


class Case(NamedTuple):
    """Data and system, their title, and the accuracy to be reached."""

    data: str
    system: str
    title: str
    bar: str

    @property
    def likelihood(self) -> str:
        return SYSTEMS[self.system].settings["likelihood"]


CASES = {
    "mnist-binary": Case("mnist", "B-OURS", "MNIST-1000 above 0.5", "0.74"),
    "mnist-counts": Case("mnist", "N-OURS", "MNIST-1000, 0 to 255", "0.60"),
    "montreal": Case("montreal", "N-OURS", "montreal", "0.76"),
    "bridges": Case("bridges", "N-OURS", "bridges", "0.84"),
    "newsgroups-counts": Case("newsgroups", "N-OURS", "newsgroups", "0.55 (better of two)"),
    "newsgroups-binary": Case("newsgroups", "B-OURS", "newsgroups above medians", "0.55 (better of two)"),
}


def fits(name: str, n_seeds: int) -> list[Task]:
    case = CASES[name]
    return [task("embedding", case.data, case.system, seed=seed) for seed in range(n_seeds)]


def row(name: str, found: list[tuple[tuple[float, ...], float]]) -> list[str]:
    case, accuracies = CASES[name], [scores[0] for scores, _ in found]
    each = [f"{accuracy:.4f}" for accuracy in accuracies]
    seconds = np.mean([seconds for _, seconds in found])
    return [case.title, case.likelihood, f"{np.mean(accuracies):.4f}", *each, case.bar, f"{seconds:.1f}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--only", choices=CASES, nargs="*", default=list(CASES))
    add_store_option(parser)
    arguments = parser.parse_args()
    rows = [row(name, outcomes(fits(name, arguments.seeds), arguments.store)) for name in arguments.only]
    seeds = [f"seed {seed}" for seed in range(arguments.seeds)]
    columns = ["data", "likelihood", "mean 1-NN", *seeds, "bar", "seconds"]
    title = f"Embeddings of binary data and counts in two dimensions, seeds 0 to {arguments.seeds - 1}"
    report("counts", title, columns, rows, command_line())


if __name__ == "__main__":
    main()
