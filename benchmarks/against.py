"""Embeddings in two dimensions against other systems: time, peak memory, nearest neighbours.

    SRFLVM_DATA=folder python benchmarks/against.py [--data digits mnist] [--only srflvm umap] [--seed 0]

Every fit runs in a process of its own, with default settings unless a row says otherwise: times are of the
fit alone and include, for SRFLVM, compilation; peak memory is the whole process's. 1-NN is the five-fold
accuracy up to 10 000 rows. 10-NN is trained on the first four fifths of the rows' embedding and scored on the
rest. UMAP (umap-learn) and GPy's Bayesian GPLVM with minibatches (GPy) are measured where they are installed,
GPy on at most 2000 rows. A picture is written beside the table.

Measurements are kept in benchmarks/.cache/against.json: the command makes those that are missing there, and
reports all of them; `--again` repeats the chosen ones.
"""

from __future__ import annotations

import argparse
import itertools
import json
import resource
import subprocess
import sys
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from cache import Cache
from common import CONSOLE, RESULTS, command_line, data_folder, load_mnist, nearest_neighbours, report, timed
from sklearn.datasets import load_digits
from sklearn.neighbors import KNeighborsClassifier

MOST_ROWS_FOR_ONE_NEIGHBOUR = 10_000
MOST_ROWS_FOR_GPY = 2000
MOST_ROWS_FOR_TSNE = 20_000
GPY_STEPS, GPY_INDUCING, GPY_BATCH = 1000, 50, 200

CACHE = Cache("against")

Labelled = tuple[np.ndarray, np.ndarray]


def digits() -> Labelled:
    Y, labels = load_digits(return_X_y=True)
    return np.asarray(Y, np.float32) / 16, np.asarray(labels)


def mnist(n_rows: int = 60_000) -> Labelled:
    Y, labels = load_mnist()
    return Y[:n_rows], labels[:n_rows]


def cifar(side: int, n_classes: int = 10) -> Labelled:
    archive = np.load(data_folder() / f"cifar10_gray{side}.npz")
    chosen = archive["labels"] < n_classes
    return (archive["Y"][chosen] / np.float32(255)).astype(np.float32), archive["labels"][chosen]


DATA: dict[str, Callable[[], Labelled]] = {
    "digits": digits,
    "mnist-5000": lambda: mnist(5000),
    "mnist": mnist,
    "cifar-20": lambda: cifar(20),
    "cifar-20-five-classes": lambda: cifar(20, 5),
    "cifar-32": lambda: cifar(32),
}


def by_srflvm(Y: np.ndarray, seed: int, **settings: Any) -> np.ndarray:
    from srflvm import SRFLVM

    return SRFLVM(random_state=seed, dtype="float32", **settings).fit_transform(Y)


def by_tsne(Y: np.ndarray, seed: int) -> np.ndarray | None:
    from sklearn.manifold import TSNE

    return TSNE(random_state=seed).fit_transform(Y) if len(Y) <= MOST_ROWS_FOR_TSNE else None


def by_umap(Y: np.ndarray, seed: int) -> np.ndarray:
    from umap import UMAP  # pyright: ignore[reportMissingImports]

    return UMAP(random_state=seed).fit_transform(Y)


def by_incremental_pca(Y: np.ndarray, seed: int) -> np.ndarray:
    from sklearn.decomposition import IncrementalPCA

    return IncrementalPCA(2).fit_transform(Y)


def by_gpy(Y: np.ndarray, seed: int) -> np.ndarray | None:
    from GPy.models.bayesian_gplvm_minibatch import BayesianGPLVMMiniBatch  # pyright: ignore

    if len(Y) > MOST_ROWS_FOR_GPY:
        return None
    np.random.seed(seed)
    model: Any = BayesianGPLVMMiniBatch(
        Y.astype(float), 2, num_inducing=GPY_INDUCING, batchsize=GPY_BATCH, stochastic=True
    )
    model.optimize("adadelta", max_iters=GPY_STEPS)
    return np.asarray(model.X.mean)


METHODS: dict[str, Callable[[np.ndarray, int], np.ndarray | None]] = {
    "srflvm": by_srflvm,
    "srflvm, 60 sweeps": partial(by_srflvm, max_iter=60, tol=0),
    "srflvm, 20 000 landmarks": partial(by_srflvm, n_landmarks=20_000),
    "srflvm, 20 000 landmarks, 30 sweeps": partial(by_srflvm, n_landmarks=20_000, max_iter=30, tol=0),
    "t-sne": by_tsne,
    "umap": by_umap,
    "incremental-pca": by_incremental_pca,
    "gpy": by_gpy,
}


