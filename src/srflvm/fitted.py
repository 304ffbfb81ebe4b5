"""Fitted attributes: from the result of a fit to an estimator, and what follows from them."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import softmax

from srflvm import blocks, spectral
from srflvm._types import FloatArray
from srflvm.fitting import Fitted


def record(estimator: Any, fitted: Fitted) -> None:
    """Set the fitted attributes, all NumPy or plain Python."""
    posterior, embedding = fitted.posterior, fitted.embedding
    square = posterior.columns.scale**2
    estimator._posterior = posterior
    estimator._state = jax.tree.map(np.array, fitted.state)
    estimator.embedding_ = embedding.mean
    estimator.embedding_std_ = np.sqrt(np.sum(embedding.cholesky**2, axis=-1))
    estimator.elbo_ = float(fitted.elbo)
    estimator.elbo_history_ = fitted.history
    estimator.n_iter_ = len(fitted.history)
    estimator.converged_ = bool(fitted.converged)
    estimator.interrupted_ = bool(fitted.interrupted)
    estimator.start_ = fitted.start
    estimator.start_elbos_ = {name: float(bound) for name, bound in fitted.start_elbos.items()}
    estimator.n_rejected_steps_ = int(fitted.n_rejected)
    estimator.noise_variance_ = float(square * posterior.noise)
    estimator.amplitude_ = float(square * posterior.noise / posterior.ratio)
    estimator.frequencies_ = posterior.frequencies
    _record_mixture(estimator)


def _record_mixture(estimator: Any) -> None:
    state = estimator._state
    mixture, concentration = blocks.mixture_of(state), state["concentration"]
    estimator.mixture_weights_ = np.mean(softmax(state["logits"], axis=-1), axis=0)
    estimator.mixture_means_ = mixture.means
    estimator.mixture_covariances_ = np.einsum("kqr,ksr->kqs", mixture.choleskys, mixture.choleskys)
    estimator.concentration_ = float(concentration.shape / concentration.rate)


def stationary_kernel(estimator: Any, differences: FloatArray) -> FloatArray:
    """The mixture's kernel of unit variance at latent differences."""
    with jax.enable_x64(True):
        weights, mixture = _mixture(estimator)
        return np.asarray(spectral.kernel(jnp.asarray(differences), weights, mixture))


def stationary_spectral_density(estimator: Any, frequencies: FloatArray) -> FloatArray:
    """The mixture's density at frequencies."""
    with jax.enable_x64(True):
        weights, mixture = _mixture(estimator)
        return np.asarray(spectral.spectral_density(jnp.asarray(frequencies), weights, mixture))


def _mixture(estimator: Any) -> tuple[jax.Array, spectral.Mixture]:
    means = jnp.asarray(estimator.mixture_means_)
    choleskys = jnp.linalg.cholesky(jnp.asarray(estimator.mixture_covariances_))
    return jnp.asarray(estimator.mixture_weights_), spectral.Mixture(means, choleskys)
