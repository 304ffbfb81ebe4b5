"""One fit in a process of its own: takes a task as JSON, prints what it measured as the last line."""

from __future__ import annotations

import json
import sys
import time
from importlib import import_module
from typing import Any

import numpy as np

from srflvm._types import FloatArray
from srflvm.bench.tasks import Task
from srflvm.bench.views import load, view, with_holes

NEIGHBOURS = range(2, 11)


def measure(task: Task) -> dict[str, Any]:
    """The scores of a task and the seconds of its fit."""
    data = load(task.data, task.folder, task.seed)
    if task.kind == "imputation":
        return _imputation(task, np.asarray(data.Y, np.float64))
    Y = view(data, task.suits)
    system = _make(task)
    started = time.perf_counter()
    Z = np.asarray(system.fit_transform(Y))
    seconds = time.perf_counter() - started
    if Z.shape[0] != len(Y) or not np.isfinite(Z).all():
        raise ArithmeticError(f"{task.system} returned an embedding that is not finite, or of another size.")
    counts = [1] if task.kind == "embedding" else list(NEIGHBOURS)
    return {"scores": [accuracy(Z, data.labels, k) for k in counts], "seconds": seconds}


def accuracy(Z: FloatArray, labels: Any, k: int) -> float:
    """Five-fold accuracy of a classifier by the k nearest neighbours."""
    from sklearn.model_selection import KFold, cross_val_score
    from sklearn.neighbors import KNeighborsClassifier

    folds = KFold(5, shuffle=True, random_state=0)
    return float(cross_val_score(KNeighborsClassifier(k), Z, labels, cv=folds).mean())


def _imputation(task: Task, Y: FloatArray) -> dict[str, Any]:
    """The mean squared error of missing entries; of all entries if none is missing."""
    holes, scored = with_holes(Y, task.share, task.seed)
    started = time.perf_counter()
    fills = _fills(task, holes)
    seconds = time.perf_counter() - started
    return {"scores": [min(float(np.mean((fill - Y)[scored] ** 2)) for fill in fills)], "seconds": seconds}


def _fills(task: Task, holes: FloatArray) -> list[FloatArray]:
    """What a system makes of Y; rivals with settings are scored at the best, in their favour."""
    if not task.path:
        from srflvm.baselines.imputers import RIVALS

        return [filled for _, filled in RIVALS[task.system](holes)]
    if task.path == "srflvm:SRFLVM":
        from srflvm import SRFLVMImputer

        imputer = SRFLVMImputer(n_components="auto", random_state=task.seed).fit(holes)
        model = imputer.estimator_
        return [np.asarray(model.inverse_transform(model.embedding_))]
    system = _make(task)
    if not hasattr(system, "reconstruct"):
        raise NotImplementedError(f"{task.system} does not reconstruct entries.")
    return [np.asarray(system.reconstruct(holes))]


def _make(task: Task) -> Any:
    module, _, name = task.path.partition(":")
    return getattr(import_module(module), name)(random_state=task.seed, **task.settings)


if __name__ == "__main__":
    print(json.dumps(measure(Task(**json.loads(sys.argv[1])))), flush=True)
