"""Unordered categories and vectors of counts, by breaking a stick.

Of C categories, k < C - 1 is taken with probability sigmoid(f_k) if none before it was, and the last takes
what is left. So a categorical column becomes C - 1 Bernoulli channels (is it k, given that it is not less
than k?), and a vector of m counts m - 1 binomial channels (how many of those left are k?). At given latents
the f of different channels are independent, so that products of sigmoids have products as expectations.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from scipy.special import expit

from srflvm._types import FloatArray
from srflvm.exceptions import DataError
from srflvm.likelihoods._base import ColumnMoments, Moments, Parameters, refuse, whole_numbers
from srflvm.likelihoods._observed import check_counts
from srflvm.likelihoods.bernoulli import Bernoulli
from srflvm.likelihoods.binomial import BinomialChannels


@dataclass(frozen=True)
class Categorical(Bernoulli):
    """Codes 0, 1, ..., C - 1 without an order; nothing to learn.

    The mean of a column is its most probable code, and its variance p (1 - p) with p the probability of
    that code: the variance of being right. `SRFLVM.category_probabilities` has the whole distribution.

    Parameters
    ----------
    n_categories : tuple of int, or None
        The number of categories of each column; from the largest training entries if None.
    """

    name: ClassVar[str] = "categorical"
    n_categories: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        if self.n_categories is None:
            return
        object.__setattr__(
            self, "n_categories", whole_numbers("n_categories", np.atleast_1d(self.n_categories))
        )
        if min(self.n_categories, default=0) < 2:
            raise ValueError(f"n_categories={self.n_categories!r}: each column needs at least two.")

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

    def resolve(self, Y: FloatArray) -> Categorical:
        if self.n_categories is not None:
            return self
        largest = np.nanmax(Y, axis=0, initial=1.0)
        return replace(self, n_categories=tuple(1 + int(code) for code in largest))

    def channels(self, Y: FloatArray) -> tuple[FloatArray, dict[str, FloatArray]]:
        columns = []
        for j, n_categories in enumerate(self._categories(Y.shape[1])):
            y = Y[:, j]
            columns += [np.where(y >= k, (y == k).astype(float), np.nan) for k in range(n_categories - 1)]
        return np.stack(columns, axis=1), {}

    def working(self, Y: FloatArray) -> FloatArray:
        """Indicators of the categories: a stick that was not reached was not taken."""
        groups = [np.where(np.isnan(part) & ~np.isnan(part[:, :1]), 0.0, part) for part in self._split(Y)]
        return np.concatenate(groups, axis=1)

    def probabilities(self, mean: FloatArray) -> list[FloatArray]:
        """For each column the probabilities (n, C) of its codes, from means of channels (K, n, c) at K
        equally likely latents of each row."""
        return [_stick_shares(part).mean(axis=0) for part in self._split(mean)]

    def columns_from_moments(
        self, means: FloatArray, variances: FloatArray, constants: Parameters
    ) -> ColumnMoments:
        """Return the most probable codes, and the variance of being right told apart by cause.

        With the share pi of that code given latent and function, p (1 - p) for p = E pi is the sum of
        Var E(pi | latent), E Var(pi | latent) and E pi (1 - pi).
        """
        columns = []
        for mean, variance in zip(self._split(means), self._split(variances), strict=True):
            first, second = _share_moments(mean, variance)
            code = first.mean(axis=0).argmax(axis=1)
            at = np.broadcast_to(code[None, :, None], (len(first), len(code), 1))
            first, second = (np.take_along_axis(part, at, axis=2)[:, :, 0] for part in (first, second))
            columns.append((code.astype(float), *_told_apart(first, second)))
        return ColumnMoments(*(np.stack(parts, axis=1) for parts in zip(*columns, strict=True)))

    def columns_from_draws(self, draws: FloatArray, constants: Parameters) -> FloatArray:
        # the code is the first stick taken, or the last category if none was
        ended = [np.pad(part == 1.0, ((0, 0), (0, 1)), constant_values=True) for part in self._split(draws)]
        return np.stack([part.argmax(axis=1) for part in ended], axis=1).astype(float)

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
class Multinomial(BinomialChannels):
    """All columns together are one vector of counts with a given total; nothing to learn.

    Channel k needs the total of columns k, k + 1, ..., so a hole leaves the channels after its column usable.
    `moments` of a channel are those of its share of the stick, which has no variance given f. Columns have
    the moments of counts given the row's total, the constant `total`. Where that is not known it is one, and
    the moments are those of a single count: proportions.
    """

    name: ClassVar[str] = "multinomial"

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
        """log(1 + count); where the first channel is known, others are missing only for want of trials."""
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
        """With share pi and total n, return the mean n E pi and the variance n E pi (1 - pi) + n^2 Var pi."""
        first, second = _share_moments(means, variances)
        latent, weight, noise = _told_apart(first, second)
        n = np.asarray(constants["total"])[:, :1]
        return ColumnMoments(n * first.mean(axis=0), n**2 * latent, n**2 * weight, n * noise)

    def columns_from_draws(self, draws: FloatArray, constants: Parameters) -> FloatArray:
        rest = np.asarray(constants["total"])[:, :1] - draws.sum(axis=1, keepdims=True)
        return np.concatenate([draws, rest], axis=1)


def _share_moments(mean: FloatArray, variance: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return E pi and E pi^2 of the categories (K, n, C) from independent sticks with these moments."""
    return _stick_shares(mean), _stick_products(variance + mean**2, variance + (1.0 - mean) ** 2)


def _told_apart(first: FloatArray, second: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return Var E(pi | x), E Var(pi | x) and E pi (1 - pi) from E(pi | x), E(pi^2 | x) at K latents x."""
    noise = np.maximum(first - second, 0.0).mean(axis=0)
    return first.var(axis=0), np.maximum(second - first**2, 0.0).mean(axis=0), noise


def _stick_shares(taken: FloatArray) -> FloatArray:
    """Probabilities (..., C) of the categories from those (..., C - 1) of taking each stick."""
    return _stick_products(taken, 1.0 - taken)


def _stick_products(taken: FloatArray, passed: FloatArray) -> FloatArray:
    one = np.ones((*taken.shape[:-1], 1))
    return np.concatenate([taken, one], axis=-1) * np.concatenate([one, np.cumprod(passed, axis=-1)], axis=-1)
