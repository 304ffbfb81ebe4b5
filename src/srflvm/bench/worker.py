"""One fit in a process of its own: takes a task as JSON and a file for arrays, prints what it measured as
the last line."""

from __future__ import annotations

import json
import sys
import time
import traceback
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from srflvm._types import FloatArray
from srflvm.bench.tasks import Task
from srflvm.bench.views import load, view, with_holes
from srflvm.datasets.synthetic import make_s_curve_gp, s_curve_kernel
from srflvm.whole_files import whole_file

NEIGHBOURS = range(2, 11)
SHOWN_ROWS = 8
NORMAL_QUANTILE = 1.645  # of 95 %
IMPUTING_COMPONENTS = (2, 8, 32)
OURS = "srflvm:SRFLVM"


def measure(task: Task) -> dict[str, Any]:
    """The scores of a task, the seconds of its fit, and arrays for pictures."""
    if task.kind == "manifold":
        return _manifold(task)
    data = load(task.data, task.folder, task.seed)
    if task.kind == "imputation":
        return _imputation(task, np.asarray(data.Y, np.float64))
    system = make(task)
    Z, seconds = _embedding(task, system, view(data, task.suits))
    counts = [1] if task.kind == "embedding" else list(NEIGHBOURS)
    Z, note = _better(system, Z, lambda Z: accuracy(Z, data.labels, counts[0]))
    scores = [accuracy(Z, data.labels, k) for k in counts]
    return {"scores": scores, "seconds": seconds, "note": note, "arrays": {}}


def _better(system: Any, Z: FloatArray, score: Callable[[FloatArray], float]) -> tuple[FloatArray, str]:
    """What is scored of a system, and what it says of itself. Of a chain it is the mean of its draws or its
    most probable draw, whichever scores higher, in its favour: a row that draws put in several places has its
    mean in none of them."""
    note = said_by(system)
    if not note:
        return Z, note
    if score(system.most_probable_draw_) > score(Z):
        return system.most_probable_draw_, f"{note}, scored at its most probable draw"
    return Z, f"{note}, scored at the mean of its draws"


def said_by(system: Any) -> str:
    """How far the chain of a system that has one came, by its own diagnostics."""
    if not hasattr(system, "rhat_"):
        return ""
    end = "converged" if system.converged_ else "not converged"
    rhat, size = system.rhat_["log_joint"], system.ess_["log_joint"]
    return f"{end} after {system.n_iter_} sweeps, R-hat {rhat:.2f}, effective sample size {size:.0f}"


def _embedding(task: Task, system: Any, Y: FloatArray) -> tuple[FloatArray, float]:
    started = time.perf_counter()
    Z = np.asarray(system.fit_transform(Y))
    seconds = time.perf_counter() - started
    if Z.shape[0] != len(Y) or not np.isfinite(Z).all():
        raise ArithmeticError(f"{task.system} returned an embedding that is not finite, or of another size.")
    return Z, seconds


def accuracy(Z: FloatArray, labels: Any, k: int) -> float:
    """Five-fold accuracy of a classifier by the k nearest neighbours."""
    from sklearn.model_selection import KFold, cross_val_score
    from sklearn.neighbors import KNeighborsClassifier

    folds = KFold(5, shuffle=True, random_state=0)
    return float(cross_val_score(KNeighborsClassifier(k), Z, labels, cv=folds).mean())


def _manifold(task: Task) -> dict[str, Any]:
    """R^2 of the latents after the best affine map, and the correlation of kernel matrices off the diagonal,
    both against those that made the data."""
    _, likelihood, size = task.data.split()
    n_rows, n_columns = (int(number) for number in size.split("x"))
    truth = make_s_curve_gp(n_rows, n_columns, likelihood=likelihood, random_state=task.seed)
    system = make(task)
    Z, seconds = _embedding(task, system, truth.Y)
    kernel = system.kernel(Z, Z) / system.amplitude_ if task.path == OURS else system.kernel_matrix()
    Z, note = _better(system, Z, lambda Z: explained(affinely_mapped(Z, truth.X), truth.X))
    fitted = affinely_mapped(Z, truth.X)
    order = np.argsort(truth.position)
    square = np.ix_(order, order)
    kernels = s_curve_kernel(truth.X)[square], np.asarray(kernel)[square]
    off_diagonal = ~np.eye(n_rows, dtype=bool)
    correlation = np.corrcoef(kernels[0][off_diagonal], kernels[1][off_diagonal])[0, 1]
    arrays = {"X": truth.X[order], "fitted": fitted[order], "K": kernels[0], "kernel": kernels[1]}
    return {
        "scores": [explained(fitted, truth.X), float(correlation)],
        "seconds": seconds,
        "note": note,
        "arrays": arrays,
    }


