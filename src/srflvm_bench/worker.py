"""Worker that makes one fit in a process of its own.

It takes a task as JSON and the name of a file for arrays, and prints its measurements as the last line.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from srflvm._typing import FloatArray
from srflvm.datasets import make_s_curve_gp
from srflvm_bench.tasks import Task
from srflvm_bench.views import hide_entries, load, view

NEIGHBOURS = range(2, 11)
SHOWN_ROWS = 8
NORMAL_QUANTILE = 1.645  # of 95 %
IMPUTING_COMPONENTS = (2, 8, 32)
OURS = "srflvm:SRFLVM"


def measure(task: Task) -> dict[str, Any]:
    """Return the scores of a task, the seconds of its fit, a note, and arrays for pictures."""
    if task.kind == "manifold":
        return _manifold(task)
    data = load(task.data, task.folder, task.seed)
    if task.kind == "imputation":
        return _imputation(task, np.asarray(data.Y, np.float64))
    system = make(task)
    Z, seconds = _embed(task, system, view(data, task.suits))
    counts = [1] if task.kind == "embedding" else list(NEIGHBOURS)
    Z, note = _best_latents(system, Z, lambda Z: accuracy(Z, data.labels, counts[0]))
    scores = [accuracy(Z, data.labels, k) for k in counts]
    return {"scores": scores, "seconds": seconds, "note": note, "arrays": {}}


def _best_latents(system: Any, Z: FloatArray, score: Callable[[FloatArray], float]) -> tuple[FloatArray, str]:
    """Return the latents of a system that are scored, and a note.

    The latents of a chain are the mean of its draws or its most probable draw, whichever scores higher. This
    is in favour of chains: a row that its draws put in several places has its mean in none of them.
    """
    note = describe_chain(system)
    if not note:
        return Z, note
    if score(system.most_probable_draw_) > score(Z):
        return system.most_probable_draw_, f"{note}, scored at its most probable draw"
    return Z, f"{note}, scored at the mean of its draws"


def describe_chain(system: Any) -> str:
    """Return how far the chain of a system has converged, or nothing if it has no chain."""
    if not hasattr(system, "rhat_"):
        return ""
    end = "converged" if system.converged_ else "not converged"
    rhat, size = system.rhat_["log_joint"], system.ess_["log_joint"]
    return f"{end} after {system.n_iter_} sweeps, R-hat {rhat:.2f}, effective sample size {size:.0f}"


def _embed(task: Task, system: Any, Y: FloatArray) -> tuple[FloatArray, float]:
    """Return the embedding of a system and the seconds it took."""
    started = time.perf_counter()
    Z = np.asarray(system.fit_transform(Y))
    seconds = time.perf_counter() - started
    if Z.shape[0] != len(Y) or not np.isfinite(Z).all():
        raise ArithmeticError(f"{task.system} returned an embedding that is not finite, or of another size.")
    return Z, seconds


def accuracy(Z: FloatArray, labels: Any, k: int) -> float:
    """Return the accuracy of k nearest neighbours over five folds."""
    from sklearn.model_selection import KFold, cross_val_score
    from sklearn.neighbors import KNeighborsClassifier

    folds = KFold(5, shuffle=True, random_state=0)
    return float(cross_val_score(KNeighborsClassifier(k), Z, labels, cv=folds).mean())


def _manifold(task: Task) -> dict[str, Any]:
    """Measure how well a system recovers the S-curve.

    Scores are R^2 of the latents after the best affine map, and the correlation of the kernel matrices off
    the diagonal, both against the latents and the kernel that made the data.
    """
    _, likelihood, size = task.data.split()
    n_rows, n_columns = (int(number) for number in size.split("x"))
    truth = make_s_curve_gp(n_rows, n_columns, likelihood=likelihood, random_state=task.seed)
    system = make(task)
    Z, seconds = _embed(task, system, truth.Y)
    kernel = system.kernel(Z, Z) / system.amplitude_ if task.path == OURS else system.kernel_matrix()
    Z, note = _best_latents(system, Z, lambda Z: _r_squared(_map_affinely(Z, truth.X), truth.X))
    fitted = _map_affinely(Z, truth.X)
    order = np.argsort(truth.position)
    square = np.ix_(order, order)
    kernels = truth.kernel()[square], np.asarray(kernel)[square]
    off_diagonal = ~np.eye(n_rows, dtype=bool)
    correlation = np.corrcoef(kernels[0][off_diagonal], kernels[1][off_diagonal])[0, 1]
    arrays = {"X": truth.X[order], "fitted": fitted[order], "K": kernels[0], "kernel": kernels[1]}
    return {
        "scores": [_r_squared(fitted, truth.X), float(correlation)],
        "seconds": seconds,
        "note": note,
        "arrays": arrays,
    }


def _r_squared(fitted: FloatArray, X: FloatArray) -> float:
    """Return R^2, the share of the variance of X that is fitted."""
    residual, spread = np.sum((X - fitted) ** 2), np.sum((X - X.mean(axis=0)) ** 2)
    return float(1.0 - residual / spread)


def _map_affinely(Z: FloatArray, X: FloatArray) -> FloatArray:
    """Map Z affinely so that it is nearest to X."""
    design = np.column_stack([Z, np.ones(len(Z))])
    return design @ np.linalg.lstsq(design, X, rcond=None)[0]


def _imputation(task: Task, Y: FloatArray) -> dict[str, Any]:
    """Measure the mean squared error of hidden entries, or of all entries if none is hidden.

    Scores of our system also hold the share of these entries within its 90 % intervals, and the number of
    components that it chose.
    """
    seen, scored = hide_entries(Y, task.share, task.seed)
    started = time.perf_counter()
    fills, std, n_components = _own_fill(task, seen) if task.path == OURS else (_fills(task, seen), None, 0)
    seconds = time.perf_counter() - started
    errors = [float(np.mean((fill - Y)[scored] ** 2)) for _, fill in fills]
    if not np.isfinite(errors).any():
        raise ArithmeticError(f"{task.system} returned entries that are not finite.")
    best = int(np.nanargmin(errors))
    note, fill = fills[best]
    own = []
    if std is not None:
        own = [float(np.mean((np.abs(fill - Y) <= NORMAL_QUANTILE * std)[scored])), n_components]
        note = f"{note}, 90 % intervals cover {own[0]:.3f}"
    shown = np.linspace(0, len(Y) - 1, SHOWN_ROWS).astype(int)
    arrays = {"truth": Y[shown], "holes": seen[shown], "filled": np.where(scored, fill, Y)[shown]}
    return {"scores": [errors[best], *own], "seconds": seconds, "note": note, "arrays": arrays}


def _own_fill(task: Task, seen: FloatArray) -> tuple[list[tuple[str, FloatArray]], FloatArray, int]:
    """Return the entries filled by our system, their standard deviations, and its number of components.

    If no entry is hidden, all entries are reconstructed.
    """
    from srflvm import SRFLVM, SRFLVMImputer

    settings = dict(task.settings)
    n_components = settings.pop("n_components", "auto")
    # the imputer at its defaults, unless the task asks for a model of its own
    estimator = SRFLVM(**settings) if settings else None
    imputer = SRFLVMImputer(estimator, n_components=n_components, random_state=task.seed).fit(seen)
    model = imputer.estimator_
    if task.share:
        mean, std = model.impute(seen, return_std=True)
    else:
        mean, std = model.inverse_transform(model.embedding_, return_std=True)
    chosen = int(imputer.n_components_)
    return [(f"{chosen} components", np.asarray(mean))], np.asarray(std), chosen


def _fills(task: Task, seen: FloatArray) -> list[tuple[str, FloatArray]]:
    """Return Y as filled by another system, once for every setting, each with the setting in words.

    The system is scored at its best setting, in its favour.
    """
    if not task.path:
        from srflvm_bench.baselines.imputers import IMPUTERS

        return list(IMPUTERS[task.system](seen))
    fills = []
    for size in (2,) if task.quick else IMPUTING_COMPONENTS:
        system = make(task, n_components=size)
        if not hasattr(system, "reconstruct"):
            raise TypeError(f"{task.system} does not reconstruct entries.")
        filled = np.asarray(system.reconstruct(seen))
        fills.append((", ".join(filter(None, (f"{size} components", describe_chain(system)))), filled))
    return fills


def make(task: Task, **more: Any) -> Any:
    """Return the system of a task, with further settings."""
    module, _, name = task.path.partition(":")
    return getattr(import_module(module), name)(random_state=task.seed, **task.settings, **more)


def main(text: str, array_file: str) -> None:
    """Measure a task, write its arrays to the file, and print the rest.

    The last line of a failure is its error.
    """
    try:
        measured = measure(Task(**json.loads(text)))
    except Exception as error:
        traceback.print_exc()
        sys.exit(f"{type(error).__name__}: {' '.join(str(error).split())}")
    arrays = measured.pop("arrays")
    if arrays:
        _write_arrays(Path(array_file), arrays)
    print(json.dumps(measured), flush=True)


def _write_arrays(path: Path, arrays: dict[str, Any]) -> None:
    """Write arrays to a file that appears whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.stem}-{os.getpid()}.npz")
    try:
        np.savez_compressed(temporary, **arrays)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
