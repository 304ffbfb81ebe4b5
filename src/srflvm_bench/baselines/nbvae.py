"""Negative-binomial variational autoencoder for counts (Zhao, Rai, Du, Buntine, Phung and Zhou, 2020).

Two decoders turn the latents of a row into the two parameters of every count,

    y_nm ~ NB(r_nm, p_nm),   r_nm = exp(h^r_m(x_n)),   p_nm = 1 / (1 + exp(-h^p_m(x_n))),

    log p(y) = log [Gamma(y + r) / (Gamma(r) y!)] + y log p + r log(1 - p),

so that log mean = h^r + h^p and log dispersion = h^r. The encoder and the bound are those of `vae`.
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
from srflvm.likelihoods.counts import NegativeBinomial
from srflvm_bench.baselines.networks import (
    Network,
    Training,
    apply_network,
    check_count_rows,
    in_float32,
    init_network,
    random_key,
    train,
)
from srflvm_bench.baselines.vae import divergence, draw, encode


class Parameters(NamedTuple):
    """Encoder M -> 2 Q and the decoders Q -> M of log r and of the log-odds of p."""

    encoder: Network
    decoder_r: Network
    decoder_p: Network


def log_pmf(y: Array, log_r: Array, logit_p: Array) -> Array:
    """Compute log NB(y | r, p) elementwise, with r held between 1e-3 and 1e5."""
    return NegativeBinomial().log_prob(y, log_r + logit_p, {"log_dispersion": log_r})


@dataclass(frozen=True)
class CountAutoencoder:
    """Model of the training loop. A batch holds counts and the encoder's inputs."""

    def bound(self, parameters: Parameters, key: Array, y: Array, inputs: Array) -> Array:
        """Estimate the bound of every row (B,) from one draw."""
        encoding = encode(parameters.encoder, inputs, jnp.tanh)
        latents = draw(key, encoding)
        log_r = apply_network(parameters.decoder_r, latents, jnp.tanh)
        logit_p = apply_network(parameters.decoder_p, latents, jnp.tanh)
        return jnp.sum(log_pmf(y, log_r, logit_p), axis=-1) - divergence(encoding)

    def loss(self, parameters: Parameters, state: Any, key: Array, batch: Any) -> tuple[Array, Any]:
        return -jnp.mean(self.bound(parameters, key, *batch)), state

    def adjust(self, parameters: Parameters, state: Any) -> Parameters:
        return parameters


def encoder_inputs(Y: FloatArray) -> FloatArray:
    """Compute log(1 + y), with columns centred and divided by one common number."""
    logs = np.log1p(Y)
    centred = logs - logs.mean(axis=0)
    spread = centred.std()
    return centred / (spread if spread > 0.0 else 1.0)


class NBVAE(BaseEstimator):
    """Negative-binomial variational autoencoder.

    Parameters
    ----------
    n_components : int
        Number of latent dimensions.
    hidden : sequence of int
        Sizes of the encoder's hidden layers; the decoders have them in reverse.
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
    Zhao, Rai, Du, Buntine, Phung and Zhou (2020), Variational autoencoders for sparse and overdispersed
    discrete data.
    """

    def __init__(
        self,
        n_components: int = 2,
        *,
        hidden: Sequence[int] = (200,),
        n_epochs: int = 300,
        batch_size: int = 128,
        learning_rate: float = 1e-3,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.hidden = hidden
        self.n_epochs = n_epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.random_state = random_state

    def fit_transform(self, Y: Any) -> FloatArray:
        """Train on counts Y (N, M) and return the embedding (N, n_components)."""
        Y = check_count_rows(Y, "NBVAE's negative binomial")
        with in_float32():
            start_key, training_key = jax.random.split(random_key(self.random_state))
            y, inputs = (jnp.asarray(part, jnp.float32) for part in (Y, encoder_inputs(Y)))
            training = Training(self.n_epochs, self.batch_size, self.learning_rate)
            fit = train(CountAutoencoder(), self._start(start_key, Y), (y, inputs), training, training_key)
            encoding = encode(fit.parameters.encoder, inputs, jnp.tanh)
            self.embedding_ = np.asarray(encoding.mean, np.float64)
        self.bound_history_ = -np.array(fit.losses)
        return self.embedding_

    def _start(self, key: Array, Y: FloatArray) -> Parameters:
        """Draw the first parameters, with biases such that every column starts at its mean, and r = 1."""
        keys = jax.random.split(key, 3)
        n_columns = Y.shape[1]
        encoder = init_network(keys[0], (n_columns, *self.hidden, 2 * self.n_components))
        sizes = (self.n_components, *reversed(self.hidden), n_columns)
        decoder_r, decoder_p = init_network(keys[1], sizes), init_network(keys[2], sizes)
        level = jnp.asarray(np.log(Y.mean(axis=0) + 0.5 / len(Y)), jnp.float32)
        return Parameters(encoder, decoder_r, (*decoder_p[:-1], decoder_p[-1]._replace(bias=level)))
