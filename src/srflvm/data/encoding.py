"""Raw columns, the channels of the linear layer that they become, and the sizes of rows of counts.

A `Layout` says which likelihood has which columns, and in what units. It is made when a model is fitted, and
encodes raw rows, of the training data or new, as channels: the columns of f. Most columns are one channel; a
categorical column is several. Offsets are known terms of f, the logarithms of size factors. They are given by
the user, or estimated by the layout's `size_method`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from srflvm._typing import FloatArray
from srflvm.exceptions import DataError
from srflvm.likelihoods.base import Likelihood, Units

# A row's total says little about one entry where it sums over this many, and a median over this many ratios
# is hardly moved by one of them. Where most counts are small or zero a median of ratios is not informative.
_FEWEST_COLUMNS_FOR_TOTALS = 50
_FEWEST_COLUMNS_FOR_RATIOS = 5
_SMALLEST_MEAN_FOR_RATIOS = 5.0

# Rows whose sizes are compared, and the correlation of their logarithms from which on sizes are estimated.
# Latents that raise some columns and lower others leave it below.
_MOST_ROWS = 2000
_SMALLEST_CORRELATION = 0.8


# Numbers whose squares, and the variances made of them, are safely inside float64. A NumPy number, for a
# plain one would be compared with float32 in float32, where it is infinite.
LARGEST = np.float64(1e140)
SMALLEST_SPREAD = 1e-140


def check_spread(spread: float, *, may_be_small: bool = False) -> None:
    """Refuse entries whose deviations from their columns' centres cannot be squared."""
    if spread > LARGEST:
        raise DataError(
            f"Entries of Y differ from their columns' centres by {spread:.1g}, and squares of numbers beyond "
            f"{LARGEST:.0e} overflow. Rescale Y: divide it by a larger unit."
        )
    if spread < SMALLEST_SPREAD and not may_be_small:
        raise DataError(
            f"Entries of Y differ from their columns' centres by {spread:.1g}, and squares of numbers below "
            f"{SMALLEST_SPREAD:.0e} are lost. Rescale Y: divide it by a smaller unit."
        )


@dataclass(frozen=True)
class Columns:
    """Relate raw columns to compressed ones: raw = mean + scale * (scores @ directions' + rest)."""

    mean: FloatArray
    scale: float
    directions: FloatArray

    def standardise(self, Y: FloatArray) -> FloatArray:
        """Return raw rows centred and scaled, in float64, with all M columns."""
        centred = np.asarray(Y, dtype=np.float64) - self.mean
        centred /= self.scale
        return centred

    def scores(self, Y: FloatArray) -> FloatArray:
        """Return the compressed rows (n, R) of raw rows."""
        return self.standardise(Y) @ self.directions


class GroupRows(NamedTuple):
    """Rows of one group of columns, as channels.

    Rows come first: `y`, `observed` and each of the constants are (n, c), and `offset` is (n, 1). Compiled
    loops hold the transposes of all of them, which `channels_first` returns. `y` is NaN where nothing is
    observed, and zero there in `filled` rows.
    """

    y: Any
    observed: Any
    constants: dict[str, Any]
    offset: Any

    def filled(self) -> GroupRows:
        """Return the rows with harmless numbers where nothing is observed: zeros in y, ones in constants."""
        constants = {name: np.where(self.observed, value, 1.0) for name, value in self.constants.items()}
        return self._replace(y=np.where(self.observed, self.y, 0.0), constants=constants)

    def take_rows(self, index: Any) -> GroupRows:
        """Return some of the rows."""
        constants = {name: value[index] for name, value in self.constants.items()}
        return GroupRows(self.y[index], self.observed[index], constants, self.offset[index])

    def channels_first(self, dtype: Any) -> GroupRows:
        """Return the transposes of all arrays, (c, n) and (1, n), with numbers of the given type."""
        constants = {name: value.T.astype(dtype) for name, value in self.constants.items()}
        return GroupRows(self.y.T.astype(dtype), self.observed.T, constants, self.offset.T.astype(dtype))

    def take_channels(self, index: Any) -> GroupRows:
        """Return some of the channels, of rows in the form that `channels_first` returns."""
        constants = {name: value[index] for name, value in self.constants.items()}
        return GroupRows(self.y[index], self.observed[index], constants, self.offset)

    def arguments(self, learned: dict[str, Any]) -> dict[str, Any]:
        """Return constants and learned parameters, (c,) or (1,), as likelihoods take them.

        The rows are in the form that `channels_first` returns.
        """
        return {**self.constants, **{name: value[:, None] for name, value in learned.items()}}


