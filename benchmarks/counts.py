"""Nearest-neighbour accuracy of embeddings of binary data and counts.

    SRFLVM_DATA=folder python benchmarks/counts.py [--seeds 5] [--only montreal bridges]

Default settings except the likelihood and the seed. No fit sees labels. The seed also draws the images
of MNIST; the other data are the same for every seed. Times are of the fit and include, in the first of a
shape, compilation.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from common import CONSOLE, command_line, count_table, mnist_subset, nearest_neighbours, report, timed

from srflvm import SRFLVM

Labelled = tuple[np.ndarray, np.ndarray]


def mnist_binary(seed: int) -> Labelled:
    Y, labels = mnist_subset(seed)
    return (Y > 0.5).astype(float), labels


def mnist_counts(seed: int) -> Labelled:
    Y, labels = mnist_subset(seed)
    return np.rint(255.0 * Y), labels


def words_present(seed: int) -> Labelled:
    Y, labels = count_table("newsgroups")
    return (Y > 0).astype(float), labels


class Case(NamedTuple):
    """Data by seed, how they are called, their likelihood, and the accuracy to be reached."""

    data: Callable[[int], Labelled]
    called: str
    likelihood: str
    bar: str


CASES = {
    "mnist-binary": Case(mnist_binary, "MNIST-1000 above 0.5", "bernoulli", "0.74"),
    "mnist-counts": Case(mnist_counts, "MNIST-1000, 0 to 255", "negative_binomial", "0.60"),
    "montreal": Case(lambda seed: count_table("montreal"), "montreal", "negative_binomial", "0.76"),
    "bridges": Case(lambda seed: count_table("bridges"), "bridges", "negative_binomial", "0.84"),
    "newsgroups-counts": Case(
        lambda seed: count_table("newsgroups"), "newsgroups", "negative_binomial", "0.55 (better of two)"
    ),
    "newsgroups-binary": Case(words_present, "newsgroups above 0", "bernoulli", "0.55 (better of two)"),
}


def measure(name: str, seed: int) -> tuple[float, float]:
    """Accuracy and seconds."""
    Y, labels = CASES[name].data(seed)
    model = SRFLVM(likelihood=CASES[name].likelihood, random_state=seed)
    Z, seconds = timed(lambda: model.fit_transform(Y))
    accuracy = nearest_neighbours(Z, labels)
    bound = model.elbo_ / Y.size
    CONSOLE.print(
        f"{name}, seed {seed}: {accuracy:.4f}, bound {bound:.4f}, {model.n_iter_} sweeps, "
        f"start {model.start_}, {seconds:.1f} s"
    )
    return accuracy, seconds


def row(name: str, n_seeds: int) -> list[str]:
    case = CASES[name]
    accuracies, seconds = zip(*(measure(name, seed) for seed in range(n_seeds)), strict=True)
    each = [f"{accuracy:.4f}" for accuracy in accuracies]
    mean = f"{np.mean(accuracies):.4f}"
    return [case.called, case.likelihood, mean, *each, case.bar, f"{np.mean(seconds):.1f}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--only", choices=CASES, nargs="*", default=list(CASES))
    arguments = parser.parse_args()
    rows = [row(name, arguments.seeds) for name in arguments.only]
    seeds = [f"seed {seed}" for seed in range(arguments.seeds)]
    columns = ["data", "likelihood", "mean 1-NN", *seeds, "bar", "seconds"]
    title = f"Embeddings of binary data and counts in two dimensions, seeds 0 to {arguments.seeds - 1}"
    report("counts", title, columns, rows, command_line())


if __name__ == "__main__":
    main()
