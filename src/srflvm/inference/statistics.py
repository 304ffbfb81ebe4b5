"""Statistics of batches of rows, which a fit that never holds all rows keeps of those that it has seen.

With frozen frequencies, everything global is a function of sums over rows: q(H), the noise and other
parameters of the likelihoods, the amplitudes. `RowStatistics` say how rows turn into such sums, given the
present posterior (`gather`), and how the sums turn into the next posterior (`refresh`). There are two kinds.

For complete Gaussian rows, given q(X) the bound depends on the data through E[Phi'Phi], E[Phi]'Y and |Y|^2
alone, and its maximum over q(H), noise and amplitude is known (see `numerics.shared_regression`). A
natural-gradient step of length rho on q(H), whose natural parameters are (E[Phi'Phi] + ratio I) / noise and
E[Phi]'Y / noise, is a step of length rho of these sums.

For rows of any likelihoods with any missing entries, sums take the place of a site for every entry. Under the
present q(H), and at a point x of q(x_n), an entry has q(f) = N(mean, variance). The best Gaussian q(h_m) has
the natural parameters (see `model.sites`; sums are over rows and points, with the points' weights)

    G_m = sum lambda_nm phi phi' + I / a_m,   G_m mean_m = sum eta_nm phi,
    lambda = -E l'',   eta = E l' + lambda mean,

so a natural-gradient step of length rho is a step of length rho of the two sums, and no entry's site is kept.
A learned parameter t of a likelihood is treated alike: near its present value t_0 the rows' sum of E l
changes with t as slope + curvature t_0 - curvature t, so the sums of curvature and of slope + curvature t_0
say where the maximum for all rows is. Where a curvature is negative, a step goes uphill by its absolute
value.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from srflvm._typing import FloatArray
from srflvm.data.encoding import GroupRows
from srflvm.inference.problems.gaussian import frozen_statistics, smallest_frozen_ratio
from srflvm.likelihoods.base import Likelihood
from srflvm.model.sites import LARGEST_PARAMETER_STEP, Function, better_amplitude, parameter_slopes
from srflvm.numerics import packed_symmetric, site_regression
from srflvm.numerics.features import cubature_points
from srflvm.numerics.jit import in_float64
from srflvm.numerics.shared_regression import Statistics, posterior_weights
from srflvm.numerics.weight_covariances import PackedCovariances
from srflvm.posterior.base import Posterior
from srflvm.posterior.chunks import Embedding, PaddedChunks
from srflvm.posterior.gaussian import GaussianPosterior
from srflvm.posterior.sites import SitePosterior

_CHANNELS_AT_ONCE = 128

# Rows times points that go through the compiled program at a time.
_MOST_POINTS = 8192

_SMALLEST_CURVATURE = 1e-6


class BatchSums(NamedTuple):
    """Sums over the rows of a batch, and their embedding q(x_n).

    `statistics` is a tree of arrays, and `bound` what the rows add to the bound in the units of the data,
    sum_n E log p(y_n | x_n, H) - KL(q(x_n) || p(x_n)).
    """

    statistics: Any
    bound: float
    embedding: Embedding


class PosteriorUpdate(NamedTuple):
    """Posterior that sums over rows describe, and KL(q(H) || p(H)) of its weights."""

    posterior: Any
    divergence: float


class RowStatistics(Protocol):
    """Rule by which rows turn into sums, and sums into a posterior; see the module's docstring."""

    def gather(self, posterior: Any, Y: FloatArray, log_sizes: FloatArray | None = None) -> BatchSums:
        """Embed raw rows, and sum their statistics under a posterior."""
        ...

    def refresh(self, posterior: Any, totals: Any, n_rows: float) -> PosteriorUpdate:
        """Return the posterior that totals describe: statistics summed over, or scaled to, `n_rows` rows."""
        ...


def statistics_for(posterior: Posterior, dtype: np.dtype, n_rows: int) -> RowStatistics:
    """Return the statistics of a posterior's kind, for batches of usually `n_rows` rows."""
    return GaussianStatistics() if posterior.shares_covariance else SiteStatistics(dtype, n_rows)


# ---- sums over rows -------------------------------------------------------------------------------


@dataclass(frozen=True)
class RowSums:
    """Statistics summed over `n_rows` rows."""

    statistics: Any
    n_rows: int

    def plus(self, statistics: Any, n_rows: int) -> RowSums:
        """Return the sums with those of further rows."""
        return RowSums(jax.tree.map(np.add, self.statistics, statistics), self.n_rows + n_rows)

    @property
    def is_finite(self) -> bool:
        """Tell whether all sums are finite."""
        return all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(self.statistics))