@dataclass(frozen=True)
class Group:
    """Columns that share a likelihood, and the slice of all channels that they become.

    Working values are divided by `spread`, so that groups weigh alike in distances between rows.
    """

    likelihood: Likelihood
    columns: np.ndarray
    units: Units
    channels: slice
    spread: float = 1.0

    def log_scales(self, Y: FloatArray) -> FloatArray:
        """Sum the log scales of this group's observed entries in each raw row (n, M)."""
        if not self.likelihood.transforms:
            return (~np.isnan(Y[:, self.columns])) @ np.log(self.units.scale)
        return -np.nansum(self.log_slopes(Y), axis=1)

    def log_slopes(self, Y: FloatArray) -> FloatArray:
        """Return the log derivatives of channels at raw columns of raw rows (n, M), one of each column."""
        log_scale = np.log(self.units.scale)
        if not self.likelihood.transforms:
            return np.broadcast_to(-log_scale, (len(Y), len(log_scale)))
        return self.likelihood.log_slopes(self.in_model_units(Y)) - log_scale

    def in_model_units(self, Y: FloatArray) -> FloatArray:
        """Return the columns of this group in raw rows (n, M), in model units."""
        return (np.asarray(Y[:, self.columns], np.float64) - self.units.location) / self.units.scale


@dataclass(frozen=True)
class Layout:
    """Groups of all columns, and how the sizes of rows are estimated.

    `count_means` (M,) are the training means that size factors are measured against. `size_method` is
    "totals" or "ratios" (see `log_sizes`), or None where rows have no sizes.
    """

    groups: tuple[Group, ...]
    count_means: FloatArray
    size_method: str | None = None

    @classmethod
    def from_data(cls, Y: FloatArray, likelihoods: Sequence[tuple[Likelihood, np.ndarray]]) -> Layout:
        """Make the layout of training data (N, M) from likelihoods and the columns of each."""
        groups, start = [], 0
        for likelihood, columns in likelihoods:
            values = np.asarray(Y[:, columns], np.float64)
            resolved = likelihood.resolve(values)
            units = resolved.units(values)
            if not resolved.discrete:
                _check_spread(values - units.location, units)
            y, _ = resolved.channels((values - units.location) / units.scale)
            channels = slice(start, start + y.shape[1])
            groups.append(Group(resolved, np.asarray(columns), units, channels, _spread(resolved.working(y))))
            start = channels.stop
        layout = cls(tuple(groups), np.asarray(np.nanmean(Y, axis=0, dtype=np.float64)))
        return layout._arranged(Y) if any(group.likelihood.has_categories for group in groups) else layout

    def _arranged(self, Y: FloatArray) -> Layout:
        """Return the layout with what columns decide about the channels of columns of other groups."""
        encoded = self.encode(Y)
        working = [g.likelihood.working(rows.y) for g, rows in zip(self.groups, encoded, strict=True)]
        groups = []
        for place, group in enumerate(self.groups):
            others = [np.empty((len(Y), 0)), *working[:place], *working[place + 1 :]]
            values = np.asarray(Y[:, group.columns], np.float64)
            arranged = group.likelihood.arrange(values, np.concatenate(others, axis=1))
            groups.append(replace(group, likelihood=arranged))
        return replace(self, groups=tuple(groups))

    @property
    def n_columns(self) -> int:
        """Return the number of raw columns M."""
        return len(self.count_means)

    @property
    def n_channels(self) -> int:
        """Return the number of channels C."""
        return self.groups[-1].channels.stop

    def encode(self, Y: FloatArray, log_sizes: FloatArray | None = None) -> tuple[GroupRows, ...]:
        """Return raw rows (n, M) as channels, group by group."""
        sizes = np.zeros(len(Y)) if log_sizes is None else log_sizes
        encoded = []
        for group in self.groups:
            y, constants = group.likelihood.channels(group.in_model_units(Y))
            offset = sizes[:, None] if group.likelihood.takes_sizes else np.zeros((len(Y), 1))
            encoded.append(GroupRows(y, ~np.isnan(y), constants, offset))
        return tuple(encoded)

    def working(self, encoded: Sequence[GroupRows]) -> FloatArray:
        """Return all channels (n, C) per unit of size, on a scale for distances; NaN where not observed."""
        parts = []
        for group, rows in zip(self.groups, encoded, strict=True):
            values = group.likelihood.working(rows.y / np.exp(rows.offset))
            parts.append(values / group.spread)
        return np.concatenate(parts, axis=1)

    def log_scales(self, Y: FloatArray) -> FloatArray:
        """Sum the log scales of the observed entries of each raw row.

        The log density of raw data is that of the channels minus this sum.
        """
        return np.sum([group.log_scales(Y) for group in self.groups], axis=0)

    def log_scale_total(self, Y: FloatArray) -> float:
        """Sum the log scales of all observed entries."""
        return float(sum(np.sum(group.log_scales(Y)) for group in self.groups))

    # ---- sizes of rows ----------------------------------------------------------------------------

    @property
    def count_columns(self) -> np.ndarray:
        """Return the indices of the columns whose likelihood takes sizes."""
        columns = [group.columns for group in self.groups if group.likelihood.takes_sizes]
        return np.concatenate(columns) if columns else np.zeros(0, int)

    def log_sizes(self, Y: FloatArray) -> FloatArray | None:
        """Estimate the logarithms of size factors from the observed counts of each row, if rows have them.

        "totals" compares totals; "ratios" takes the median of the counts' ratios to their means, which a few
        outlying counts do not move.
        """
        if self.size_method is None:
            return None
        return _log_sizes(self.size_method, Y[:, self.count_columns], self.count_means[self.count_columns])

    def choose_size_method(self, size_factors: str | None, Y: FloatArray) -> str | None:
        """Return the method asked for, or for "auto" the method that the training rows Y speak for.

        "auto" takes the method that suits the counts if sizes estimated from one half of the columns agree
        with those from the other half, and else none: where columns have nothing in common, an estimated size
        is noise, and makes the counts seem more certain than they are.
        """
        if size_factors != "auto":
            return size_factors
        method = self.suitable_size_method()
        return method if method is not None and self._halves_agree(Y, method) else None

    def suitable_size_method(self) -> str | None:
        """Return "ratios" where counts are large enough for medians, and "totals" where columns are many."""
        means = self.count_means[self.count_columns]
        if len(means) >= _FEWEST_COLUMNS_FOR_RATIOS and np.median(means) >= _SMALLEST_MEAN_FOR_RATIOS:
            return "ratios"
        return "totals" if len(means) >= _FEWEST_COLUMNS_FOR_TOTALS else None

    def _halves_agree(self, Y: FloatArray, method: str) -> bool:
        step = -(-len(Y) // _MOST_ROWS)
        counts, means = Y[::step, self.count_columns], self.count_means[self.count_columns]
        first, second = (_log_sizes(method, counts[:, half::2], means[half::2]) for half in (0, 1))
        spread = np.std(first) * np.std(second)
        agreement = np.mean((first - first.mean()) * (second - second.mean()))
        return bool(agreement > _SMALLEST_CORRELATION * spread)


def _log_sizes(method: str, counts: FloatArray, means: FloatArray) -> FloatArray:
    counts = np.asarray(counts, np.float64)
    observed = ~np.isnan(counts)
    if method == "totals":
        total = np.sum(np.where(observed, counts, 0.0), axis=1)
        # half a count is added: an empty row has a small size, not none
        return np.log((total + 0.5) / (observed @ means + 0.5))
    ratios = np.where(observed, (counts + 0.5) / (means + 0.5), np.nan)
    empty = ~observed.any(axis=1)
    ratios[empty] = 1.0
    return np.log(np.nanmedian(ratios, axis=1))


def _check_spread(deviations: FloatArray, units: Units) -> None:
    """Refuse real numbers that differ by too little; those that do not differ at all are constants."""
    largest = float(np.nanmax(np.abs(deviations)))
    if largest > 0.0:
        check_spread(min(largest, float(np.min(units.scale))))


def _spread(working: FloatArray) -> float:
    """Return the root mean square of the deviations from the column means."""
    observed = ~np.isnan(working)
    number = np.maximum(observed.sum(axis=0), 1)
    values = np.where(observed, working, 0.0)
    deviations = np.where(observed, values - values.sum(axis=0) / number, 0.0)
    square = np.sum(deviations**2) / max(observed.sum(), 1)
    return float(np.sqrt(square)) if square > 0.0 else 1.0
