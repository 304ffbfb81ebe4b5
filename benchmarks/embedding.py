"""Nearest-neighbour accuracy and wall time against t-SNE, and the bound against a PCA start.

    SRFLVM_DATA=folder python benchmarks/embedding.py [--seeds 5] [--only digits]

Default settings except the seed. No fit sees labels. Times include the start and, in the
first fit of a shape, compilation; t-SNE runs on the same rows in the same process.
"""

from __future__ import annotations

import argparse

import numpy as np
from common import CONSOLE, cifar_subset, mnist_subset, nearest_neighbours, report, timed
from sklearn.datasets import load_digits
from sklearn.manifold import TSNE

from srflvm import SRFLVM


def digits(seed: int) -> tuple[np.ndarray, np.ndarray]:
    Y, labels = load_digits(return_X_y=True)
    return np.asarray(Y) / 16.0, np.asarray(labels)


DATA = {"digits": digits, "MNIST-1000": mnist_subset, "CIFAR-2000": cifar_subset}


def measure(name: str, seed: int) -> dict[str, float]:
    Y, labels = DATA[name](seed)
    model = SRFLVM(random_state=seed)
    Z, seconds = timed(lambda: model.fit_transform(Y))
    from_pca = SRFLVM(random_state=seed, init="pca").fit(Y)
    tsne, tsne_seconds = timed(lambda: TSNE(random_state=seed).fit_transform(Y))
    row = {
        "accuracy": nearest_neighbours(Z, labels),
        "t-SNE": nearest_neighbours(tsne, labels),
        "seconds": seconds,
        "t-SNE seconds": tsne_seconds,
        "ratio": seconds / tsne_seconds,
        "bound": model.elbo_ / Y.size,
        "PCA bound": from_pca.elbo_ / Y.size,
    }
    CONSOLE.print(name, seed, model.start_, {key: round(value, 4) for key, value in row.items()})
    return row


def summarise(name: str, rows: list[dict[str, float]]) -> list[str]:
    def mean(key: str) -> float:
        return float(np.mean([row[key] for row in rows]))

    worst = min(row["accuracy"] for row in rows)
    slowest = max(row["ratio"] for row in rows)
    gain = min(row["bound"] - row["PCA bound"] for row in rows)
    return [
        name,
        f"{mean('accuracy'):.4f} / {worst:.4f}",
        f"{mean('t-SNE'):.4f}",
        f"{mean('seconds'):.1f}",
        f"{mean('t-SNE seconds'):.1f}",
        f"{mean('seconds') / mean('t-SNE seconds'):.2f} / {slowest:.2f}",
        f"{mean('bound'):.4f}",
        f"{mean('PCA bound'):.4f}",
        f"{gain:+.4f}",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--only", choices=DATA, nargs="*", default=list(DATA))
    arguments = parser.parse_args()
    rows = [
        summarise(name, [measure(name, seed) for seed in range(arguments.seeds)]) for name in arguments.only
    ]
    columns = ["data", "1-NN mean / worst", "t-SNE 1-NN", "seconds", "t-SNE seconds", "times mean / worst"]
    columns += ["bound per entry", "from PCA alone", "smallest gain"]
    title = f"Embeddings of two dimensions, seeds 0 to {arguments.seeds - 1}"
    report("embedding", title, columns, rows, "python benchmarks/embedding.py")


if __name__ == "__main__":
    main()
