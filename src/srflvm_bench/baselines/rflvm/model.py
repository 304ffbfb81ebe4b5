"""Model: its state, priors and data, and the moves that all likelihoods share.

    x_n ~ N(0, I),   h_m ~ N(0, a I),   bias_m ~ N(0, b),   f_nm = phi(x_n)'h_m + bias_m,   y_nm ~ p(f_nm),

with frequencies from the mixture of `mixture`, the amplitude a ~ IG, and for the likelihoods that have them
a noise variance ~ IG and dispersions log r_m ~ N.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from srflvm.numerics.features import fourier_features
from srflvm_bench.baselines.rflvm.gammas import draw_gamma
from srflvm_bench.baselines.rflvm.mixture import Base, Components
from srflvm_bench.baselines.rflvm.slices import elliptical_slice


class Prior(NamedTuple):
    """Constants of the priors.

    They are the base measure, (shape, scale) of the inverse gammas, the variance of the biases, and mean and
    standard deviation of the log dispersions.
    """

    base: Base
    amplitude: tuple[float, float] = (1.0, 1.0)
    noise: tuple[float, float] = (1.0, 0.1)
    bias_variance: float = 1.0
    log_dispersion: tuple[float, float] = (1.0, 1.5)


class Data(NamedTuple):
    """Observations (N, M), zero where there is none, and 1.0 or 0.0 for observed or not.

    Binomial entries have a number of trials (N, M), others a number one. `tails` (M, K) may hold how many
    counts of each column are above 0, ..., K - 1, if none is above K.
    """

    y: Array
    observed: Array
    trials: Array
    tails: Array | None = None


class State(NamedTuple):
    """State of a chain.

    It holds X (N, Q), W (F, Q), z (F,), alpha, mu and Sigma, the weights and, last, the bias of every column
    (M, 2F + 1), a, the noise variance and log r (M,). The last two stay at their start where the likelihood
    lacks them.
    """

    latents: Array
    frequencies: Array
    assignments: Array
    concentration: Array
    components: Components
    weights: Array
    amplitude: Array
    noise: Array
    log_dispersion: Array


def features(latents: Array, frequencies: Array) -> Array:
    """Compute Fourier features and the constant, (N, 2F + 1)."""
    waves = fourier_features(latents, frequencies)
    return jnp.concatenate([waves, jnp.ones((len(latents), 1), waves.dtype)], axis=1)


def functions(state: State) -> Array:
    """Compute f (N, M)."""
    return features(state.latents, state.frequencies) @ state.weights.T


def weight_variances(state: State, prior: Prior) -> Array:
    """Return the prior variances of the weights and the bias of a column (2F + 1,)."""
    n_waves = state.weights.shape[1] - 1
    return jnp.append(jnp.full(n_waves, state.amplitude), prior.bias_variance)


def update_latents(key: Array, state: State, log_likelihood: Callable[[Array], Array]) -> State:
    """Move each row of X by an elliptical slice under its prior, given all else: rows are independent.

    `log_likelihood` takes features (N, 2F + 1) to the log likelihood of each row (N,).
    """
    auxiliary_key, slice_key = jax.random.split(key)
    auxiliary = jax.random.normal(auxiliary_key, state.latents.shape, state.latents.dtype)
    latents = elliptical_slice(
        slice_key,
        state.latents,
        auxiliary,
        lambda latents: log_likelihood(features(latents, state.frequencies)),
    )
    return state._replace(latents=latents)


def draw_inverse_gamma(key: Array, prior: tuple[float, float], count: Array, square: Array) -> Array:
    """Draw the variance of `count` normal variables with the given sum of squares.

    It is IG(shape + count / 2, scale + square / 2).
    """
    shape, scale = prior
    return (scale + 0.5 * square) / draw_gamma(key, shape + 0.5 * count)


def update_amplitude(key: Array, state: State, prior: Prior) -> State:
    """Take a Gibbs step of a given the weights."""
    waves = state.weights[:, :-1]
    amplitude = draw_inverse_gamma(key, prior.amplitude, jnp.asarray(float(waves.size)), jnp.sum(waves**2))
    return state._replace(amplitude=amplitude)


def log_inverse_gamma(value: Array, prior: tuple[float, float]) -> Array:
    """Compute the log density of an inverse gamma up to a constant."""
    shape, scale = prior
    return -(shape + 1.0) * jnp.log(value) - scale / value


def log_prior(state: State, prior: Prior) -> Array:
    """Compute log p(X) + log p(H, bias | a) + log p(a) up to a constant."""
    variances = weight_variances(state, prior)
    log_weights = -0.5 * jnp.sum(state.weights**2 / variances + jnp.log(variances))
    log_latents = -0.5 * jnp.sum(state.latents**2)
    return log_latents + log_weights + log_inverse_gamma(state.amplitude, prior.amplitude)
