"""Fit of all of MNIST in float32, and new rows embedded by a model of 5000.

    SRFLVM_DATA=folder python benchmarks/large.py [--rows 60000]

Default settings, seed 0. 10-NN: trained on the first four fifths of the rows' embedding, scored on the
rest. New rows: the 10 000 test images through `transform`, 5-NN against the embedding of 5000 training
images, beside the five-fold value on that embedding.
"""

from __future__ import annotations

import argparse

import numpy as np
from common import load_mnist, nearest_neighbours, report, timed
from sklearn.neighbors import KNeighborsClassifier

from srflvm import SRFLVM


def full(Y: np.ndarray, labels: np.ndarray) -> list[str]:
    model = SRFLVM(random_state=0, dtype="float32", verbose=2)
    Z, seconds = timed(lambda: model.fit_transform(Y))
    cut = len(Y) * 4 // 5
    accuracy = KNeighborsClassifier(10).fit(Z[:cut], labels[:cut]).score(Z[cut:], labels[cut:])
    finite = bool(np.isfinite(Z).all() and np.isfinite(model.elbo_history_).all())
    note = f"finite: {finite}, rejected steps: {model.n_rejected_steps_}, start: {model.start_}"
    return [f"MNIST, {len(Y)} rows, 10-NN", f"{accuracy:.4f}", note, f"{seconds:.0f}"]


def new_rows(Y: np.ndarray, labels: np.ndarray, n_train: int = 5000) -> list[list[str]]:
    model, fit_seconds = timed(lambda: SRFLVM(random_state=0).fit(Y[:n_train]))
    within = nearest_neighbours(model.embedding_, labels[:n_train], 5)
    Z, seconds = timed(lambda: model.transform(Y[60_000:]))
    score = KNeighborsClassifier(5).fit(model.embedding_, labels[:n_train]).score(Z, labels[60_000:])
    return [
        [f"{n_train} training rows, 5-NN, five folds", f"{within:.4f}", "", f"{fit_seconds:.0f}"],
        ["10 000 test rows, 5-NN", f"{score:.4f}", f"below by {within - score:.4f}", f"{seconds:.0f}"],
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=60_000)
    n_rows = parser.parse_args().rows
    Y, labels = load_mnist()
    rows = [*new_rows(Y, labels), full(Y[:n_rows], labels[:n_rows])]
    columns = ["what", "accuracy", "note", "seconds"]
    report("large", "Many rows, and new rows", columns, rows, "python benchmarks/large.py")


if __name__ == "__main__":
    main()
