"""Everyday tables that ship inside of Python packages, a synthetic one, and masks that hide their entries.

Columns of strings, categories and truth values are classes, all others are numbers. Nothing is downloaded.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import numpy as np
import pandas as pd
from scipy.optimize import brentq
from scipy.special import expit
from sklearn import datasets

Frame = Any  # a DataFrame and a Series of pandas, which has no types of its own that would do
Column = Any

KINDS = ("mcar10", "mcar30", "mcar50", "mar30")
LEVELS = "abcde"


def _module(name: str) -> Any:
    """Import a package that has tables, or tell how to install it."""
    try:
        return import_module(name)
    except ImportError as error:
        raise SystemExit(
            f"{name} is not installed: run `pip install -r benchmarks/requirements-tables.txt`."
        ) from error


def _with_names(bunch: Any, label: str) -> Frame:
    """Return a table of scikit-learn with its classes as strings."""
    return bunch.data.assign(**{label: bunch.target_names.astype(object)[bunch.target]})


def _with_target(bunch: Any) -> Frame:
    """Return a table of scikit-learn with its target, a number."""
    return bunch.frame


def _statsmodels(name: str) -> Frame:
    return _module(f"statsmodels.datasets.{name}").load_pandas().data


def _lifelines(name: str) -> Frame:
    return getattr(_module("lifelines.datasets"), f"load_{name}")()


def _vega(name: str) -> Frame:
    return getattr(_module("vega_datasets").local_data, name)()


def _some(table: Frame, n_rows: int) -> Frame:
    """Return random rows, the same at every call."""
    return table.sample(n_rows, random_state=0)


# Dropped: identifiers (each row, or each group of rows, has its own, so that there is nothing to predict them
# by) and dates (time series are another problem).
TABLES: dict[str, Callable[[], Frame]] = {
    "iris": lambda: _with_names(datasets.load_iris(as_frame=True), "species"),
    "wine": lambda: _with_names(datasets.load_wine(as_frame=True), "cultivar"),
    "breast_cancer": lambda: _some(_with_names(datasets.load_breast_cancer(as_frame=True), "diagnosis"), 300),
    "diabetes": lambda: _with_target(datasets.load_diabetes(as_frame=True, scaled=False)),
    "anes96": lambda: _statsmodels("anes96"),
    "fair": lambda: _some(_statsmodels("fair"), 1500),
    "modechoice": lambda: _statsmodels("modechoice").drop(columns="individual"),
    "star98": lambda: _statsmodels("star98"),
    "randhie": lambda: _some(_statsmodels("randhie"), 2000),
    "macrodata": lambda: _statsmodels("macrodata").drop(columns=["year", "quarter"]),
    "grunfeld": lambda: _statsmodels("grunfeld").drop(columns="year"),  # the firm is a class with 20 rows
    "gbsg2": lambda: _lifelines("gbsg2"),
    "rossi": lambda: _lifelines("rossi"),
    "lung": lambda: _lifelines("lung").drop(columns="inst"),  # the number of a hospital
    "kidney": lambda: _lifelines("kidney_transplant"),
    "penguins": lambda: _module("palmerpenguins").load_penguins().drop(columns="year"),
    "tips": lambda: _module("plotly.data").tips(),
    "gapminder": lambda: (
        _module("plotly.data").gapminder().drop(columns=["country", "iso_alpha", "iso_num", "year"])
    ),
    "cars": lambda: _vega("cars").drop(columns=["Name", "Year"]),
    "weather": lambda: _vega("seattle_weather").drop(columns="date"),
}
QUICK = ("iris", "gbsg2", "penguins", "tips")


def load_tables(names: Sequence[str] = tuple(TABLES)) -> dict[str, Frame]:
    """Load tables by name, all by default, with rows numbered from 0."""
    return {name: TABLES[name]().reset_index(drop=True) for name in names}


def class_columns(table: Frame) -> list[str]:
    """Return the names of columns of strings, categories and truth values."""
    return list(table.select_dtypes(include=["object", "category", "bool", "string"]).columns)


def number_columns(table: Frame) -> list[str]:
    classes = set(class_columns(table))
    return [column for column in table.columns if column not in classes]


def synthetic(
    n_rows: int, n_numbers: int = 12, n_classes: int = 4, n_ordinal: int = 4, seed: int = 0
) -> Frame:
    """Make a mixed table: functions of four latent variables, with noise and in different units.

    Numbers are affine, tanh and products of latents; the last is the exponential of such a one. Classes are
    the largest of two to five noisy scores, ordinals the steps of a noisy one.
    """
    rng = np.random.default_rng(seed)
    latents = rng.standard_normal((n_rows, 4))

    def signal() -> np.ndarray:
        affine = latents @ rng.normal(0.0, 0.7, 4)
        bent = np.tanh(latents @ rng.normal(0.0, 1.0, 4))
        i, j = rng.choice(4, 2, replace=False)
        return affine + bent + 0.5 * latents[:, i] * latents[:, j] + rng.normal(0.0, 0.4, n_rows)

    columns: dict[str, Any] = {}
    for k, unit in enumerate(np.logspace(-2, 4, n_numbers)):
        values = signal()
        columns[f"number{k}"] = unit * (np.exp(0.7 * values) if k == n_numbers - 1 else values + rng.normal())
    for k in range(n_classes):
        n_levels = 2 + k % 4
        scores = np.stack([1.5 * signal() for _ in range(n_levels)])
        names = np.array([f"{LEVELS[level]}{k}" for level in range(n_levels)], dtype=object)
        columns[f"class{k}"] = names[np.argmax(scores, axis=0)]
    for k in range(n_ordinal):
        values = signal()
        edges = np.quantile(values, np.linspace(0.0, 1.0, 4 + k)[1:-1])
        columns[f"ordinal{k}"] = np.searchsorted(edges, values) + 1
    return pd.DataFrame(columns)


def masks(table: Frame, kind: str, seed: int) -> Frame:
    """Draw a mask of a table's observed entries, True where an entry is to be hidden.

    `kind` is "mcar" or "mar" and the share in percent, such as "mcar30". "mcar" is completely at random.
    "mar" leaves two columns of numbers as they are, and the others lose entries by logistic functions of
    these two, with signs of their own. A column keeps two different values at least, a class a row at least.
    """
    pattern = re.fullmatch(r"(mcar|mar)(\d+)", kind)
    if pattern is None:
        raise ValueError(f"kind must be such as 'mcar30' or 'mar30', not {kind!r}")
    share, at_random = int(pattern[2]) / 100, pattern[1] == "mar"
    rng = np.random.default_rng((seed, int(pattern[2]), int(at_random), *table.shape))
    drivers = _drivers(table, rng) if at_random else []
    shares = {
        column: _logistic_shares(table[drivers], share, rng) if at_random else np.full(len(table), share)
        for column in table.columns
        if column not in drivers
    }
    hidden = pd.DataFrame(False, index=table.index, columns=table.columns)
    classes = set(class_columns(table))
    for column, chance in shares.items():
        hidden[column] = _hide(table[column], chance, column in classes, rng)
    return hidden


def _drivers(table: Frame, rng: np.random.Generator) -> list[str]:
    """Choose two columns of numbers, of those without holes if there are two."""
    numbers = table[number_columns(table)]
    numbers = numbers.loc[:, numbers.nunique() > 2]
    complete = [column for column in numbers if not numbers[column].isna().any()]
    chosen = rng.choice(complete if len(complete) > 1 else list(numbers), 2, replace=False)
    return [str(column) for column in chosen]


def _logistic_shares(drivers: Frame, share: float, rng: np.random.Generator) -> np.ndarray:
    """Compute chances to be hidden from two columns; their mean is `share`."""
    standard = ((drivers - drivers.mean()) / drivers.std()).fillna(0.0).clip(-3.0, 3.0).to_numpy(float)
    slope = standard @ rng.choice([-1.0, 1.0], 2)
    offset: Any = brentq(lambda a: expit(a + slope).mean() - share, -20.0, 20.0)
    return expit(offset + slope)


def _hide(values: Column, chance: np.ndarray, is_class: bool, rng: np.random.Generator) -> np.ndarray:
    """Draw which entries of a column to hide; draw again what would leave too little of it."""
    observed = values.notna().to_numpy()
    hidden = observed & (rng.random(len(values)) < chance)
    if is_class:
        for level in values.dropna().unique():
            rows = np.flatnonzero((values == level).to_numpy())
            while hidden[rows].all():
                hidden[rows] = rng.random(rows.size) < chance[rows]
    while values[observed & ~hidden].nunique() < 2:
        hidden = observed & (rng.random(len(values)) < chance)
    return hidden


def hide(table: Frame, hidden: Frame) -> Frame:
    """Return a table without its hidden entries: numbers are then floats, and missing entries NaN."""
    numbers = number_columns(table)
    seen = table.astype(dict.fromkeys(numbers, float)).astype(dict.fromkeys(class_columns(table), object))
    return seen.mask(hidden)
