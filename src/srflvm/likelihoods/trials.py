"""Trials with log-odds f: one (binary data), several (binomial), or one after the other (categories).

A trial succeeds with probability 1 / (1 + e^-f). Categories and vectors of counts are trials that break a
stick: of C categories, k < C - 1 is taken with probability sigmoid(f_k) if none before it was, and the last
takes what is left. So a categorical column becomes C - 1 Bernoulli channels (is it k, given that it is not
less than k?), and a vector of m counts m - 1 binomial channels (how many of those left are k?). At given
latents the f of different channels are independent, so that products of sigmoids have products as
expectations.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.special import gammaln
from scipy.special import expit, logit

from srflvm._typing import FloatArray
from srflvm.exceptions import DataError
from srflvm.likelihoods.base import (
    ColumnMoments,
    Expected,
    Likelihood,
    Moments,
    Parameters,
    Start,
    Summary,
    check_counts,
    refuse,
)
from srflvm.likelihoods.logistic import Kernel
from srflvm.numerics.polya_gamma import PolyaGamma


@dataclass(frozen=True)
class Bernoulli(Likelihood):
    """Binary y in {0, 1} with log-odds f; nothing to learn."""

    name: ClassVar[str] = "bernoulli"
    _discrete: ClassVar[bool] = True
    has_polya_gamma: ClassVar[bool] = True
    working_gain: ClassVar[float] = 4.0

    def level_codes(self, n_columns: int) -> list[FloatArray]:
        return [np.arange(2.0)] * n_columns

    def check(self, Y: FloatArray, columns: Sequence[str]) -> None:
        refuse(
            ~np.isnan(Y) & (Y != 0.0) & (Y != 1.0),
            Y,
            columns,
            "a binary entry is 0 or 1",
            "Recode the column, use NaN for what was not observed, or choose likelihood='categorical' or "
            "'ordinal' for more than two values.",
        )

    def start(self, Y: FloatArray, constants: Parameters) -> Start:
        number, mean, _ = Summary.of(Y)
        # half an entry of each kind is added, so that a constant column has finite log-odds
        return Start(logit((number * mean + 0.5) / (number + 1.0)), {})

    def log_prob(self, y: Array, f: Array, parameters: Parameters) -> Array:
        # y f - log(1 + e^f) = -log(1 + e^((1 - 2 y) f)) for y in {0, 1}, without cancellation
        return -jax.nn.softplus((1.0 - 2.0 * y) * f)

    def pointwise(self, y: Array, f: Array, parameters: Parameters) -> Expected:
        # one exponential e^-|g| of the log-odds g against y serves all three; that is most of the cost
        sign = 1.0 - 2.0 * y
        against = sign * f
        small = jnp.exp(-jnp.abs(against))
        inverse = 1.0 / (1.0 + small)
        value = -jnp.maximum(against, 0.0) - jnp.log1p(small)
        return Expected(value, -sign * inverse * jnp.where(against > 0.0, 1.0, small), small * inverse**2)

    def moments(self, f: Array, parameters: Parameters) -> Moments:
        mean = jax.nn.sigmoid(f)
        return Moments(mean, mean * jax.nn.sigmoid(-f))

    def polya_gamma(self, y: Array, parameters: Parameters) -> PolyaGamma:
        # log(1 + e^f) = f / 2 + log(2 cosh(f / 2))
        return PolyaGamma(jnp.ones_like(y), y - 0.5, jnp.zeros_like(y), jnp.zeros_like(y))

    def sample(self, f: FloatArray, parameters: Parameters, rng: np.random.RandomState) -> FloatArray:
        return (rng.uniform(size=f.shape) < expit(f)).astype(float)


@dataclass(frozen=True)
class _BinomialChannels(Likelihood):
    """Mathematics of binomial channels, whose constant `n_trials` may differ from entry to entry.

    An entry with zero trials has no information: its log probability and all derivatives are zero.
    """

    _discrete: ClassVar[bool] = True
    has_polya_gamma: ClassVar[bool] = True

    def start(self, Y: FloatArray, constants: Parameters) -> Start:
        seen = ~np.isnan(Y)
        successes = np.where(seen, Y, 0.0).sum(axis=0)
        trials = np.where(seen, constants["n_trials"], 0.0).sum(axis=0)
        # half a success and half a failure are added, so that a constant column has finite log-odds
        return Start(logit((successes + 0.5) / (trials + 1.0)), {})

    def log_prob(self, y: Array, f: Array, parameters: Parameters) -> Array:
        return self.pointwise(y, f, parameters).value

    def pointwise(self, y: Array, f: Array, parameters: Parameters) -> Expected:
        return Kernel.binomial(y, parameters["n_trials"] - y).pointwise(f)

    def expectations(self, y: Array, mean: Array, variance: Array, parameters: Parameters) -> Expected:
        return Kernel.binomial(y, parameters["n_trials"] - y).expectations(mean, variance)

    def quick_expectations(
        self, y: Array, mean: Array, variance: Array, parameters: Parameters, n_nodes: int
    ) -> Expected:
        return Kernel.binomial(y, parameters["n_trials"] - y).expectations(mean, variance, n_nodes)

    def moments(self, f: Array, parameters: Parameters) -> Moments:
        mean = parameters["n_trials"] * jax.nn.sigmoid(f)
        return Moments(mean, mean * jax.nn.sigmoid(-f))

    def polya_gamma(self, y: Array, parameters: Parameters) -> PolyaGamma:
        # log(1 + e^f) = f / 2 + log(2 cosh(f / 2)). This form cancels: use float64 for many trials
        n = jnp.broadcast_to(parameters["n_trials"], y.shape)
        constant = gammaln(n + 1.0) - gammaln(y + 1.0) - gammaln(n - y + 1.0)
        return PolyaGamma(n, y - 0.5 * n, jnp.zeros_like(y), constant)


@dataclass(frozen=True)
class Binomial(_BinomialChannels):
    """Numbers y of successes among `n_trials` with log-odds f; nothing to learn.

    Parameters
    ----------
    n_trials : int or tuple of int
        Number of trials behind every entry, or one number for each column.
    """

    name: ClassVar[str] = "binomial"
    n_trials: int | tuple[int, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "n_trials", _whole_numbers("n_trials", self.n_trials))
        if min(np.atleast_1d(self.n_trials), default=0) < 1:
            raise ValueError(f"n_trials={self.n_trials!r}: at least one trial is needed in each column.")

    @property
    def has_numbers_by_column(self) -> bool:
        return isinstance(self.n_trials, tuple)

    def check(self, Y: FloatArray, columns: Sequence[str]) -> None:
        check_counts(Y, columns, "binomial")
        refuse(
            self._trials(Y.shape[1]) < Y,
            Y,
            columns,
            "there are more successes than trials",
            f"Give Binomial(n_trials=...) the numbers of trials of all columns, not {self.n_trials!r}.",
        )

    def channels(self, Y: FloatArray) -> tuple[FloatArray, dict[str, FloatArray]]:
        return Y, {"n_trials": np.broadcast_to(self._trials(Y.shape[1]), Y.shape)}

    def working(self, Y: FloatArray) -> FloatArray:
        return Y / self._trials(Y.shape[1])

    def sample(self, f: FloatArray, parameters: Parameters, rng: np.random.RandomState) -> FloatArray:
        return rng.binomial(np.asarray(parameters["n_trials"]).astype(int), expit(f)).astype(float)

    def _trials(self, n_columns: int) -> FloatArray:
        trials = np.atleast_1d(np.asarray(self.n_trials, float))
        if trials.size not in (1, n_columns):
            raise ValueError(f"n_trials={self.n_trials!r} does not fit {n_columns} columns.")
        return np.broadcast_to(trials, (n_columns,))


@dataclass(frozen=True)
class Categorical(Bernoulli):
    """Codes 0, 1, ..., C - 1 without an order; nothing to learn.

    The mean of a column is its most probable code, and its variance p (1 - p) with p the probability of
    that code: the variance of being right. `SRFLVM.category_probabilities` has the whole distribution.

    Parameters
    ----------
    n_categories : tuple of int, or None
        Number of categories of each column; from the largest training entries if None.
    stick_order : tuple of int, or None
        The codes of each column in the order in which its stick is broken, those of the first column first.
        None lets the training data decide: a code that the other columns tell best from the rest comes first.
        The order is part of the model, since f of a channel tells one code from those behind it.
    """

    name: ClassVar[str] = "categorical"
    has_levels: ClassVar[bool] = True
    has_categories: ClassVar[bool] = True
    n_categories: tuple[int, ...] | None = None
    stick_order: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        if self.n_categories is None:
            if self.stick_order is not None:
                raise ValueError("stick_order needs n_categories.")
            return
        object.__setattr__(
            self, "n_categories", _whole_numbers("n_categories", np.atleast_1d(self.n_categories))
        )
        if min(self.n_categories, default=0) < 2:
            raise ValueError(f"n_categories={self.n_categories!r}: each column needs at least two.")
        if self.stick_order is None:
            return
        object.__setattr__(
            self, "stick_order", _whole_numbers("stick_order", np.atleast_1d(self.stick_order))
        )
        fits = len(self.stick_order) == sum(self.n_categories)
        if not fits or any(sorted(order) != list(range(len(order))) for order in self._orders):
            raise ValueError(
                f"stick_order={self.stick_order!r} must have each code of each column once, for "
                f"n_categories={self.n_categories!r}."
            )

    @property
    def has_numbers_by_column(self) -> bool:
        return self.n_categories is not None

    @property
    def of_channels(self) -> Categorical:
        return replace(self, n_categories=None, stick_order=None)

    def check(self, Y: FloatArray, columns: Sequence[str]) -> None:
        check_counts(Y, columns, "categorical")
        if self.n_categories is not None:
            refuse(
                np.asarray(self._categories(Y.shape[1])) <= Y,
                Y,
                columns,
                "the codes of a column are 0 to its number of categories less one",
                f"Recode it, or give larger n_categories than {self.n_categories}.",
            )

    def level_codes(self, n_columns: int) -> list[FloatArray]:
        return [np.arange(float(number)) for number in self._categories(n_columns)]

    def resolve(self, Y: FloatArray) -> Categorical:
        if self.n_categories is not None:
            return self
        largest = np.nanmax(Y, axis=0, initial=1.0)
        return replace(self, n_categories=tuple(1 + int(code) for code in largest))

    def arrange(self, Y: FloatArray, others: FloatArray) -> Categorical:
        if self.stick_order is not None:
            return self
        own = self._split(self.working(self.channels(Y)[0]))
        order: list[int] = []
        for j, n_categories in enumerate(self._categories(Y.shape[1])):
            inputs = np.concatenate([others, *own[:j], *own[j + 1 :]], axis=1)
            order += _separable_first(Y[:, j], inputs, n_categories)
        return replace(self, stick_order=tuple(order))

    def channels(self, Y: FloatArray) -> tuple[FloatArray, dict[str, FloatArray]]:
        self._categories(Y.shape[1])
        columns = []
        for y, order in zip(Y.T, self._orders, strict=True):
            missing = np.isnan(y)
            place = np.where(missing, np.nan, np.argsort(order)[np.where(missing, 0, y).astype(int)])
            columns += [
                np.where(place >= k, (place == k).astype(float), np.nan) for k in range(len(order) - 1)
            ]
        return np.stack(columns, axis=1), {}

    def working(self, Y: FloatArray) -> FloatArray:
        """Return indicators of the categories: a stick that was not reached was not taken."""
        groups = [np.where(np.isnan(part) & ~np.isnan(part[:, :1]), 0.0, part) for part in self._split(Y)]
        return np.concatenate(groups, axis=1)

    def probabilities(self, means: FloatArray) -> list[FloatArray]:
        return [
            _stick_shares(part).mean(axis=0)[:, np.argsort(order)]
            for part, order in zip(self._split(means), self._orders, strict=True)
        ]

    def columns_from_moments(
        self, means: FloatArray, variances: FloatArray, constants: Parameters
    ) -> ColumnMoments:
        """Return the most probable codes, and the variance of being right by cause.

        With the share pi of that code given latent and function, p (1 - p) for p = E pi is the sum of
        Var E(pi | latent), E Var(pi | latent) and E pi (1 - pi).
        """
        columns = []
        for mean, variance, order in zip(
            self._split(means), self._split(variances), self._orders, strict=True
        ):
            first, second = (part[..., np.argsort(order)] for part in _share_moments(mean, variance))
            code = first.mean(axis=0).argmax(axis=1)
            at = np.broadcast_to(code[None, :, None], (len(first), len(code), 1))
            first, second = (np.take_along_axis(part, at, axis=2)[:, :, 0] for part in (first, second))
            columns.append((code.astype(float), *_variances_by_cause(first, second)))
        return ColumnMoments(*(np.stack(parts, axis=1) for parts in zip(*columns, strict=True)))

    def columns_from_draws(self, draws: FloatArray, constants: Parameters) -> FloatArray:
        # the code is that of the first stick taken, or the last in the order if none was
        ended = [np.pad(part == 1.0, ((0, 0), (0, 1)), constant_values=True) for part in self._split(draws)]
        codes = [order[part.argmax(axis=1)] for part, order in zip(ended, self._orders, strict=True)]
        return np.stack(codes, axis=1).astype(float)

    @property
    def _orders(self) -> list[np.ndarray]:
        """Return the codes of each column in the order of its sticks."""
        sizes = self._categories(None)
        if self.stick_order is None:
            return [np.arange(size) for size in sizes]
        return np.split(np.asarray(self.stick_order), np.cumsum(sizes)[:-1])

    def _split(self, channels: FloatArray) -> list[FloatArray]:
        ends = np.cumsum([n - 1 for n in self._categories(None)])
        return np.split(channels, ends[:-1], axis=-1)

    def _categories(self, n_columns: int | None) -> tuple[int, ...]:
        if self.n_categories is None:
            raise ValueError("n_categories is not known yet; call resolve with the training columns first.")
        if n_columns not in (None, len(self.n_categories)):
            raise ValueError(f"n_categories={self.n_categories} does not fit {n_columns} columns.")
        return self.n_categories


@dataclass(frozen=True)
class Multinomial(_BinomialChannels):
    """Vector of counts with a given total, of which each column is one count; nothing to learn.

    Channel k needs the total of columns k, k + 1, ..., so a missing entry leaves later channels usable.
    `moments` of a channel are those of its share of the stick, which has no variance given f. Columns have
    the moments of counts given the row's total, the constant `total`. Where that is not known it is one, and
    the moments are those of a single count: proportions.
    """

    name: ClassVar[str] = "multinomial"
    columns_are_one_vector: ClassVar[bool] = True

    def check(self, Y: FloatArray, columns: Sequence[str]) -> None:
        if Y.shape[1] < 2:
            raise DataError(
                "A vector of counts needs at least two columns; use likelihood='poisson' for one."
            )
        check_counts(Y, columns, "multinomial")

    def channels(self, Y: FloatArray) -> tuple[FloatArray, dict[str, FloatArray]]:
        left = np.cumsum(Y[:, ::-1], axis=1)[:, ::-1]
        trials = np.nan_to_num(left[:, :-1])
        total = np.where(np.isnan(left[:, :1]), 1.0, left[:, :1])
        constants = {"n_trials": trials, "total": np.broadcast_to(total, trials.shape)}
        return np.where(trials > 0.0, Y[:, :-1], np.nan), constants

    def working(self, Y: FloatArray) -> FloatArray:
        """Return log(1 + count).

        Where the first channel is known, others are missing only for want of trials.
        """
        return np.log1p(np.where(np.isnan(Y) & ~np.isnan(Y[:, :1]), 0.0, Y))

    def moments(self, f: Array, parameters: Parameters) -> Moments:
        share = jax.nn.sigmoid(f)
        return Moments(share, jnp.zeros_like(share))

    def sample(self, f: FloatArray, parameters: Parameters, rng: np.random.RandomState) -> FloatArray:
        left = np.broadcast_to(parameters["total"], f.shape)[:, 0].astype(int)
        draws = np.empty(f.shape)
        for k in range(f.shape[1]):
            draws[:, k] = rng.binomial(left, expit(f[:, k]))
            left = left - draws[:, k].astype(int)
        return draws

    def columns_from_moments(
        self, means: FloatArray, variances: FloatArray, constants: Parameters
    ) -> ColumnMoments:
        """Return the means n E pi and variances n E pi (1 - pi) + n^2 Var pi for shares pi and total n."""
        first, second = _share_moments(means, variances)
        latent, weight, noise = _variances_by_cause(first, second)
        n = np.asarray(constants["total"])[:, :1]
        return ColumnMoments(n * first.mean(axis=0), n**2 * latent, n**2 * weight, n * noise)

    def columns_from_draws(self, draws: FloatArray, constants: Parameters) -> FloatArray:
        rest = np.asarray(constants["total"])[:, :1] - draws.sum(axis=1, keepdims=True)
        return np.concatenate([draws, rest], axis=1)


# Rows and columns by which categories are compared, and the ridge of the regressions that compare them.
_COMPARED_ROWS = 2000
_COMPARED_COLUMNS = 256
_COMPARED_RIDGE = 5.0


def _separable_first(codes: FloatArray, others: FloatArray, n_categories: int) -> list[int]:
    """Return the codes of a column, NaN where missing, in the order in which a stick is best broken.

    The function of a channel is nearly linear, and a code that lies between others is not told from them by
    a linear function. So codes that are told best come first: of those that are left, the one whose indicator
    has the largest share of its variance explained by a regression on `others` (N, C), NaN where missing.
    """
    order, left = [], list(range(n_categories))
    if n_categories > 2 and others.shape[1]:
        known = np.flatnonzero(~np.isnan(codes))[:_COMPARED_ROWS]
        codes, inputs = codes[known], _standardised(others[known][:, :_COMPARED_COLUMNS])
        while len(left) > 2:
            inside = np.isin(codes, left)
            best = left[int(np.argmax(_explained(codes[inside], inputs[inside], left)))]
            order.append(best)
            left.remove(best)
    return order + left


def _standardised(values: FloatArray) -> FloatArray:
    """Return columns of mean zero and mean square one, zero where missing or constant."""
    observed = ~np.isnan(values)
    number = np.maximum(observed.sum(axis=0), 1)
    centred = np.where(observed, values - np.where(observed, values, 0.0).sum(axis=0) / number, 0.0)
    spread = np.sqrt(np.sum(centred**2, axis=0) / number)
    return centred / np.where(spread > 0.0, spread, 1.0)


def _explained(codes: FloatArray, inputs: FloatArray, left: list[int]) -> FloatArray:
    """Return the share of the variance of each code's indicator that a ridge regression explains."""
    indicators = (codes[:, None] == np.asarray(left)).astype(float)
    indicators -= indicators.sum(axis=0) / max(len(indicators), 1)
    centred = inputs - inputs.sum(axis=0) / max(len(inputs), 1)
    gram = centred.T @ centred + _COMPARED_RIDGE * np.eye(centred.shape[1])
    cross = centred.T @ indicators
    residual = indicators - centred @ np.linalg.solve(gram, cross)
    total = np.sum(indicators**2, axis=0)
    return np.where(total > 0.0, 1.0 - np.sum(residual**2, axis=0) / np.maximum(total, 1e-300), 0.0)


