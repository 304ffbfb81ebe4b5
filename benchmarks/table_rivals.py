"""Imputers of mixed tables: SRFLVMImputer with its defaults, and its rivals, each behind the same function.

Each takes a frame with holes and returns it filled, with probabilities of classes, intervals and draws if it
has them. All are seeded. Rivals that need numbers get classes as indicators, all columns standardised.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from common import timed
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer, KNNImputer
from table_data import Frame, class_columns, number_columns

OURS = "SRFLVMImputer"
N_DRAWS = 20
N_RIVAL_DRAWS = 5
LEVEL = 0.9

Probabilities = dict[str, Frame]


class Filled(NamedTuple):
    """A filled table, the seconds it took, and what else an imputer gives; draws are not in the seconds."""

    table: Frame
    seconds: float
    probabilities: Probabilities | None = None
    interval: tuple[Frame, Frame] | None = None
    draws: list[Frame] | None = None


class Indicators:
    """Standardised numbers and indicators of classes, and the way back from them.

    `drop_first` leaves out the indicator of the first level of each class, for regressions of indicators on
    each other: the others of a class would tell it, and keep it at the mean where they start.
    """

    def __init__(self, table: Frame, drop_first: bool = False):
        self.table = table
        self.first = int(drop_first)
        self.numbers = number_columns(table)
        self.levels: dict[str, list[Any]] = {
            column: sorted(table[column].dropna().unique()) for column in class_columns(table)
        }
        raw = self._raw()
        self.location = np.nanmean(raw, axis=0)
        spread = np.nanstd(raw, axis=0)
        self.scale = np.where(spread > 0.0, spread, 1.0)
        self.values = np.ascontiguousarray((raw - self.location) / self.scale)

    def _raw(self) -> np.ndarray:
        parts = [self.table[self.numbers].to_numpy(float)]
        for column, levels in self.levels.items():
            values = self.table[column]
            for level in levels[self.first :]:
                hits = np.where(values.isna(), np.nan, (values == level).to_numpy(float))
                parts.append(hits[:, None])
        return np.hstack(parts)

    def decode(self, values: np.ndarray) -> tuple[Frame, Probabilities]:
        """Return a frame with the holes filled from standardised values, and probabilities of classes.

        Probabilities are the indicators in their own units, not below 0, with sum 1.
        """
        raw = values * self.scale + self.location
        filled, probabilities = self.table.copy(), {}
        for j, column in enumerate(self.numbers):
            filled[column] = self.table[column].fillna(pd.Series(raw[:, j], self.table.index))
        start = len(self.numbers)
        for column, levels in self.levels.items():
            scores = raw[:, start : start + len(levels) - self.first]
            start += scores.shape[1]
            if self.first:
                scores = np.column_stack([1.0 - scores.sum(axis=1), scores])
            best = np.array(levels, dtype=object)[np.argmax(scores, axis=1)]
            filled[column] = self.table[column].where(self.table[column].notna(), best)
            mass = np.clip(scores, 1e-6, None)
            mass /= mass.sum(axis=1, keepdims=True)
            probabilities[column] = pd.DataFrame(mass, self.table.index, pd.Index(levels))
        return filled, probabilities


def _by_indicators(table: Frame, fill: Callable[[np.ndarray], Any], drop_first: bool = False) -> Filled:
    """Fill a table by a function that fills standardised numbers and indicators."""

    def run() -> tuple[Frame, Probabilities]:
        code = Indicators(table, drop_first)
        return code.decode(fill(code.values))

    (filled, probabilities), seconds = timed(run)
    return Filled(filled, seconds, probabilities)


def mean_mode(table: Frame) -> Filled:
    """Fill in means and modes, with frequencies as probabilities."""
    return _by_indicators(table, lambda values: np.where(np.isnan(values), 0.0, values))


def neighbours(table: Frame) -> Filled:
    """Fill in means of the five nearest rows."""
    return _by_indicators(table, KNNImputer().fit_transform)


def bayesian_ridge(table: Frame) -> Filled:
    """Fill in by rounds of linear regressions; draws are from their predictive distributions."""

    def imputer(seed: int, **settings: Any) -> Any:
        return IterativeImputer(random_state=seed, skip_complete=True, **settings)

    found = _by_indicators(table, imputer(0).fit_transform, drop_first=True)
    code = Indicators(table, drop_first=True)
    draws = [
        code.decode(imputer(seed, sample_posterior=True).fit_transform(code.values))[0]
        for seed in range(N_RIVAL_DRAWS)
    ]
    return found._replace(draws=draws)


def soft_impute(table: Frame) -> Filled:
    """Fill in by a matrix of low nuclear norm, its penalty chosen on a tenth of the observed entries."""

    def fill(values: np.ndarray) -> np.ndarray:
        observed = ~np.isnan(values)
        held_out = observed & (np.random.default_rng(0).random(values.shape) < 0.1)
        largest = np.linalg.norm(np.where(observed, values, 0.0), 2)
        penalties = largest * np.logspace(0.0, -2.5, 16)[1:]
        errors, path = [], np.zeros(values.shape)
        for penalty in penalties:
            path = _low_rank(values, observed & ~held_out, penalty, path)
            errors.append(np.mean((path - values)[held_out] ** 2))
        best, path = int(np.argmin(errors)), np.zeros(values.shape)
        for penalty in penalties[: best + 1]:
            path = _low_rank(values, observed, penalty, path)
        return np.where(observed, values, path)

    return _by_indicators(table, fill)


def _low_rank(values: np.ndarray, observed: np.ndarray, penalty: float, start: np.ndarray) -> np.ndarray:
    """Shrink singular values of the table with its holes filled, until these no longer move."""
    current = start
    for _ in range(200):
        left, singular, right = np.linalg.svd(np.where(observed, values, current), full_matrices=False)
        new = (left * np.maximum(singular - penalty, 0.0)) @ right
        moved = np.sum((new - current) ** 2) / max(np.sum(current**2), 1e-12)
        current = new
        if moved < 1e-6:
            break
    return current


def miss_forest(table: Frame) -> Filled:
    """Fill in by rounds of random forests, until the rounds no longer come closer to each other."""
    (filled, probabilities), seconds = timed(lambda: _forest_rounds(table))
    return Filled(filled, seconds, probabilities)


def _forest_rounds(table: Frame, n_rounds: int = 10) -> tuple[Frame, Probabilities]:
    """Run missForest as its authors set it: 100 trees, root of the columns tried, at most 10 rounds.

    It stops when both the numbers (by squares, relative) and the classes (by count) move more than in the
    round before, and returns that one.
    """
    code = Indicators(table)
    current, probabilities = code.decode(np.where(np.isnan(code.values), 0.0, code.values))
    holes = table.isna()
    columns = [str(column) for column in holes.sum().sort_values(kind="stable").index if holes[column].any()]
    settings: dict[str, Any] = {"n_estimators": 100, "max_features": "sqrt", "random_state": 0, "n_jobs": 1}
    last = {"numbers": np.inf, "classes": np.inf}
    for _ in range(n_rounds):
        new, new_probabilities = current.copy(), dict(probabilities)
        for column in columns:
            rows = holes[column].to_numpy()
            others = new.drop(columns=column)
            inputs = Indicators(others).values
            if column in code.levels:
                forest = RandomForestClassifier(**settings)
                forest.fit(inputs[~rows], table.loc[~rows, column].astype(str))
                mass = forest.predict_proba(inputs[rows])
                names = {str(level): level for level in code.levels[column]}
                levels = np.array([names[label] for label in forest.classes_], dtype=object)
                new.loc[rows, column] = levels[np.argmax(mass, axis=1)]
                table_of_mass = probabilities[column].copy()
                table_of_mass.loc[rows, levels] = mass
                new_probabilities[column] = table_of_mass
            else:
                tree = RandomForestRegressor(min_samples_split=6, **settings)
                tree.fit(inputs[~rows], table.loc[~rows, column])
                new.loc[rows, column] = tree.predict(inputs[rows])
        moved = _moves(current, new, holes, code)
        if not any(moved[kind] < last[kind] for kind in moved):
            break
        current, probabilities, last = new, new_probabilities, moved
    return current, probabilities


def _moves(old: Frame, new: Frame, holes: Frame, code: Indicators) -> dict[str, float]:
    """Return how far a round moved numbers and classes, each if there are holes in them."""
    moved = {}
    numbers = [column for column in code.numbers if holes[column].any()]
    classes = [column for column in code.levels if holes[column].any()]
    if numbers:
        after = new[numbers].to_numpy(float)
        moved["numbers"] = float(np.sum((after - old[numbers].to_numpy(float)) ** 2) / np.sum(after**2))
    if classes:
        changed = (new[classes] != old[classes]).to_numpy()
        moved["classes"] = float(changed.sum() / holes[classes].to_numpy().sum())
    return moved


def mice_forest(table: Frame) -> Filled:
    """Fill in means and modes of five tables drawn by miceforest after five rounds."""
    draws, seconds = timed(lambda: _mice_draws(table))
    filled = table.copy()
    for column in number_columns(table):
        filled[column] = np.mean([draw[column].to_numpy(float) for draw in draws], axis=0)
    for column in class_columns(table):
        filled[column] = pd.concat([draw[column] for draw in draws], axis=1).mode(axis=1)[0]
    return Filled(filled, seconds, draws=draws)


def _mice_draws(table: Frame) -> list[Frame]:
    """Draw tables; columns get plain names for LightGBM, and classes are categories."""
    try:
        miceforest = import_module("miceforest")
    except ImportError as error:
        raise SystemExit(
            "miceforest is not installed: run `pip install -r benchmarks/requirements-tables.txt`."
        ) from error
    names = {column: f"c{j}" for j, column in enumerate(table.columns)}
    plain = table.astype(dict.fromkeys(class_columns(table), "category")).rename(columns=names)
    strategy = {
        names[column]: "fast" if column in class_columns(table) else "normal"
        for column in table.columns
        if table[column].isna().any()
    }
    kernel = miceforest.ImputationKernel(
        plain, num_datasets=N_RIVAL_DRAWS, mean_match_strategy=strategy, random_state=0
    )
    kernel.mice(5, num_threads=1, verbosity=-1)
    back = {short: column for column, short in names.items()}
    draws = [kernel.complete_data(dataset=k).rename(columns=back) for k in range(N_RIVAL_DRAWS)]
    return [draw.astype(dict.fromkeys(class_columns(table), object)) for draw in draws]


def ours(table: Frame) -> Filled:
    """Fill in by SRFLVMImputer with its defaults."""
    from srflvm import SRFLVMImputer

    imputer: Any = SRFLVMImputer(random_state=0)
    filled, seconds = timed(lambda: imputer.fit_transform(table))
    interval = imputer.interval(table, level=LEVEL)
    _, probabilities = imputer.transform(table, return_proba=True)
    draws = imputer.draw(table, n_draws=N_DRAWS, random_state=0)
    return Filled(filled, seconds, probabilities, interval, draws)


SYSTEMS: dict[str, Callable[[Frame], Filled]] = {
    OURS: ours,
    "mean/mode": mean_mode,
    "KNN": neighbours,
    "BayesianRidge": bayesian_ridge,
    "SoftImpute": soft_impute,
    "missForest": miss_forest,
    "miceforest": mice_forest,
}
RIVALS = tuple(system for system in SYSTEMS if system != OURS)


def impute(system: str, table: Frame) -> Filled:
    """Fill a table by a system, without warnings of empty rows and all those of rivals."""
    with warnings.catch_warnings():
        if system == OURS:
            warnings.filterwarnings("ignore", message=".*no observed entry")
        else:
            warnings.simplefilter("ignore")
        return SYSTEMS[system](table)
