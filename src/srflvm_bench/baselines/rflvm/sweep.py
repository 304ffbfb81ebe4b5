"""Sweep of the sampler through all variables, and the log joint density after it."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from srflvm_bench.baselines.rflvm import mixture
from srflvm_bench.baselines.rflvm.families import FAMILIES
from srflvm_bench.baselines.rflvm.model import Data, Prior, State, functions, log_prior, update_amplitude


class Trace(NamedTuple):
    """Values kept of a sweep, in arrays of JAX or of NumPy."""

    latents: Any
    frequencies: Any
    log_joint: Any
    n_clusters: Any
    amplitude: Any


def sweep(key: Array, state: State, data: Data, prior: Prior, likelihood: str) -> State:
    """Move the mixture, then the variables of the likelihood, then the amplitude.

    Barriers keep the parts in this order, one after another.
    """
    mixture_key, family_key, amplitude_key = jax.random.split(key, 3)
    state = jax.lax.optimization_barrier(update_mixture(mixture_key, state, prior))
    state = jax.lax.optimization_barrier(FAMILIES[likelihood].sweep(family_key, state, data, prior))
    return update_amplitude(amplitude_key, state, prior)


def update_mixture(key: Array, state: State, prior: Prior) -> State:
    """Move assignments, concentration, means and covariances of the mixture, given W."""
    keys = jax.random.split(key, 3)
    assignments, clusters = mixture.update_assignments(
        keys[0], state.frequencies, state.assignments, state.concentration, prior.base
    )
    n_clusters = jnp.sum(clusters.size > 0.5)
    concentration = mixture.update_concentration(
        keys[1], state.concentration, n_clusters, len(assignments), prior.base
    )
    components = mixture.draw_components(keys[2], clusters, prior.base)
    return state._replace(assignments=assignments, concentration=concentration, components=components)


def log_joint(state: State, data: Data, prior: Prior, likelihood: str) -> Array:
    """Compute log p(Y, X, H, W, z, alpha, a, ...) up to a constant, with mu and Sigma integrated out."""
    family = FAMILIES[likelihood]
    entries = data.observed * family.log_prob(data, functions(state), state)
    clusters, log_frequencies = mixture.gather(state.frequencies, state.assignments, prior.base)
    log_mixture = log_frequencies + mixture.log_partition(clusters.size, state.concentration, prior.base)
    return jnp.sum(entries) + log_mixture + log_prior(state, prior) + family.log_own_prior(state, prior)


def run(
    key: Array, state: State, data: Data, prior: Prior, likelihood: str, n_sweeps: int
) -> tuple[State, Trace, Array]:
    """Run some sweeps; return the last state, their trace, and the mean of f (N, M) over them."""

    def step(carry: tuple[State, Array], key: Array) -> tuple[tuple[State, Array], Trace]:
        state, total = carry
        state = sweep(key, state, data, prior, likelihood)
        joint = log_joint(state, data, prior, likelihood)
        n_clusters = jnp.sum(jnp.bincount(state.assignments, length=len(state.assignments)) > 0)
        trace = Trace(state.latents, state.frequencies, joint, n_clusters, state.amplitude)
        return (state, total + functions(state)), trace

    start = state, jnp.zeros_like(data.y)
    (state, total), trace = jax.lax.scan(step, start, jax.random.split(key, n_sweeps))
    return state, trace, total / n_sweeps
