"""Multiple imputation: results of an analysis of each filled table as one, and a score of draws."""

from __future__ import annotations

import numbers
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import stdtrit

from srflvm._typing import FloatArray
from srflvm.exceptions import DataError, check_positive


@dataclass(frozen=True)
class Pooled:
    """Hold what the analyses of several filled tables say together.

    Attributes are numbers if there is one estimate per table without a name, arrays (k,) if there are k, and
    pandas Series if these have labels. `print` shows them as a table.

    Attributes
    ----------
    estimate
        Mean of the estimates.
    std_error
        Square root of the total variance, within + (1 + 1 / n_draws) between.
    within
        Mean of the variances; (k, k) if covariances were given.
    between
        Variance of the estimates between draws; (k, k) if covariances were given.
    degrees_of_freedom
        Of Student's t, infinite where all estimates are the same and `n_complete` is not given.
    missing_information
        Fraction of the information about the estimate that is lost with the missing entries, 0 to 1.
    n_draws : int
        How many tables were analysed.
    level : float
        Probability of the intervals, unless `interval` is given another one.
    """

    estimate: Any
    std_error: Any
    within: Any
    between: Any
    degrees_of_freedom: Any
    missing_information: Any
    n_draws: int
    level: float = 0.95

    def interval(self, level: float | None = None) -> tuple[Any, Any]:
        """Return the lower and the upper end of intervals by Student's t.

        Parameters
        ----------
        level : float, default=None
            Probability of the intervals, between 0 and 1; None means that given to `pool`, 0.95 by default.
        """
        chosen = self.level if level is None else _checked_level(level)
        half = stdtrit(self.degrees_of_freedom, 0.5 + 0.5 * chosen) * self.std_error
        return self.estimate - half, self.estimate + half

    def __str__(self) -> str:
        parts = {
            "estimate": self.estimate,
            "std error": self.std_error,
            **dict(zip(("low", "high"), self.interval(), strict=True)),
            "degrees of freedom": self.degrees_of_freedom,
            "missing information": self.missing_information,
        }
        columns = [[name, *(f"{x:.4g}" for x in np.atleast_1d(values))] for name, values in parts.items()]
        lines = _aligned(["", *self._names()], columns)
        return "\n".join([f"{self.n_draws} draws, intervals of {100.0 * self.level:g} %", *lines])

    def _names(self) -> list[str]:
        """Return a name for each estimate: its label, its place, or nothing if there is only one."""
        if _has_labels(self.estimate):
            return [str(label) for label in self.estimate.index]
        return [str(place) for place in range(len(self.estimate))] if np.ndim(self.estimate) else [""]