def _share_moments(mean: FloatArray, variance: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return E pi and E pi^2 of the categories (K, n, C) from independent sticks with these moments."""
    return _stick_shares(mean), _stick_products(variance + mean**2, variance + (1.0 - mean) ** 2)


def _variances_by_cause(first: FloatArray, second: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return Var E(pi | x), E Var(pi | x) and E pi (1 - pi) from E(pi | x), E(pi^2 | x) at K latents x."""
    noise = np.maximum(first - second, 0.0).mean(axis=0)
    return first.var(axis=0), np.maximum(second - first**2, 0.0).mean(axis=0), noise


def _stick_shares(taken: FloatArray) -> FloatArray:
    """Return probabilities (..., C) of the categories from those (..., C - 1) of taking each stick."""
    return _stick_products(taken, 1.0 - taken)


def _stick_products(taken: FloatArray, passed: FloatArray) -> FloatArray:
    one = np.ones((*taken.shape[:-1], 1))
    return np.concatenate([taken, one], axis=-1) * np.concatenate([one, np.cumprod(passed, axis=-1)], axis=-1)


def _whole_numbers(name: str, value: Any) -> Any:
    """Return a parameter of one or several whole numbers as an int or a tuple of them.

    Likelihoods are keys of compiled programs, so that their parameters have to be hashable.
    """
    if isinstance(value, int):
        return value
    numbers = np.asarray(value)
    if numbers.ndim > 1 or numbers.dtype.kind not in "iuf" or np.any(numbers != np.round(numbers)):
        raise ValueError(f"{name}={value!r}: give a whole number, or a tuple with one for each column.")
    return int(numbers) if numbers.ndim == 0 else tuple(int(number) for number in numbers)
