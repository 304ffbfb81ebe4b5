"""State of the model, its evidence lower bound, and the blocks that raise it.

Blocks in order: {X, the mixture of W, the entries of the layer} by gradients, {z} by gradients, {v} and
{alpha} in closed form. The bound, estimated with I draws of X and W, is

    (1/I) sum_i log p(Y | Phi(X_i, W_i)) - KL(q(X) || p(X)) - KL(q(z, v, alpha) || p(z, v, alpha)).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from scipy.special import softmax

from srflvm._typing import FloatArray
from srflvm.bcd import ClosedFormBlock, GradientBlock, Model, State
from srflvm.model import spectral

if TYPE_CHECKING:
    from srflvm.model.evidence_layers import Layer

STEPS_PER_SWEEP = 5

_LATENT_LOG_STD = -3.5


@dataclass(frozen=True)
class Settings:
    """Settings that the compiled program depends on."""

    layer: Layer
    frequency_sampling: str = "mixture"
    n_samples: int = 1


@dataclass(frozen=True)
class StartingPoint:
    """Start of a run: latents (N, Q), and the scales found for them.

    `noise / ratio` is the variance of the function on the working scale. A start of a model with an affine
    part also has the standard deviations (Q,) of slopes on that scale, and Cholesky factors (N, Q, Q) of q(X)
    if it knows them.
    """

    name: str
    latents: FloatArray
    frequency_scale: float
    noise: float
    ratio: float
    slopes: FloatArray | None = None
    cholesky: FloatArray | None = None


def initial_state(
    start: StartingPoint,
    rng: np.random.RandomState,
    *,
    n_frequencies: int,
    n_mixture: int,
    covariance_type: str,
    latent_covariance_type: str,
    dtype: np.dtype,
) -> State:
    """Return the state at a start; components are spread over a factor of four around the found scale."""
    n_rows, n_latent = start.latents.shape
    spread = np.log(start.frequency_scale) + np.linspace(-0.7, 0.7, n_mixture) * (n_mixture > 1)
    log_stds = np.repeat(spread[:, None], n_latent, axis=1)
    latent_factor = _factor(np.full((n_rows, n_latent), _LATENT_LOG_STD), latent_covariance_type)
    if start.cholesky is not None:
        latent_factor = free_factor(start.cholesky, latent_covariance_type == "diag")
    logits = 0.1 * rng.standard_normal((n_frequencies, n_mixture))
    counts = np.sum(softmax(logits, axis=1), axis=0)
    beyond = np.sum(counts) - np.cumsum(counts)
    return {
        "latent_mean": start.latents.astype(dtype),
        "latent_factor": latent_factor.astype(dtype),
        "mixture_mean": 0.1 * rng.standard_normal((n_mixture, n_latent)),
        "mixture_factor": _factor(log_stds, covariance_type),
        "logits": logits,
        "sticks": spectral.Sticks(1.0 + counts[:-1], 1.0 + beyond[:-1]),
        "concentration": spectral.Concentration(np.ones(()), np.ones(())),
    }


def _factor(log_stds: FloatArray, covariance_type: str) -> FloatArray:
    """Return free parameters of Cholesky factors: log standard deviations, on a diagonal if "full"."""
    if covariance_type == "diag":
        return log_stds
    return log_stds[..., None] * np.eye(log_stds.shape[-1])


def cholesky_factor(factor: Any) -> Any:
    """Return lower Cholesky factors C = D (I + T) from free parameters of shape (n, Q) or (n, Q, Q).

    D is the exponential of the diagonal and T the strict lower triangle: every real array is a valid
    factor, and a step of a given size means the same relative change at every scale.
    """
    xp = factor.__array_namespace__()
    identity = xp.eye(factor.shape[-1], dtype=factor.dtype)
    if factor.ndim == 2:
        return xp.exp(factor)[..., None] * identity
    scale = xp.exp(_log_stds(factor))
    return scale[..., None] * (identity + xp.tril(factor, -1))


def free_factor(cholesky: FloatArray, diagonal: bool) -> FloatArray:
    """Return the free parameters whose `cholesky_factor` is given, or those of its diagonal alone."""
    stds = np.diagonal(cholesky, axis1=1, axis2=2)
    if diagonal:
        return np.log(stds)
    relative = np.tril(cholesky / stds[:, :, None], -1)
    return relative + np.log(stds)[:, :, None] * np.eye(stds.shape[1])


def _log_stds(factor: Any) -> Any:
    """Return the log standard deviations (n, Q) among the free parameters."""
    xp = factor.__array_namespace__()
    return factor if factor.ndim == 2 else xp.diagonal(factor, 0, -2, -1)


def mixture_of(state: State) -> spectral.Mixture:
    """Return the mixture over frequencies; means are stored in units of the spread of their component."""
    factor = state["mixture_factor"]
    scale = factor.__array_namespace__().exp(_log_stds(factor))
    return spectral.Mixture(scale * state["mixture_mean"], cholesky_factor(factor))


def frequency_sampler(state: State, settings: Settings) -> spectral.Sampler:
    """Return a function of the key that draws W from q(W)."""
    return spectral.SAMPLERS[settings.frequency_sampling](mixture_of(state), state["logits"])


def _sample_latents(key: Array, state: State) -> Array:
    """Draw X from q(X), reparameterised.

    The generator is counter-based: its draw for a row depends neither on the number of rows nor on how they
    are spread over devices.
    """
    mean, factor = state["latent_mean"], state["latent_factor"]
    counter_based = jax.random.wrap_key_data(jax.random.key_data(key)[:2], impl="threefry2x32")
    noise = jax.random.normal(counter_based, mean.shape, mean.dtype)
    if factor.ndim == 2:
        return mean + jnp.exp(factor) * noise
    return mean + jnp.einsum("nqr,nr->nq", cholesky_factor(factor), noise)


def _latent_divergence(state: State) -> Array:
    """Return KL(q(X) || N(0, I)) = 1/2 sum_n [tr S_n + |mean_n|^2 - log|S_n| - Q]."""
    mean, factor = state["latent_mean"], state["latent_factor"]
    log_stds = _log_stds(factor)
    trace = jnp.sum(cholesky_factor(factor) ** 2, axis=(-2, -1))
    per_row = 0.5 * (trace + jnp.sum(mean**2 - 2.0 * log_stds - 1.0, axis=-1))
    return jnp.sum(per_row, dtype=jnp.float64)


def _expected_evidence(key: Array, state: State, data: Any, settings: Settings) -> tuple[Array, State]:
    """Estimate E[log p(Y | X, W)] under q(X) q(W) without bias; also return the next carried entries."""
    total, carried = jnp.zeros(()), {}
    sample_frequencies = frequency_sampler(state, settings)
    for draw_key in jax.random.split(key, settings.n_samples):
        latent_key, frequency_key = jax.random.split(draw_key)
        layer_key = jax.random.fold_in(draw_key, 1)
        current = {**state, **carried}
        frequency_key = settings.layer.frequency_key(frequency_key, current)
        if "frequency_key" in settings.layer.carries:
            current["frequency_key"] = jax.random.key_data(frequency_key)
        latents = _sample_latents(latent_key, state)
        frequencies = sample_frequencies(frequency_key).astype(latents.dtype)
        value, carried = settings.layer.evidence(layer_key, latents, frequencies, current, data)
        total += value
    return total / settings.n_samples, carried


def _local_bound(key: Array, state: State, data: Any, settings: Settings) -> Any:
    """Estimate the terms of the bound in X, W, z and the layer without bias.

    The next carried entries are returned with them, if the layer carries any.
    """
    evidence, carried = _expected_evidence(key, state, data, settings)
    divergence = state["sticks"].assignment_divergence(state["logits"])
    bound = evidence - _latent_divergence(state) - divergence
    return (bound, carried) if settings.layer.carries else bound


# The blocks of v and alpha and their bound hold a few numbers: NumPy makes them, which compiles nothing.


def _stick_bound(key: Array, state: State, data: Any) -> Any:
    """Return the other terms of the bound, in v and alpha alone."""
    sticks, concentration = _of_numpy(state["sticks"]), _of_numpy(state["concentration"])
    return sticks.bound(concentration)


def _solve_sticks(key: Array, state: State, data: Any) -> State:
    assignments = softmax(np.asarray(state["logits"]), axis=-1)
    return {"sticks": spectral.Sticks.best(assignments, _of_numpy(state["concentration"]))}


def _solve_concentration(key: Array, state: State, data: Any) -> State:
    return {"concentration": spectral.Concentration.best(_of_numpy(state["sticks"]))}


def _of_numpy(factor: Any) -> Any:
    """Return a factor of the mixture with its numbers as NumPy arrays."""
    return type(factor)(*(np.asarray(part) for part in factor))


@lru_cache(maxsize=32)
def build_model(settings: Settings) -> Model:
    """Return the model as `bcd` sees it, cached, so that a second fit finds the compiled sweep."""
    objective = partial(_local_bound, settings=settings)
    likelihood = GradientBlock(
        "likelihood",
        ("latent_mean", "latent_factor", "mixture_mean", "mixture_factor", *settings.layer.owns),
        objective,
        n_steps=STEPS_PER_SWEEP,
        carries=settings.layer.carries,
        is_heavy=settings.layer.is_heavy,
    )
    assignments = GradientBlock(
        "assignments",
        ("logits",),
        objective,
        carries=settings.layer.carries,
        is_heavy=settings.layer.is_heavy,
    )
    sticks = ClosedFormBlock("sticks", _solve_sticks)
    concentration = ClosedFormBlock("concentration", _solve_concentration)
    return Model((likelihood, assignments, sticks, concentration), _stick_bound)