def pool(
    estimates: Iterable[Any],
    variances: Iterable[Any] | None = None,
    *,
    function: Callable[[Any], tuple[Any, Any]] | None = None,
    level: float = 0.95,
    n_complete: float | None = None,
) -> Pooled:
    """Combine the results of the same analysis of several filled tables by Rubin's rules.

    With W the mean of the m variances, B the variance of the m estimates and T = W + (1 + 1/m) B, the mean
    of the estimates has the variance T, and intervals are those of Student's t with (m - 1) / λ² degrees of
    freedom, λ = (1 + 1/m) B / T (Rubin 1987). That takes the analysis of a complete table to have infinitely
    many. If it has ν, as a regression with ν rows more than coefficients, Barnard and Rubin (1999) give
    1 / (λ² / (m - 1) + 1 / ν'), ν' = (1 - λ) ν (ν + 1) / (ν + 3), which never exceeds ν.

    The fraction of missing information is 1 - (1 - λ) (d + 1) / (d + 3) with d = (m - 1) / λ².

    Parameters
    ----------
    estimates : array-like of shape (m,) or (m, k), sequence of m pandas Series, or sequence of m tables
        One estimate, or k of them, for each filled table. Series are matched by their labels. With
        `function`, the filled tables themselves, such as `SRFLVMImputer.draw` returns.
    variances : array-like of the same shape, or (m, k, k), default=None
        Squared standard errors of the estimates, or their covariances.
    function : callable, default=None
        The analysis: it takes a table and returns a pair, the estimate and its variance.
    level : float, default=0.95
        Probability of the intervals.
    n_complete : float, default=None
        Degrees of freedom that the analysis of a complete table has; None means infinitely many.

    Returns
    -------
    Pooled

    Examples
    --------
    >>> from srflvm.imputation import pool
    >>> pooled = pool([10.0, 12.0, 14.0], [1.0, 2.0, 3.0])
    >>> float(pooled.estimate), round(float(pooled.std_error), 3), round(float(pooled.degrees_of_freedom), 3)
    (12.0, 2.708, 3.781)
    """
    level = _checked_level(level)
    if function is not None:
        if variances is not None:
            raise ValueError("Give variances or function=, not both: function returns the variances.")
        estimates, variances = _analysed(estimates, function)
    elif variances is None:
        raise ValueError("variances is missing: give squared standard errors, or tables and function=.")
    parts = {"estimates": _draws_of("estimates", estimates), "variances": _draws_of("variances", variances)}
    labels = next((part.index for draws in parts.values() for part in draws if _has_labels(part)), None)
    centre, spread = (_stacked(name, draws, labels) for name, draws in parts.items())
    _check(centre, spread, labels)
    if n_complete is not None:
        n_complete = check_positive("n_complete", n_complete)
    return _combined(centre, spread, labels, level, n_complete)


def energy_score(draws: Any, truth: Any, mask: Any) -> float:
    """Score draws of hidden entries against the true ones; lower is better.

    The score of a row is mean |X - y| - mean |X - X'| / 2, with y its hidden entries, X and X' two different
    draws of them, and the Euclidean distance. Its expectation does not depend on the number of draws, and is
    lowest for draws from the distribution of y. Standardise columns first, so that units do not weight them.

    Parameters
    ----------
    draws : array-like of shape (m, n, M)
        Filled tables.
    truth : array-like of shape (n, M)
    mask : array-like of bool of shape (n, M)
        True where an entry was hidden. Other entries are not looked at.

    Returns
    -------
    float
        Mean over the rows that have hidden entries.
    """
    samples, true, hidden = np.asarray(draws, np.float64), np.asarray(truth, np.float64), np.asarray(mask)
    _check_scored(samples, true, hidden)
    rows = hidden.any(axis=1)
    errors = np.where(hidden[rows], samples[:, rows] - true[rows], 0.0)
    m = len(errors)
    apart = sum(_lengths(errors[lag:] - errors[:-lag]).sum() for lag in range(1, m))
    n_pairs = 0.5 * m * (m - 1) * int(rows.sum())
    return float(_lengths(errors).mean() - 0.5 * apart / n_pairs)


# ---- Rubin's rules ---------------------------------------------------------------------------------


def _combined(
    estimates: FloatArray, variances: FloatArray, labels: Any, level: float, n_complete: float | None
) -> Pooled:
    """Return the pooled result of estimates (m,) or (m, k) and variances (m,), (m, k) or (m, k, k)."""
    m, has_covariances = len(estimates), variances.ndim == 3
    # from the first draw, so that the variance of equal numbers is 0 and not a rounding error
    steps = estimates - estimates[0]
    estimate = estimates[0] + steps.mean(axis=0)
    steps = steps - steps.mean(axis=0)
    within = variances.mean(axis=0)
    between = (steps.T @ steps if has_covariances else np.sum(steps**2, axis=0)) / (m - 1)
    inner, outer = (np.diag(part) if has_covariances else part for part in (within, between))
    total = inner + (1.0 + 1.0 / m) * outer
    share = _ratio((1.0 + 1.0 / m) * outer, total, otherwise=0.0)  # λ
    certain = _ratio(inner, total, otherwise=1.0)  # 1 - λ
    with np.errstate(divide="ignore", over="ignore"):
        classical = np.divide(m - 1, np.square(share))
    degrees = classical
    if n_complete is not None:
        _refuse_no_variance(certain, labels)
        observed = certain * n_complete * (n_complete + 1.0) / (n_complete + 3.0)
        degrees = observed / (1.0 + observed / classical)
    lost = share + certain * 2.0 / (classical + 3.0)
    results = (estimate, np.sqrt(total), within, between, degrees, lost)
    return Pooled(*(_with_labels(part, labels) for part in results), n_draws=m, level=level)