@dataclass(frozen=True)
class EpochSums:
    """Sums of a pass over all N rows: those of the pass before, and those of the rows visited so far.

    After t rows, the rows that were not visited are still described by the pass before, which was made of
    `before.n_rows` rows (all N, or fewer in the first epoch, which goes on from landmarks). With
    k = before.n_rows (1 - t / N) of these, the totals are those of k + t rows, scaled to N. At the end of the
    pass k = 0: every row counts once, and no noise of sampling is left.
    """

    n_rows: int
    before: RowSums
    visited: RowSums

    @classmethod
    def after(cls, n_rows: int, before: RowSums) -> EpochSums:
        """Return the sums of a pass that begins after another."""
        return cls(n_rows, before, RowSums(jax.tree.map(np.zeros_like, before.statistics), 0))

    def plus(self, statistics: Any, n_rows: int) -> EpochSums:
        """Return the sums after the visit of further rows."""
        return replace(self, visited=self.visited.plus(statistics, n_rows))

    @property
    def totals(self) -> Any:
        """Return the statistics of all N rows, as far as they are known."""
        left = 1.0 - self.visited.n_rows / self.n_rows
        scale = self.n_rows / (self.before.n_rows * left + self.visited.n_rows)
        return jax.tree.map(
            lambda old, new: scale * (left * old + new), self.before.statistics, self.visited.statistics
        )


class StreamState(NamedTuple):
    """Sums over all rows of a stream, to which more are added, and the present KL(q(H) || p(H))."""

    sums: RowSums
    divergence: float

    @classmethod
    def behind(cls, posterior: Any, n_rows: int) -> StreamState:
        """Return the state that a posterior of so many rows follows from, if its sums can be found."""
        if not posterior.shares_covariance:
            raise ValueError(
                "partial_fit goes on from sums over all rows seen, which this model does not have: it was "
                "fitted to all rows at once, or loaded from a file, which does not hold them. Begin the "
                "stream with partial_fit on a new estimator, or fit with batch_size set to a number."
            )
        sums = GaussianStatistics.sums_behind(posterior, n_rows)
        return cls(RowSums(sums, n_rows), posterior.weight_divergence())


# ---- complete Gaussian rows -----------------------------------------------------------------------


class _GaussianSums(NamedTuple):
    """Sums E[Phi'Phi] (L, L), E[Phi]'Y (L, M) and |Y|^2 of standardised rows."""

    gram: FloatArray
    cross: FloatArray
    total_square: FloatArray


@dataclass(frozen=True)
class GaussianStatistics:
    """Statistics of complete Gaussian rows, with one noise and one covariance of the weights."""

    def gather(
        self, posterior: GaussianPosterior, Y: FloatArray, log_sizes: FloatArray | None = None
    ) -> BatchSums:
        """Embed raw rows, and sum their statistics under a posterior."""
        embedding = posterior.embed(Y)
        standard = posterior.columns.standardise(Y)
        gram, cross = frozen_statistics(posterior.frequencies, embedding, standard)
        sums = _GaussianSums(gram, cross, np.asarray(np.sum(standard**2)))
        bound = _expected_log_density(posterior, sums, len(Y)) - embedding.divergence()
        return BatchSums(sums, bound - Y.size * np.log(posterior.columns.scale), embedding)

    def refresh(self, posterior: GaussianPosterior, totals: _GaussianSums, n_rows: float) -> PosteriorUpdate:
        """Return the posterior with the best q(H), noise and amplitude for the totals."""
        n_columns = totals.cross.shape[1]
        statistics = Statistics(totals.gram, totals.cross, float(totals.total_square), n_rows, n_columns)
        fit = statistics.best_noise(smallest_frozen_ratio(n_rows))
        weights, covariance = posterior_weights(totals.gram, totals.cross, fit.ratio)
        posterior = replace(
            posterior, weights=weights, weight_covariance=covariance, noise=fit.noise, ratio=fit.ratio
        )
        return PosteriorUpdate(posterior, posterior.weight_divergence())

    @staticmethod
    def sums_behind(posterior: GaussianPosterior, n_rows: int) -> _GaussianSums:
        """Return the sums that a posterior of so many rows follows from.

        With q(H) = N(W, noise V), the Gram matrix is V^-1 - ratio I, the cross products are V^-1 W, and the
        noise is (|Y|^2 - <cross, W>) / (N M).
        """
        precision = np.linalg.inv(posterior.weight_covariance)
        precision = 0.5 * (precision + precision.T)
        cross = precision @ posterior.weights
        square = posterior.noise * n_rows * cross.shape[1] + np.sum(cross * posterior.weights)
        gram = precision - posterior.ratio * np.eye(len(precision))
        return _GaussianSums(gram, cross, np.asarray(square))


