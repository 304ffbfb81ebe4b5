"""Raw columns and the channels of the linear layer: which likelihood has which columns, in what units.

A `Layout` is settled when a model is fitted and turns raw rows, of the training data or new, into channels:
the columns of f. Most columns are one channel; a categorical one is several. Offsets are known terms of f,
the logarithms of size factors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from srflvm._types import FloatArray
from srflvm.likelihoods import Likelihood, Units
from srflvm.number_range import refuse_small_spread


@dataclass(frozen=True)
class Group:
    """Columns that share a likelihood, and where their channels are. Working values are divided by `spread`,
    so that groups weigh alike in distances between rows."""

    likelihood: Likelihood
    columns: np.ndarray
    units: Units
    channels: slice
    spread: float = 1.0


@dataclass(frozen=True)
class Encoded:
    """Rows of one group as channels: y (n, c), NaN where not observed, constants and offsets (n, 1)."""

    y: FloatArray
    constants: dict[str, FloatArray]
    offset: FloatArray

    @property
    def observed(self) -> np.ndarray:
        return ~np.isnan(self.y)


@dataclass(frozen=True)
class Layout:
    """All groups; `count_means` (M,) are the training means that size factors are measured against, and
    `size_method` is how these are estimated, if at all."""

    groups: tuple[Group, ...]
    count_means: FloatArray
    size_method: str | None = None

    @property
    def n_columns(self) -> int:
        return len(self.count_means)

    @property
    def n_channels(self) -> int:
        return self.groups[-1].channels.stop

    def encode(self, Y: FloatArray, log_sizes: FloatArray | None = None) -> tuple[Encoded, ...]:
        """Raw rows (n, M) to channels, group by group."""
        sizes = np.zeros(len(Y)) if log_sizes is None else log_sizes
        encoded = []
        for group in self.groups:
            inside = (np.asarray(Y[:, group.columns], np.float64) - group.units.location) / group.units.scale
            y, constants = group.likelihood.channels(inside)
            offset = sizes[:, None] if group.likelihood.takes_sizes else np.zeros((len(Y), 1))
            encoded.append(Encoded(y, constants, offset))
        return tuple(encoded)

    def working(self, encoded: Sequence[Encoded]) -> FloatArray:
        """All channels (n, C) on a scale for distances, per unit of size; NaN where not observed."""
        parts = []
        for group, rows in zip(self.groups, encoded, strict=True):
            values = group.likelihood.working(rows.y / np.exp(rows.offset))
            parts.append(values / group.spread)
        return np.concatenate(parts, axis=1)

    @property
    def count_columns(self) -> np.ndarray:
        """The columns whose likelihood takes sizes."""
        columns = [group.columns for group in self.groups if group.likelihood.takes_sizes]
        return np.concatenate(columns) if columns else np.zeros(0, int)

    def log_sizes(self, Y: FloatArray) -> FloatArray | None:
        """Estimate the logarithms of size factors from the observed counts of each row, if rows have them."""
        if self.size_method is None:
            return None
        return sizes_by(self.size_method, Y[:, self.count_columns], self.count_means[self.count_columns])

    def log_scale_total(self, Y: FloatArray) -> float:
        """Sum of log scale over the observed entries: log p of raw data is that of the channels minus
        this."""
        return float(sum(np.sum(self.row_log_scales(Y[:, g.columns], g)) for g in self.groups))

    @staticmethod
    def row_log_scales(values: FloatArray, group: Group) -> FloatArray:
        """Sum of log scale over the observed entries of each row of a group's columns."""
        return (~np.isnan(values)) @ np.log(group.units.scale)


def lay_out(Y: FloatArray, likelihoods: Sequence[tuple[Likelihood, np.ndarray]]) -> Layout:
    """Settle the layout for training data (N, M) from likelihoods and the columns of each."""
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
    return Layout(tuple(groups), np.asarray(np.nanmean(Y, axis=0, dtype=np.float64)))


def _check_spread(deviations: FloatArray, units: Units) -> None:
    """Refuse real numbers that differ by too little; those that do not differ at all are constants."""
    largest = float(np.nanmax(np.abs(deviations)))
    if largest > 0.0:
        refuse_small_spread(min(largest, float(np.min(units.scale))))


def sizes_by(method: str, counts: FloatArray, means: FloatArray) -> FloatArray:
    """Estimate the logarithms of the rows' sizes from counts (n, c), relative to the columns' means.

    "totals" compares totals; "ratios" takes the median of the counts' ratios to their means, which a few
    outlying counts do not move.
    """
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


def _spread(working: FloatArray) -> float:
    """Root mean square of the deviations from the column means."""
    observed = ~np.isnan(working)
    number = np.maximum(observed.sum(axis=0), 1)
    values = np.where(observed, working, 0.0)
    deviations = np.where(observed, values - values.sum(axis=0) / number, 0.0)
    square = np.sum(deviations**2) / max(observed.sum(), 1)
    return float(np.sqrt(square)) if square > 0.0 else 1.0
