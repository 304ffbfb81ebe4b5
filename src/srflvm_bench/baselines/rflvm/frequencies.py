"""Elliptical slice moves of one frequency after another, given the weights.

Frequency l owns two features, u_n = (sin(w_l'x_n), cos(w_l'x_n)) / sqrt(F), with weights v_m in column m.
Where the log likelihood is quadratic in f, sum_nm shift_nm f_nm - precision_nm f_nm^2 / 2, it is so in u:

    sum_n b_n'u_n - u_n'A_n u_n / 2,   A_n = sum_m precision_nm v_m v_m',
    b_n = sum_m (shift_nm - precision_nm f_nm) v_m + A_n u_n at the present u,

so that a proposal costs O(N) once A and b are known.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from srflvm.numerics.features import fourier_features
from srflvm_bench.baselines.rflvm.model import State, features, functions
from srflvm_bench.baselines.rflvm.slices import elliptical_slice

_Likelihood = Callable[[Array], Array]
_Step = Callable[[Any, Array, Array], tuple[_Likelihood, Callable[[Array], Any]]]


def update_shared(key: Array, state: State, y: Array) -> State:
    """Move frequencies with the precision 1 / noise and the shift y / noise of all entries.

    Only Y H and H'H enter: with Phi kept up to date, b_n noise = (Y H - Phi H'H)_nl + A u_n.
    """
    n_waves = len(state.frequencies)
    gram, cross = state.weights.T @ state.weights, y @ state.weights

    def step(phi: Array, own: Array, present: Array):
        pair = gram[own][:, own]
        slope = (cross[:, own] - phi @ gram[:, own] + present @ pair) / state.noise
        curvature = jnp.array([pair[0, 0], pair[0, 1], pair[1, 1]]) / state.noise
        return _quadratic(slope, curvature[None]), lambda after: phi.at[:, own].set(after)

    phi = features(state.latents, state.frequencies)
    return _one_by_one(key, state, step, phi, n_waves)


def update_sites(key: Array, state: State, precision: Array, shift: Array) -> State:
    """Move frequencies with a precision and a shift for every entry (N, M); carry shift - precision f."""
    n_waves = len(state.frequencies)
    sines, cosines = state.weights[:, :n_waves], state.weights[:, n_waves : 2 * n_waves]
    curvatures = jnp.stack([precision @ (sines**2), precision @ (sines * cosines), precision @ (cosines**2)])

    def step(rest: Array, own: Array, present: Array):
        curvature = curvatures[:, :, own[0]].T
        weights = state.weights[:, own]
        slope = rest @ weights + _applied(curvature, present)
        return _quadratic(slope, curvature), lambda after: rest - precision * ((after - present) @ weights.T)

    rest = shift - precision * functions(state)
    return _one_by_one(key, state, step, rest, n_waves)


def update_exact(key: Array, state: State, log_likelihood: Callable[[Array], Array]) -> State:
    """Move frequencies with any log likelihood of f (N, M) -> scalar, at O(N M) a proposal; carry f."""

    def step(f: Array, own: Array, present: Array):
        weights = state.weights[:, own].T
        return (
            lambda waves: log_likelihood(f + (waves - present) @ weights),
            lambda after: f + (after - present) @ weights,
        )

    return _one_by_one(key, state, step, functions(state), len(state.frequencies))


def _one_by_one(key: Array, state: State, step: _Step, carried: Any, n_waves: int) -> State:
    """Move every w_l under N(mu_z, Sigma_z).

    `step` takes the carried value, the two columns of frequency l and its features (N, 2). It returns the log
    likelihood of other features, and a function from the new features to the next carried value.
    """
    means = state.components.mean[state.assignments]
    roots = state.components.root[state.assignments]

    def waves(frequency: Array) -> Array:
        return fourier_features(state.latents, frequency[None]) * n_waves**-0.5

    def move(carried, member):
        key, index, frequency, mean, root = member
        auxiliary_key, slice_key = jax.random.split(key)
        log_likelihood, carry_on = step(carried, jnp.stack([index, index + n_waves]), waves(frequency))
        offset = elliptical_slice(
            slice_key,
            (frequency - mean)[None],
            (root @ jax.random.normal(auxiliary_key, mean.shape, mean.dtype))[None],
            lambda offset: log_likelihood(waves(mean + offset[0]))[None],
        )
        return carry_on(waves(mean + offset[0])), mean + offset[0]

    members = jax.random.split(key, n_waves), jnp.arange(n_waves), state.frequencies, means, roots
    return state._replace(frequencies=jax.lax.scan(move, carried, members)[1])


def _quadratic(slope: Array, curvature: Array) -> _Likelihood:
    """Return the function sum_n b_n'u_n - u_n'A_n u_n / 2 of u."""
    return lambda waves: jnp.sum(waves * (slope - 0.5 * _applied(curvature, waves)))


def _applied(curvature: Array, waves: Array) -> Array:
    """Compute A_n u_n (N, 2) from the three different entries of A_n (N or 1, 3)."""
    sine, cosine = waves[:, 0], waves[:, 1]
    first = curvature[:, 0] * sine + curvature[:, 1] * cosine
    return jnp.stack([first, curvature[:, 1] * sine + curvature[:, 2] * cosine], axis=1)
