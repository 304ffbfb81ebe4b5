"""Batches of rows of any likelihoods with any holes: sums that take the place of a site for every entry.

Under the present q(H), and at a point x of q(x_n), an entry has q(f) = N(mean, variance). The best Gaussian
q(h_m) has the natural parameters (see `sites`; sums are over rows and points, with the points' weights)

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
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from srflvm import entries, pairs
from srflvm._types import FloatArray
from srflvm.batches import Gathered, Model, divergence_of_latents
from srflvm.computing import in_float64
from srflvm.cubature import points_for_sums
from srflvm.embedding import Embedding
from srflvm.features import fourier_features
from srflvm.layers import with_constant
from srflvm.likelihoods import Likelihood
from srflvm.observations import Encoded
from srflvm.rowwise import padded_chunks, rows_of
from srflvm.site_posterior import SitePosterior
from srflvm.sites import (
    LARGEST_PARAMETER_STEP,
    Function,
    better_amplitude,
    next_sites,
    parameter_slopes,
    with_constants,
)

_CHANNELS_AT_ONCE = 128

# Rows times points that go through the compiled program at a time.
_MOST_POINTS = 8192

_SMALLEST_CURVATURE = 1e-6


class SiteSums(NamedTuple):
    """Of each channel sum lambda phi phi', packed (C, P), and sum eta phi (C, L); of each group the sums of
    each parameter's curvature and of slope + curvature * parameter, the slope at zero."""

    gram: Any
    cross: Any
    curvature: Any
    slope_at_zero: Any


