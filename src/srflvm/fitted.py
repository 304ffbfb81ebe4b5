"""Fitted attributes: from the result of a fit to an estimator, and what follows from them."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import softmax

from srflvm import bcd, blocks, spectral
from srflvm._types import FloatArray
from srflvm.batches import Stream
from srflvm.computing import in_float64
from srflvm.embedding import Embedding
from srflvm.exceptions import NumericalError
from srflvm.fit_contract import Fitted
from srflvm.gaussian_posterior import GaussianPosterior
from srflvm.posterior import Posterior
from srflvm.site_posterior import SitePosterior

# Entries of the state with a value for every entry of Y; a warm start makes them anew.
_BELONGS_TO_THE_DATA = ("fill", "sites", "order", "visit")


def record(estimator: Any, fitted: Fitted) -> None:
    """Set the fitted attributes, all NumPy or plain Python, unless any of them would not be finite."""
    if not fitted.is_finite:
        raise NumericalError(
            "The latents or the weights of the fit are not finite, and were not kept. Look for extreme "
            "outliers in Y and for columns of very different size, or set dtype='float64'."
        )
    posterior, embedding = fitted.posterior, fitted.embedding
    kept = {name: value for name, value in fitted.state.items() if name not in _BELONGS_TO_THE_DATA}
    estimator._posterior = posterior
    estimator._state = jax.tree.map(np.array, kept)
    estimator._stream = fitted.stream
    estimator.n_samples_seen_ = fitted.stream.sums.n_rows if fitted.stream else len(embedding.mean)
    estimator.embedding_ = embedding.mean
    estimator.embedding_std_ = np.sqrt(np.sum(embedding.cholesky**2, axis=-1))
    vars(estimator).pop("size_factors_", None)
    if fitted.sizes is not None:
        estimator.size_factors_ = fitted.sizes
    estimator.elbo_ = float(fitted.elbo)
    estimator.elbo_history_ = fitted.history
    estimator.n_iter_ = len(fitted.history)
    estimator.converged_ = bool(fitted.converged)
    estimator.interrupted_ = bool(fitted.interrupted)
    estimator.start_ = fitted.start
    estimator.start_elbos_ = {name: float(bound) for name, bound in fitted.start_elbos.items()}
    estimator.n_rejected_steps_ = int(fitted.n_rejected)
    estimator.frequencies_ = posterior.frequencies
    estimator.relevance_ = _relevance(embedding)
    _record_likelihood(estimator, posterior)
    _record_mixture(estimator)


def record_stream(
    estimator: Any,
    posterior: Posterior,
    placed: Embedding,
    stream: Stream,
    bound: float,
    log_sizes: FloatArray | None,
) -> None:
    """Set the fitted attributes after further rows of a stream. The bound on all rows seen adds up what the
    rows of each call gave when they were seen."""
    elbo = estimator.elbo_ + estimator._stream.divergence + bound - stream.divergence
    state = latents_and_likelihood(estimator._state, posterior, placed)
    fitted = Fitted(
        posterior=posterior,
        embedding=placed,
        state=state,
        elbo=elbo,
        history=np.append(estimator.elbo_history_, elbo),
        n_rejected=estimator.n_rejected_steps_,
        converged=estimator.converged_,
        interrupted=estimator.interrupted_,
        stopped=False,
        start=estimator.start_,
        start_elbos=estimator.start_elbos_,
        stream=stream,
        sizes=_sizes(posterior, placed, log_sizes),
    )
    record(estimator, fitted)


def latents_and_likelihood(state: bcd.State, posterior: Posterior, placed: Embedding) -> bcd.State:
    """A state with the latents of other rows, and with what a posterior has learned of the likelihood."""
    diagonal, dtype = state["latent_factor"].ndim == 2, np.asarray(state["latent_mean"]).dtype
    latents = {
        "latent_mean": placed.mean.astype(dtype),
        "latent_factor": np.asarray(blocks.free_factor(placed.cholesky, diagonal), dtype),
    }
    if isinstance(posterior, GaussianPosterior):
        noise = {"log_noise": np.log(posterior.noise), "log_ratio": np.log(posterior.ratio)}
        return state | latents | {name: np.array(value) for name, value in noise.items()}
    assert isinstance(posterior, SitePosterior)
    amplitudes = tuple(np.log(posterior.amplitude[group.channels]) for group in posterior.layout.groups)
    return state | latents | {"parameters": posterior.parameters, "log_amplitude": amplitudes}


def _sizes(posterior: Posterior, placed: Embedding, log_sizes: FloatArray | None) -> FloatArray | None:
    """Return the size factors of rows with counts: ones where they have no sizes."""
    if len(posterior.layout.count_columns) == 0:
        return None
    return np.ones(len(placed.mean)) if log_sizes is None else np.exp(log_sizes)


def _relevance(embedding: Embedding) -> FloatArray:
    """The mean over rows of KL(q(x_nq) || N(0, 1))."""
    variance = np.sum(embedding.cholesky**2, axis=-1)
    return np.mean(0.5 * (embedding.mean**2 + variance - 1.0 - np.log(variance)), axis=0)


def _record_likelihood(estimator: Any, posterior: Posterior) -> None:
    if isinstance(posterior, GaussianPosterior):
        square = posterior.columns.scale**2
        estimator.noise_variance_ = float(square * posterior.noise)
        estimator.amplitude_ = float(square * posterior.noise / posterior.ratio)
        estimator.likelihood_parameters_ = {}
        return
    assert isinstance(posterior, SitePosterior)
    estimator.amplitude_ = float(np.mean(posterior.amplitude))
    estimator.likelihood_parameters_ = _learned_by_column(posterior)
    vars(estimator).pop("noise_variance_", None)
    if "noise_variance" in estimator.likelihood_parameters_:
        estimator.noise_variance_ = estimator.likelihood_parameters_["noise_variance"]


def _learned_by_column(posterior: SitePosterior) -> dict[str, FloatArray]:
    """The learned parameters of all columns that are single channels, on their natural scales."""
    by_column: dict[str, FloatArray] = {}
    for group, learned in zip(posterior.layout.groups, posterior.parameters, strict=True):
        for name, values in group.likelihood.natural_parameters(learned, group.units).items():
            column = by_column.setdefault(name, np.full(posterior.layout.n_columns, np.nan))
            column[group.columns] = values
    return by_column


def _record_mixture(estimator: Any) -> None:
    state = estimator._state
    mixture, concentration = blocks.mixture_of(state), state["concentration"]
    estimator.mixture_weights_ = np.mean(softmax(state["logits"], axis=-1), axis=0)
    estimator.mixture_means_ = mixture.means
    estimator.mixture_covariances_ = np.einsum("kqr,ksr->kqs", mixture.choleskys, mixture.choleskys)
    estimator.concentration_ = float(concentration.shape / concentration.rate)


def stationary_kernel(estimator: Any, differences: FloatArray) -> FloatArray:
    """The mixture's kernel of unit variance at latent differences."""
    with in_float64():
        weights, mixture = _mixture(estimator)
        return np.asarray(spectral.kernel(jnp.asarray(differences), weights, mixture))


def stationary_spectral_density(estimator: Any, frequencies: FloatArray) -> FloatArray:
    """The mixture's density at frequencies."""
    with in_float64():
        weights, mixture = _mixture(estimator)
        return np.asarray(spectral.spectral_density(jnp.asarray(frequencies), weights, mixture))


def _mixture(estimator: Any) -> tuple[jax.Array, spectral.Mixture]:
    means = jnp.asarray(estimator.mixture_means_)
    choleskys = jnp.linalg.cholesky(jnp.asarray(estimator.mixture_covariances_))
    return jnp.asarray(estimator.mixture_weights_), spectral.Mixture(means, choleskys)