def explained(fitted: FloatArray, X: FloatArray) -> float:
    """R^2: the share of the spread of X that is fitted."""
    residual, spread = np.sum((X - fitted) ** 2), np.sum((X - X.mean(axis=0)) ** 2)
    return float(1.0 - residual / spread)


def affinely_mapped(Z: FloatArray, X: FloatArray) -> FloatArray:
    """The affine map of Z that is nearest to X."""
    design = np.column_stack([Z, np.ones(len(Z))])
    return design @ np.linalg.lstsq(design, X, rcond=None)[0]


def _imputation(task: Task, Y: FloatArray) -> dict[str, Any]:
    """The mean squared error of missing entries, of all entries if none is missing; of our system also the
    share of them within its 90 % intervals, and the number of components it chose."""
    holes, scored = with_holes(Y, task.share, task.seed)
    started = time.perf_counter()
    fills, std, n_components = _own_fill(task, holes) if task.path == OURS else (_fills(task, holes), None, 0)
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
    arrays = {"truth": Y[shown], "holes": holes[shown], "filled": np.where(scored, fill, Y)[shown]}
    return {"scores": [errors[best], *own], "seconds": seconds, "note": note, "arrays": arrays}


def _own_fill(task: Task, holes: FloatArray) -> tuple[list[tuple[str, FloatArray]], FloatArray, int]:
    """Our fill, or the reconstruction of all entries if none is missing, its standard deviations, and the
    number of components chosen."""
    from srflvm import SRFLVM, SRFLVMImputer

    settings = dict(task.settings)
    n_components = settings.pop("n_components", "auto")
    # the entries are pixels, which share their unit
    imputer = SRFLVMImputer(
        SRFLVM(**settings), n_components=n_components, standardize=False, random_state=task.seed
    ).fit(holes)
    model = imputer.estimator_
    if task.share:
        mean, std = model.impute(holes, return_std=True)
    else:
        mean, std = model.inverse_transform(model.embedding_, return_std=True)
    chosen = int(imputer.n_components_)
    return [(f"{chosen} components", np.asarray(mean))], np.asarray(std), chosen


def _fills(task: Task, holes: FloatArray) -> list[tuple[str, FloatArray]]:
    """What a system makes of Y, for every setting that it has, with that setting in words; it is scored at
    the best, in its favour."""
    if not task.path:
        from srflvm.baselines.imputers import RIVALS

        return list(RIVALS[task.system](holes))
    fills = []
    for size in (2,) if task.quick else IMPUTING_COMPONENTS:
        system = make(task, n_components=size)
        if not hasattr(system, "reconstruct"):
            raise TypeError(f"{task.system} does not reconstruct entries.")
        filled = np.asarray(system.reconstruct(holes))
        fills.append((", ".join(filter(None, (f"{size} components", said_by(system)))), filled))
    return fills


def make(task: Task, **more: Any) -> Any:
    """The system of a task, with more settings than it has."""
    module, _, name = task.path.partition(":")
    return getattr(import_module(module), name)(random_state=task.seed, **task.settings, **more)


def main(text: str, array_file: str) -> None:
    """Measure; arrays are in the file before the result is printed. The last line of a
    failure says what went wrong."""
    try:
        measured = measure(Task(**json.loads(text)))
    except Exception as error:
        traceback.print_exc()
        sys.exit(f"{type(error).__name__}: {' '.join(str(error).split())}")
    arrays = measured.pop("arrays")
    if arrays:
        Path(array_file).parent.mkdir(parents=True, exist_ok=True)
        with whole_file(Path(array_file)) as temporary:
            np.savez_compressed(temporary, **arrays)
    print(json.dumps(measured), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