def _ratio(part: FloatArray, whole: FloatArray, *, otherwise: float) -> FloatArray:
    """Return a part over the whole, and another number where the whole is 0."""
    return np.divide(part, whole, out=np.full_like(whole, otherwise), where=whole > 0.0)


def _with_labels(values: Any, labels: Any) -> Any:
    """Return a float, an array, or a Series or frame with labels."""
    if np.ndim(values) == 0:
        return float(values)
    if labels is None:
        return values
    import pandas as pd

    return pd.Series(values, labels) if values.ndim == 1 else pd.DataFrame(values, labels, labels)


def _aligned(names: list[str], columns: list[list[str]]) -> list[str]:
    """Return the lines of a table with names at the left of its rows, if there are any."""
    heads = [name.ljust(max(map(len, names)) + 2) for name in names] if any(names) else names
    widths = [max(map(len, column)) for column in columns]
    rows = ["  ".join(map(str.rjust, row, widths)) for row in zip(*columns, strict=True)]
    return [head + row for head, row in zip(heads, rows, strict=True)]


# ---- reading ---------------------------------------------------------------------------------------


def _analysed(tables: Iterable[Any], function: Callable[[Any], Any]) -> tuple[list[Any], list[Any]]:
    """Return the estimates and the variances that the analysis finds in each table."""
    if hasattr(tables, "columns"):
        raise ValueError("function= needs a sequence of filled tables, and this is one frame.")
    pairs = [function(table) for table in tables]
    for draw, pair in enumerate(pairs):
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise ValueError(
                f"function returned {type(pair).__name__} for table {draw}; it must return a pair, the "
                "estimate and its variance."
            )
    return [pair[0] for pair in pairs], [pair[1] for pair in pairs]


def _draws_of(name: str, draws: Any) -> list[Any]:
    """Return what belongs to each draw."""
    if _has_labels(draws) and draws.ndim == 2:
        return [draws.iloc[draw] for draw in range(len(draws))]
    try:
        return list(draws)
    except TypeError:
        raise ValueError(f"{name} must be a sequence with a part for each draw, not {draws!r}.") from None


def _has_labels(part: Any) -> bool:
    """Tell whether something is a pandas Series or DataFrame."""
    return hasattr(part, "index") and hasattr(part, "reindex")


def _stacked(name: str, parts: list[Any], labels: Any) -> FloatArray:
    """Return the numbers of all draws (m, ...), those with labels in the order of `labels`."""
    arrays = [_numbers(f"{name} of draw {draw}", part, labels) for draw, part in enumerate(parts)]
    for draw, array in enumerate(arrays):
        if array.shape != arrays[0].shape:
            raise ValueError(
                f"{name} of draw {draw} have shape {array.shape}, but those of draw 0 have "
                f"{arrays[0].shape}. Use the same analysis for every table."
            )
    return np.array(arrays)


def _numbers(place: str, part: Any, labels: Any) -> FloatArray:
    if _has_labels(part):
        for axis in range(part.ndim):
            part = _in_order(place, part, labels, axis)
    try:
        return np.asarray(part, np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"The {place} are not numbers: {error}.") from error


def _in_order(place: str, part: Any, labels: Any, axis: int) -> Any:
    """Return a Series or frame with an axis in the order of `labels`; refuse other labels."""
    found = part.axes[axis]
    if found.equals(labels):
        return part
    if labels.is_unique and len(found) == len(labels) and set(found) == set(labels):
        return part.reindex(labels, axis=axis)
    raise ValueError(
        f"The {place} have the labels {list(found)}, but the first draw has {list(labels)}. Use the same "
        "analysis for every table, with the same levels of categories."
    )


