"""Variational autoencoder (Kingma and Welling, 2014).

Latents x_n ~ N(0, I) are decoded by a network into the parameters of p(y_n | x_n); another network encodes
y_n into q(x_n) = N(mean, diag(e^log_variance)). With one reparameterised draw x_n of q, the bound of a row is

    log p(y_n | x_n) - KL(q(x_n) || N(0, I)),   KL = 1/2 sum_q (mean^2 + e^log_variance - log_variance - 1).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from sklearn.base import BaseEstimator

from srflvm._typing import FloatArray
from srflvm.likelihoods.gaussian import Gaussian
from srflvm_bench.baselines.networks import (
    Network,
    Training,
    apply_network,
    check_rows,
    in_float32,
    init_network,
    random_key,
    train,
)


class Encoding(NamedTuple):
    """q(x_n) of every row: mean and log variance, (B, Q) each."""

    mean: Array
    log_variance: Array


class Parameters(NamedTuple):
    """Encoder M -> 2 Q, decoder Q -> M, and the logarithm of the noise variance of Gaussian data."""

    encoder: Network
    decoder: Network
    log_noise: Array


def encode(encoder: Network, inputs: Array, activation: Any = jax.nn.relu) -> Encoding:
    """Compute q(x_n): the first half of the encoder's outputs are means, the others log variances."""
    return Encoding(*jnp.split(apply_network(encoder, inputs, activation), 2, axis=-1))


def draw(key: Array, encoding: Encoding) -> Array:
    """Draw once from every q(x_n), differentiably in its moments."""
    noise = jax.random.normal(key, encoding.mean.shape, encoding.mean.dtype)
    return encoding.mean + jnp.exp(0.5 * encoding.log_variance) * noise


def divergence(encoding: Encoding) -> Array:
    """Compute KL(q(x_n) || N(0, I)) of every row (B,)."""
    mean, log_variance = encoding
    return 0.5 * jnp.sum(mean**2 + jnp.exp(log_variance) - log_variance - 1.0, axis=-1)


@dataclass(frozen=True)
class Autoencoder:
    """Model of the training loop, for Gaussian or Bernoulli data."""

    bernoulli: bool

    def log_likelihood(self, parameters: Parameters, latents: Array, y: Array, observed: Array) -> Array:
        """Compute log p of the observed entries of every row (B,).

        Greys between 0 and 1 count as averages of binary entries.
        """
        f = apply_network(parameters.decoder, latents)
        if self.bernoulli:
            entries = y * f - jax.nn.softplus(f)
        else:
            entries = Gaussian().log_prob(y, f, {"log_noise": parameters.log_noise})
        return jnp.sum(observed * entries, axis=-1)

    def bound(self, parameters: Parameters, key: Array, y: Array, observed: Array) -> Array:
        """Estimate the bound of every row (B,) from one draw.

        The encoder sees the values of y in the place of missing entries.
        """
        encoding = encode(parameters.encoder, y)
        return self.log_likelihood(parameters, draw(key, encoding), y, observed) - divergence(encoding)

    def mean(self, parameters: Parameters, latents: Array) -> Array:
        """Compute the mean of y given latents."""
        f = apply_network(parameters.decoder, latents)
        return jax.nn.sigmoid(f) if self.bernoulli else f

    def loss(self, parameters: Parameters, state: Any, key: Array, batch: Any) -> tuple[Array, Any]:
        return -jnp.mean(self.bound(parameters, key, *batch)), state

    def adjust(self, parameters: Parameters, state: Any) -> Parameters:
        return parameters


class VAE(BaseEstimator):
    """Variational autoencoder.

    Parameters
    ----------
    n_components : int
        Number of latent dimensions.
    likelihood : {"auto", "gaussian", "bernoulli"}
        "auto" takes "bernoulli" where all entries lie in [0, 1]. Gaussian columns are centred and divided by
        one common number, and share a learned noise variance.
    hidden : sequence of int
        Sizes of the encoder's hidden layers; the decoder has them in reverse.
    n_epochs, batch_size, learning_rate
        Greatest number of epochs, and the steps of Adam.
    random_state : int, RandomState or None
        Source of randomness.

    Attributes
    ----------
    embedding_ : ndarray (N, n_components)
        Means of q(x_n).
    bound_history_ : ndarray
        Mean bound of a row in every epoch.

    References
    ----------
    Kingma and Welling (2014), Auto-encoding variational Bayes.
    """

    def __init__(
        self,
        n_components: int = 2,
        *,
        likelihood: str = "auto",
        hidden: Sequence[int] = (400,),
        n_epochs: int = 500,
        batch_size: int = 128,
        learning_rate: float = 1e-3,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.likelihood = likelihood
        self.hidden = hidden
        self.n_epochs = n_epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.random_state = random_state

    def fit_transform(self, Y: Any) -> FloatArray:
        """Train on Y (N, M) and return the embedding (N, n_components)."""
        self._train(check_rows(Y))
        return self.embedding_

    def reconstruct(self, Y: Any) -> FloatArray:
        """Train on the entries that are not NaN and decode all (N, M) from the means of q(x_n).

        The encoder sees the column's mean where an entry is missing.
        """
        return self._train(check_rows(Y, allow_missing=True))

    def _train(self, Y: FloatArray) -> FloatArray:
        """Fit, and return Y decoded from the embedding."""
        observed = ~np.isnan(Y)
        model = Autoencoder(self._is_bernoulli(Y[observed]))
        Y = np.where(observed, Y, np.nanmean(Y, axis=0))
        location, scale = (np.zeros(1), np.ones(1)) if model.bernoulli else Gaussian().units(Y)
        with in_float32():
            start_key, training_key = jax.random.split(random_key(self.random_state))
            y = jnp.asarray((Y - location) / scale, jnp.float32)
            training = Training(self.n_epochs, self.batch_size, self.learning_rate)
            start, data = self._start(start_key, Y.shape[1]), (y, jnp.asarray(observed, jnp.float32))
            fit = train(model, start, data, training, training_key)
            latents = encode(fit.parameters.encoder, y).mean
            decoded = np.asarray(model.mean(fit.parameters, latents), np.float64)
        self.embedding_ = np.asarray(latents, np.float64)
        self.bound_history_ = -np.array(fit.losses)
        return location + scale * decoded

    def _is_bernoulli(self, Y: FloatArray) -> bool:
        """Return whether the entries are Bernoulli, and refuse those that cannot be."""
        inside = bool(Y.min() >= 0.0 and Y.max() <= 1.0)
        if self.likelihood not in ("auto", "gaussian", "bernoulli"):
            raise ValueError(
                f"likelihood={self.likelihood!r} is not known. Use 'auto', 'gaussian' or 'bernoulli'."
            )
        if self.likelihood == "bernoulli" and not inside:
            raise ValueError("likelihood='bernoulli' needs entries in [0, 1]; rescale Y or use 'gaussian'.")
        return self.likelihood == "bernoulli" or (self.likelihood == "auto" and inside)

    def _start(self, key: Array, n_columns: int) -> Parameters:
        """Draw the first parameters."""
        keys = jax.random.split(key)
        encoder = init_network(keys[0], (n_columns, *self.hidden, 2 * self.n_components))
        decoder = init_network(keys[1], (self.n_components, *reversed(self.hidden), n_columns))
        return Parameters(encoder, decoder, jnp.zeros(()))