@dataclass(frozen=True)
class SiteKind:
    """A Gaussian for the weights of every channel. Products of features are made in `dtype`; `n_rows` is the
    usual size of a batch, for which programs are compiled."""

    dtype: np.dtype
    n_rows: int

    def gather(
        self, posterior: SitePosterior, Y: FloatArray, log_sizes: FloatArray | None = None
    ) -> Gathered:
        encoded = posterior.layout.encode(Y, log_sizes)
        placed = posterior.place_encoded(encoded)
        sums, value = self.statistics_of(posterior, encoded, placed)
        bound = value - divergence_of_latents(placed) - float(np.sum(posterior.log_scales(Y)))
        return Gathered(sums, bound, placed)

    def statistics_of(
        self, posterior: SitePosterior, encoded: Sequence[Encoded], placed: Embedding
    ) -> tuple[SiteSums, float]:
        """The sums over rows whose q(x_n) is given, and sum E log p(y_n | x_n, H)."""
        points = np.moveaxis(points_for_sums(placed.mean, placed.cholesky, 0), 0, 1)
        n_rows, n_points, _ = points.shape
        size = min(self.n_rows, max(1, _MOST_POINTS // n_points))
        total = None
        with in_float64():
            for some_points, rows in padded_chunks((points, rows_of(encoded)), n_rows, size):
                flat = np.moveaxis(np.asarray(some_points), 1, 0).reshape(n_points * size, -1)
                features = with_constant(fourier_features(flat, posterior.frequencies))
                part = _sums_of_groups(posterior, jnp.asarray(features, self.dtype), rows)
                total = part if total is None else jax.tree.map(np.add, total, part)
        assert total is not None
        sums, value = jax.tree.map(lambda array: array / n_points, total)
        return sums, float(value)

    def refresh(self, posterior: SitePosterior, totals: SiteSums, n_rows: float) -> Model:
        """The weights' posterior that the sums describe, and the next parameters and amplitudes."""
        with in_float64():
            ridge = entries.RIDGE * float(np.finfo(self.dtype).eps)
            parts = [
                jax.tree.map(
                    np.asarray, _solve(totals.gram[c], totals.cross[c], posterior.amplitude[c], ridge)
                )
                for c in _blocks(len(totals.cross))
            ]
        mean, packed, amplitude, divergence = (np.concatenate(part) for part in zip(*parts, strict=True))
        parameters = tuple(map(_moved, posterior.parameters, totals.curvature, totals.slope_at_zero))
        posterior = replace(
            posterior,
            weights=np.ascontiguousarray(mean.T),
            packed_covariance=packed,
            amplitude=amplitude,
            parameters=parameters,
        )
        return Model(posterior, float(np.sum(divergence)))


def _moved(learned: dict[str, Any], curvature: dict[str, Any], slope_at_zero: dict[str, Any]):
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


class _Block(NamedTuple):
    """Some channels of a group: data (c, n), constants of that shape, offset (n,), and the present model."""

    y: Array
    observed: Array
    constants: dict[str, Array]
    offset: Array
    level: Array
    weights: Array
    packed_covariance: Array
    parameters: dict[str, Array]


def _blocks(n_channels: int) -> Iterator[slice]:
    for start in range(0, n_channels, _CHANNELS_AT_ONCE):
        yield slice(start, min(start + _CHANNELS_AT_ONCE, n_channels))


def _sums_of_groups(posterior: SitePosterior, features: Array, rows: Any) -> tuple[SiteSums, FloatArray]:
    """Sums over rows and points, all points with weight one, in float64."""
    grams, crosses, curvatures, slopes, value = [], [], [], [], 0.0
    for group, mine, learned in zip(posterior.layout.groups, rows, posterior.parameters, strict=True):
        found = []
        for channels in _blocks(mine.y.shape[1]):
            block = _block(posterior, group.channels.start, channels, mine, learned, features.dtype)
            found.append(jax.tree.map(np.asarray, _sums_of_block(group.likelihood, features, block)))
        gram, cross, curvature, at_zero, bound = jax.tree.map(lambda *parts: np.concatenate(parts), *found)
        grams.append(gram)
        crosses.append(cross)
        curvatures.append({name: _shared(total, learned[name]) for name, total in curvature.items()})
        slopes.append({name: _shared(total, learned[name]) for name, total in at_zero.items()})
        value += np.sum(bound)
    sums = SiteSums(np.concatenate(grams), np.concatenate(crosses), tuple(curvatures), tuple(slopes))
    return jax.tree.map(lambda array: np.asarray(array, np.float64), (sums, np.asarray(value)))


def _shared(total: FloatArray, parameter: FloatArray) -> FloatArray:
    """Summed over the channels, for a parameter that they share."""
    return total if len(parameter) == len(total) else np.array([np.sum(total)])


def _block(
    posterior: SitePosterior, first: int, channels: slice, mine: Any, learned: Any, dtype: Any
) -> _Block:
    own = slice(first + channels.start, first + channels.stop)
    return _Block(
        y=mine.y[:, channels].T.astype(dtype),
        observed=mine.observed[:, channels].T,
        constants={name: value[:, channels].T.astype(dtype) for name, value in mine.constants.items()},
        offset=mine.offset[:, 0].astype(dtype),
        level=jnp.asarray(posterior.level[own], dtype),
        weights=jnp.asarray(posterior.weights[:, own].T, dtype),
        packed_covariance=jnp.asarray(posterior.packed_covariance[own], dtype),
        parameters={n: jnp.asarray(v if len(v) == 1 else v[channels]) for n, v in learned.items()},
    )


@partial(jax.jit, static_argnames="likelihood")
def _sums_of_block(likelihood: Likelihood, features: Array, block: _Block):
    """Gram, cross, curvatures, slopes at zero and E l (c, ...) of the channels, over rows and points."""
    n_points = features.shape[0] // block.y.shape[1]

    def at_points(array: Array) -> Array:
        return jnp.tile(array, (1, n_points))

    y, observed = at_points(block.y), at_points(block.observed)
    constants = {name: at_points(value) for name, value in block.constants.items()}
    mean = block.weights @ features.T
    variance = jnp.maximum(pairs.quadratic_forms(features, block.packed_covariance), 0.0)
    here = Function(mean, variance, block.level[:, None] + jnp.tile(block.offset, n_points), mean)
    local = likelihood.expectations(y, here.total, variance, with_constants(block.parameters, constants))
    nothing = entries.Sites(jnp.zeros_like(mean), jnp.zeros_like(mean))
    sites = next_sites(nothing, local, mean, observed, 1.0)
    slopes = parameter_slopes(likelihood, y, here, observed, block.parameters, constants)
    curvature = {name: -slope.second for name, slope in slopes.items()}
    at_zero = {name: slopes[name].first + curvature[name] * value for name, value in block.parameters.items()}
    value = jnp.sum(jnp.where(observed, local.value, 0.0), axis=1, dtype=jnp.float64)
    gram = pairs.weighted_grams(features, sites.precision)
    return gram, sites.shift @ features, curvature, at_zero, value


@jax.jit
def _solve(packed: Array, cross: Array, amplitude: Array, ridge: float) -> tuple[Array, ...]:
    """Mean (c, L), packed covariance (c, P), next amplitude and divergence (c,) of the weights."""
    size = cross.shape[1]
    prior = 1.0 / amplitude + ridge * jnp.sum(packed[:, :size], axis=1)
    system = pairs.unpack(packed, size) + prior[:, None, None] * jnp.eye(size)
    root = entries.inverse_factor(jnp.linalg.cholesky(system))
    log_determinant = -2.0 * jnp.sum(jnp.log(jnp.diagonal(root, axis1=1, axis2=2)), axis=1)
    mean = jnp.einsum("bji,bj->bi", root, jnp.einsum("bij,bj->bi", root, cross))
    covariance = jnp.swapaxes(root, 1, 2) @ root
    weights = entries.Weights(mean, root, covariance, log_determinant, jnp.zeros_like(amplitude))
    better = jnp.exp(better_amplitude(weights))
    packed_covariance = pairs.pack_form(covariance).astype(jnp.float32)
    # q(h) stays as it is when the amplitude of its prior moves, so the divergence is that from the next one
    return mean, packed_covariance, better, entries.divergence(weights, better)