def run_one(method: str, name: str, seed: int) -> dict[str, Any]:
    """Measure seconds, memory and accuracies in this process, or return why there are none."""
    warnings.simplefilter("ignore")
    Y, labels = DATA[name]()
    try:
        Z, seconds = timed(lambda: METHODS[method](Y, seed))
    except ImportError as missing:
        return {"note": f"not installed: {missing.name}"}
    if Z is None:
        return {"note": "too many rows"}
    cut = len(Y) * 4 // 5
    ten = KNeighborsClassifier(10).fit(Z[:cut], labels[:cut]).score(Z[cut:], labels[cut:])
    one = nearest_neighbours(Z, labels) if len(Y) <= MOST_ROWS_FOR_ONE_NEIGHBOUR else None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {"seconds": seconds, "peak": peak, "one": one, "ten": float(ten)}


def measured(method: str, name: str, seed: int) -> dict[str, Any]:
    command = [sys.executable, __file__, "--run", method, name, "--seed", str(seed)]
    outcome = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True)
    if outcome.returncode:
        found = {"note": "failed: " + (outcome.stderr.splitlines() or ["no message"])[-1]}
    else:
        found = json.loads(outcome.stdout.splitlines()[-1])
    CONSOLE.print(name, method, found)
    return found


def row(name: str, method: str, found: dict[str, Any], umap_seconds: float | None) -> list[str]:
    if "note" in found:
        return [name, method, "-", "-", "-", "-", found["note"]]
    one = "-" if found["one"] is None else f"{found['one']:.4f}"
    times = f"{found['seconds'] / umap_seconds:.2f} times as long as UMAP" if umap_seconds else ""
    return [
        name,
        method,
        f"{found['seconds']:.1f}",
        f"{found['peak'] / 1e9:.2f}",
        one,
        f"{found['ten']:.4f}",
        times,
    ]


def key(name: str, method: str, seed: int) -> str:
    return f"{name} | {method} | {seed}"


def table(seed: int) -> list[list[str]]:
    """Return all measurements, data by data."""
    cells, rows = CACHE.read(), []
    for name in DATA:
        found = {m: cells[key(name, m, seed)] for m in METHODS if key(name, m, seed) in cells}
        umap_seconds = found.get("umap", {}).get("seconds")
        rows += [row(name, method, each, umap_seconds) for method, each in found.items()]
    return rows


def draw(rows: list[list[str]]) -> None:
    """Draw accuracy against seconds, a panel for each data set."""
    import matplotlib.pyplot as plt

    rows = [row for row in rows if row[2] != "-"]
    names = [name for name in DATA if any(row[0] == name for row in rows)]
    methods = [method for method in METHODS if any(row[1] == method for row in rows)]
    size = (2.6 * len(names), 3.4)
    figure, axes = plt.subplots(1, len(names), figsize=size, squeeze=False, layout="constrained")
    for name, axis in zip(names, axes[0], strict=True):
        for number, method in enumerate(methods):
            found = [row for row in rows if row[:2] == [name, method]]
            axis.scatter(
                [float(row[2]) for row in found],
                [float(row[5]) for row in found],
                c=f"C{number}",
                label=method,
            )
        axis.set(title=name, xlabel="seconds", xscale="log")
        axis.margins(0.2)
    axes[0, 0].set_ylabel("10-NN accuracy")
    labelled = axes[0, 0].get_legend_handles_labels()
    figure.legend(*labelled, loc="outside lower center", ncols=4, frameon=False, fontsize=8)
    figure.savefig(RESULTS / "against.png", dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", choices=DATA, nargs="*", default=list(DATA))
    parser.add_argument("--only", choices=METHODS, nargs="*", default=list(METHODS))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--run", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.run:
        method, name = arguments.run
        print(json.dumps(run_one(method, name, arguments.seed)))
        return
    for name, method in itertools.product(arguments.data, arguments.only):
        if arguments.again or key(name, method, arguments.seed) not in CACHE.read():
            CACHE.add(key(name, method, arguments.seed), measured(method, name, arguments.seed))
    rows = table(arguments.seed)
    columns = ["data", "method", "seconds", "peak, GB", "1-NN", "10-NN", "note"]
    title = f"Embeddings of two dimensions against other systems, seed {arguments.seed}"
    draw(rows)
    report(
        "against",
        title,
        columns,
        rows,
        f"{command_line()} (rows are from one or more such runs)",
        ["against"],
    )


if __name__ == "__main__":
    main()