def _expected_log_density(posterior: GaussianPosterior, sums: _GaussianSums, n_rows: int) -> float:
    """Compute sum_n E log p(y_n | x_n, H) over q(X) q(H), in standardised units.

    E|Y - Phi H|^2 = |Y|^2 - 2 <E[Phi]'Y, W> + <E[Phi'Phi], W W' + M noise V> for q(H) = N(W, noise V).
    """
    weights, noise = posterior.weights, posterior.noise
    n_columns = weights.shape[1]
    second = weights @ weights.T + n_columns * noise * posterior.weight_covariance
    residual = sums.total_square - 2.0 * np.sum(sums.cross * weights) + np.sum(sums.gram * second)
    return float(-0.5 * (n_rows * n_columns * np.log(2.0 * np.pi * noise) + residual / noise))


# ---- rows of any likelihoods ----------------------------------------------------------------------


class _SiteSums(NamedTuple):
    """Sums of each channel and of each group's learned parameters.

    Those of a channel are sum lambda phi phi', packed (C, P), and sum eta phi (C, L). Those of a parameter
    are its curvature, and slope + curvature * parameter, the slope at zero.
    """

    gram: Any
    cross: Any
    curvature: Any
    slope_at_zero: Any


@dataclass(frozen=True)
class SiteStatistics:
    """Statistics of rows of any likelihoods, with a Gaussian for the weights of every channel.

    Products of features are made in `dtype`; `n_rows` is the usual size of a batch, for which programs are
    compiled.
    """

    dtype: np.dtype
    n_rows: int

    def gather(
        self, posterior: SitePosterior, Y: FloatArray, log_sizes: FloatArray | None = None
    ) -> BatchSums:
        """Embed raw rows, and sum their statistics under a posterior."""
        encoded = posterior.layout.encode(Y, log_sizes)
        embedding = posterior.embed_encoded(encoded)
        sums, value = self.sums_of_rows(posterior, encoded, embedding)
        bound = value - embedding.divergence() - float(np.sum(posterior.layout.log_scales(Y)))
        return BatchSums(sums, bound, embedding)

    def sums_of_rows(
        self, posterior: SitePosterior, encoded: Sequence[GroupRows], embedding: Embedding
    ) -> tuple[_SiteSums, float]:
        """Return the sums over rows whose q(x_n) is given, and sum E log p(y_n | x_n, H)."""
        points = np.moveaxis(cubature_points(embedding.mean, embedding.cholesky, 0), 0, 1)
        n_rows, n_points, _ = points.shape
        size = min(self.n_rows, max(1, _MOST_POINTS // n_points))
        filled, total = tuple(rows.filled() for rows in encoded), None
        with in_float64():
            for some_points, rows in PaddedChunks(n_rows, size).cut((points, filled)):
                flat = np.moveaxis(np.asarray(some_points), 1, 0).reshape(n_points * size, -1)
                features = posterior.layer_features(flat)
                part = _sums_of_groups(posterior, jnp.asarray(features, self.dtype), rows)
                total = part if total is None else jax.tree.map(np.add, total, part)
        assert total is not None
        sums, value = jax.tree.map(lambda array: array / n_points, total)
        return sums, float(value)

    def refresh(self, posterior: SitePosterior, totals: _SiteSums, n_rows: float) -> PosteriorUpdate:
        """Return the posterior with the weights that the totals describe, and better parameters."""
        with in_float64():
            ridge = site_regression.RIDGE * float(np.finfo(self.dtype).eps)
            parts = [
                jax.tree.map(
                    np.asarray, _solve(totals.gram[c], totals.cross[c], posterior.amplitude[c], ridge)
                )
                for c in _blocks(len(totals.cross))
            ]
        mean, packed, amplitude, divergence = (np.concatenate(part) for part in zip(*parts, strict=True))
        quadratics = posterior.parameters, totals.curvature, totals.slope_at_zero
        posterior = replace(
            posterior,
            weights=np.ascontiguousarray(mean.T),
            covariance=PackedCovariances(packed),
            amplitude=amplitude,
            parameters=tuple(map(_move_parameters, *quadratics)),
        )
        return PosteriorUpdate(posterior, float(np.sum(divergence)))


def _move_parameters(
    learned: dict[str, Any], curvature: dict[str, Any], slope_at_zero: dict[str, Any]
) -> dict[str, Any]:
    """Make a limited Newton step in each parameter.

    Sums hold the curvature of each parameter alone. A positive semidefinite matrix of size P is at most P
    times its diagonal, so that a P-th of each step cannot overshoot where P parameters are coupled.
    """
    moved = {}
    for name, value in learned.items():
        slope = slope_at_zero[name] - curvature[name] * value
        step = slope / (np.abs(curvature[name]) + _SMALLEST_CURVATURE) / len(learned)
        moved[name] = value + np.clip(step, -LARGEST_PARAMETER_STEP, LARGEST_PARAMETER_STEP)
    return moved


def _blocks(n_channels: int) -> Iterator[slice]:
    for start in range(0, n_channels, _CHANNELS_AT_ONCE):
        yield slice(start, min(start + _CHANNELS_AT_ONCE, n_channels))


def _sums_of_groups(
    posterior: SitePosterior, features: Array, rows: tuple[GroupRows, ...]
) -> tuple[_SiteSums, FloatArray]:
    """Sum over rows and points, all points with weight one, in float64."""
    grams, crosses, curvatures, slopes, value = [], [], [], [], 0.0
    for group, mine, learned in zip(posterior.layout.groups, rows, posterior.parameters, strict=True):
        found, whole = [], mine.channels_first(features.dtype)
        for channels in _blocks(mine.y.shape[1]):
            weights = _BlockWeights.of(posterior, group.channels.start, channels, features.dtype)
            some = {n: jnp.asarray(v if len(v) == 1 else v[channels]) for n, v in learned.items()}
            sums = _sums_of_block(
                group.likelihood.of_channels, features, whole.take_channels(channels), weights, some
            )
            found.append(jax.tree.map(np.asarray, sums))
        gram, cross, curvature, at_zero, bound = jax.tree.map(lambda *parts: np.concatenate(parts), *found)
        grams.append(gram)
        crosses.append(cross)
        curvatures.append({name: _shared(total, learned[name]) for name, total in curvature.items()})
        slopes.append({name: _shared(total, learned[name]) for name, total in at_zero.items()})
        value += np.sum(bound)
    sums = _SiteSums(np.concatenate(grams), np.concatenate(crosses), tuple(curvatures), tuple(slopes))
    return jax.tree.map(lambda array: np.asarray(array, np.float64), (sums, np.asarray(value)))


def _shared(total: FloatArray, parameter: FloatArray) -> FloatArray:
    """Sum over the channels, for a parameter that they share."""
    return total if len(parameter) == len(total) else np.array([np.sum(total)])


class _BlockWeights(NamedTuple):
    """Posterior of the weights of some channels: means (c, L), packed covariances (c, P), levels (c,)."""

    mean: Array
    packed_covariance: Array
    level: Array

    @classmethod
    def of(cls, posterior: SitePosterior, first: int, channels: slice, dtype: Any) -> _BlockWeights:
        """Take the weights of some channels of the group that begins with channel `first`."""
        own = slice(first + channels.start, first + channels.stop)
        return cls(
            mean=jnp.asarray(posterior.weights[:, own].T, dtype),
            packed_covariance=jnp.asarray(posterior.covariance.take(own).forms(), dtype),
            level=jnp.asarray(posterior.level[own], dtype),
        )


@partial(jax.jit, static_argnames="likelihood")
def _sums_of_block(
    likelihood: Likelihood,
    features: Array,
    rows: GroupRows,
    weights: _BlockWeights,
    learned: dict[str, Array],
) -> tuple[Array, Array, dict[str, Array], dict[str, Array], Array]:
    """Return Gram, cross, curvatures, slopes at zero and E l (c, ...) of channels, over rows and points."""
    n_points = features.shape[0] // rows.y.shape[1]
    rows = jax.tree.map(lambda array: jnp.tile(array, (1, n_points)), rows)
    mean = weights.mean @ features.T
    variance = jnp.maximum(packed_symmetric.quadratic_forms(features, weights.packed_covariance), 0.0)
    here = Function(mean, variance, weights.level[:, None] + rows.offset, mean)
    local = likelihood.expectations(rows.y, here.total, variance, rows.arguments(learned))
    sites = here.target_sites(local, rows.observed)
    slopes = parameter_slopes(likelihood, rows, here, learned)
    curvature = {name: -slope.second for name, slope in slopes.items()}
    at_zero = {name: slopes[name].first + curvature[name] * value for name, value in learned.items()}
    value = jnp.sum(jnp.where(rows.observed, local.value, 0.0), axis=1, dtype=jnp.float64)
    gram = packed_symmetric.weighted_grams(features, sites.precision)
    return gram, sites.shift @ features, curvature, at_zero, value


@jax.jit
def _solve(packed: Array, cross: Array, amplitude: Array, ridge: float) -> tuple[Array, ...]:
    """Return mean (c, L), packed covariance (c, P), next amplitude and divergence (c,) of the weights."""
    size = cross.shape[1]
    prior = 1.0 / amplitude + ridge * jnp.sum(packed[:, :size], axis=1)
    system = packed_symmetric.unpack(packed, size) + prior[:, None, None] * jnp.eye(size)
    weights = site_regression.Weights.from_factor(jnp.linalg.cholesky(system), cross)
    better = jnp.exp(better_amplitude(weights))
    packed_covariance = packed_symmetric.pack_form(weights.covariance).astype(jnp.float32)
    # q(h) stays as it is when the amplitude of its prior moves, so the divergence is that from the next one
    return weights.mean, packed_covariance, better, weights.divergence(better)