# ---- checks ----------------------------------------------------------------------------------------


def _checked_level(level: Any) -> float:
    is_number = isinstance(level, numbers.Real) and not isinstance(level, bool)
    if not is_number or not 0.0 < float(level) < 1.0:
        raise ValueError(f"level={level!r} must be a number between 0 and 1, such as 0.95.")
    return float(level)


def _check(estimates: FloatArray, variances: FloatArray, labels: Any) -> None:
    """Refuse what Rubin's rules cannot combine."""
    m = len(estimates)
    if m < 2:
        raise ValueError(
            f"There are estimates of {m} draws. Give at least two, better twenty: differences between draws "
            "show what missing entries leave open."
        )
    if estimates.ndim > 2 or estimates.size == 0:
        raise ValueError(f"estimates have shape {estimates.shape}; it must be (m,) or (m, k).")
    matrices = (*estimates.shape, *estimates.shape[1:]) if estimates.ndim == 2 else estimates.shape
    if variances.shape not in (estimates.shape, matrices):
        expected = " or ".join(str(shape) for shape in dict.fromkeys([estimates.shape, matrices]))
        raise ValueError(
            f"variances have shape {variances.shape}, but estimates have {estimates.shape}; variances must "
            f"have {expected}."
        )
    _refuse(~np.isfinite(estimates), "estimates", estimates, "not finite", labels)
    _refuse(~np.isfinite(variances), "variances", variances, "not finite", labels)
    only = variances if variances.ndim < 3 else np.diagonal(variances, axis1=1, axis2=2)
    _refuse(only < 0.0, "variances", only, "negative", labels)


def _refuse(bad: np.ndarray, name: str, values: FloatArray, what: str, labels: Any) -> None:
    """Refuse numbers, and say where the first of them is."""
    places = np.argwhere(bad)
    if len(places):
        draw, *rest = places[0].tolist()
        shown = ", ".join(repr(labels[place]) if labels is not None else str(place) for place in rest)
        where = f"of draw {draw}" + (f" at {shown}" if shown else "")
        raise DataError(
            f"The {name} {where} are {what}: {values[tuple(places[0])]:g} ({len(places)} of {values.size}). "
            "Look at the analysis of that table."
        )


def _refuse_no_variance(certain: FloatArray, labels: Any) -> None:
    """Refuse complete-data degrees of freedom of estimates that have no variance in a complete table."""
    places = np.flatnonzero(certain == 0.0).tolist()
    if places:
        name = repr(labels[places[0]]) if labels is not None else str(places[0])
        raise DataError(
            f"The variances of estimate {name} are 0 in all draws, so that n_complete has no meaning for it. "
            "Leave n_complete out."
        )


def _check_scored(draws: FloatArray, truth: FloatArray, mask: np.ndarray) -> None:
    """Refuse what the energy score is not defined for."""
    if draws.ndim != 3 or len(draws) < 2:
        raise ValueError(f"draws have shape {draws.shape}; it must be (m, n, M) with at least two draws.")
    for name, array in (("truth", truth), ("mask", mask)):
        if array.shape != draws.shape[1:]:
            raise ValueError(f"{name} has shape {array.shape}, but each draw has {draws.shape[1:]}.")
    if mask.dtype != np.bool_:
        raise ValueError(f"mask has the type {mask.dtype}; it must be bool, True where an entry was hidden.")
    if not mask.any():
        raise ValueError("mask is False everywhere: no entry was hidden, so there is nothing to score.")
    for name, bad in (("truth", ~np.isfinite(truth)), ("draws", ~np.isfinite(draws).all(axis=0))):
        places = np.argwhere(bad & mask)
        if len(places):
            row, column = places[0].tolist()
            raise DataError(
                f"The {name} have entries that are not finite where entries were hidden, {len(places)} of "
                f"them, the first in row {row}, column {column}."
            )


def _lengths(vectors: FloatArray) -> FloatArray:
    """Return Euclidean lengths along the last axis."""
    return np.sqrt(np.sum(np.square(vectors), axis=-1))
