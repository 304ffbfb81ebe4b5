"""Deep count autoencoder (Eraslan, Simon, Mircea, Mueller and Theis, 2019).

An autoencoder with a narrow middle, without a prior on it, whose outputs are the parameters of a distribution
of counts. With the size s_n of a row, its total divided by the median total, and the decoder's last hidden
layer d_n,

    mean_n = s_n exp(W_mean d_n),  dispersion_n = exp(W_dispersion d_n),  dropout_n = sigmoid(W_dropout d_n),

and the loss is minus the log probability of the counts under the negative binomial distribution, or under a
mixture of it (1 - dropout) and of zero (dropout). The input is log(1 + y_nm / s_n), with columns of zero mean
and unit variance.
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
    Layer,
    Network,
    Training,
    apply_network,
    check_count_rows,
    in_float32,
    init_network,
    random_key,
    train,
)


class Parameters(NamedTuple):
    """Encoder M -> Q, decoder Q -> hidden, and the layers hidden -> M of the three parameters of a count."""

    encoder: Network
    decoder: Network
    mean: Layer
    dispersion: Layer
    dropout: Layer


class Output(NamedTuple):
    """Parameters of every count (B, M): log mean without sizes, log dispersion, log-odds of dropout."""

    log_mean: Array
    log_dispersion: Array
    logit_dropout: Array


def log_pmf(y: Array, log_mean: Array, log_dispersion: Array) -> Array:
    """Compute log NB(y) elementwise, with variance mean + mean^2 / dispersion."""
    return NegativeBinomial().log_prob(y, log_mean, {"log_dispersion": log_dispersion})


def zero_inflated_log_pmf(y: Array, log_mean: Array, log_dispersion: Array, logit_dropout: Array) -> Array:
    """Compute log [dropout 1(y = 0) + (1 - dropout) NB(y)] elementwise."""
    counted = log_pmf(y, log_mean, log_dispersion) - jax.nn.softplus(logit_dropout)
    dropped = -jax.nn.softplus(-logit_dropout)
    return jnp.where(y > 0, counted, jnp.logaddexp(dropped, counted))


def decode(parameters: Parameters, latents: Array) -> Output:
    """Decode latents into the parameters of every count."""
    hidden = jax.nn.relu(apply_network(parameters.decoder, latents))
    return Output(parameters.mean(hidden), parameters.dispersion(hidden), parameters.dropout(hidden))


@dataclass(frozen=True)
class CountDenoiser:
    """Model of the training loop. A batch holds counts, the encoder's inputs, and log sizes (B, 1)."""

    zero_inflated: bool

    def loss(self, parameters: Parameters, state: Any, key: Array, batch: Any) -> tuple[Array, Any]:
        y, inputs, log_sizes = batch
        output = decode(parameters, apply_network(parameters.encoder, inputs))
        log_mean = output.log_mean + log_sizes
        if self.zero_inflated:
            value = zero_inflated_log_pmf(y, log_mean, output.log_dispersion, output.logit_dropout)
        else:
            value = log_pmf(y, log_mean, output.log_dispersion)
        return -jnp.mean(value), state

    def adjust(self, parameters: Parameters, state: Any) -> Parameters:
        return parameters


def row_sizes(Y: FloatArray) -> FloatArray:
    """Return totals divided by their median (N, 1), and one for an empty row."""
    totals = Y.sum(axis=1, keepdims=True)
    filled = totals > 0.0
    median = np.median(totals[filled]) if filled.any() else 1.0
    return np.where(filled, totals / median, 1.0)


def encoder_inputs(Y: FloatArray, sizes: FloatArray) -> FloatArray:
    """Compute log(1 + y / size), and standardise its columns; a constant column becomes zero."""
    logs = np.log1p(Y / sizes)
    spread = logs.std(axis=0)
    return (logs - logs.mean(axis=0)) / np.where(spread > 0.0, spread, 1.0)


class DCA(BaseEstimator):
    """Deep count autoencoder.

    The middle layer is linear, because two rectified units would map most rows to zero.

    Parameters
    ----------
    n_components : int
        Width of the middle layer.
    zero_inflated : bool
        If True, zeros may also arise by dropout.
    hidden : sequence of int
        Sizes of the encoder's hidden layers; the decoder has them in reverse.
    n_epochs, batch_size, learning_rate
        Greatest number of epochs, and the steps of Adam.
    random_state : int, RandomState or None
        Source of randomness.

    Attributes
    ----------
    embedding_ : ndarray (N, n_components)
        The middle layer.
    denoised_ : ndarray (N, M)
        Means of the counts.
    loss_history_ : ndarray
        Minus the mean log probability of an entry in every epoch.

    References
    ----------
    Eraslan, Simon, Mircea, Mueller and Theis (2019), Single-cell RNA-seq denoising using a deep count
    autoencoder.
    """

    def __init__(
        self,
        n_components: int = 2,
        *,
        zero_inflated: bool = False,
        hidden: Sequence[int] = (64,),
        n_epochs: int = 300,
        batch_size: int = 32,
        learning_rate: float = 1e-3,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.zero_inflated = zero_inflated
        self.hidden = hidden
        self.n_epochs = n_epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.random_state = random_state

    def fit_transform(self, Y: Any) -> FloatArray:
        """Train on counts Y (N, M) and return the embedding (N, n_components)."""
        Y = check_count_rows(Y, "DCA's negative binomial")
        sizes = row_sizes(Y)
        with in_float32():
            start_key, training_key = jax.random.split(random_key(self.random_state))
            inputs = jnp.asarray(encoder_inputs(Y, sizes), jnp.float32)
            data = jnp.asarray(Y, jnp.float32), inputs, jnp.asarray(np.log(sizes), jnp.float32)
            training = Training(self.n_epochs, self.batch_size, self.learning_rate)
            model, start = CountDenoiser(self.zero_inflated), self._start(start_key, Y / sizes)
            fit = train(model, start, data, training, training_key)
            latents = apply_network(fit.parameters.encoder, inputs)
            means = np.exp(np.asarray(decode(fit.parameters, latents).log_mean, np.float64))
            self.embedding_ = np.asarray(latents, np.float64)
        self.denoised_ = sizes * means
        self.loss_history_ = np.array(fit.losses)
        return self.embedding_

    def _start(self, key: Array, scaled: FloatArray) -> Parameters:
        """Draw the first parameters.

        Biases are such that every column starts at its mean, with dispersion one and dropout one half.
        """
        keys = jax.random.split(key, 5)
        n_columns, width = scaled.shape[1], self.hidden[0]
        encoder = init_network(keys[0], (n_columns, *self.hidden, self.n_components))
        decoder = init_network(keys[1], (self.n_components, *reversed(self.hidden)))
        mean, dispersion, dropout = (init_network(k, (width, n_columns))[0] for k in keys[2:])
        level = jnp.asarray(np.log(scaled.mean(axis=0) + 0.5 / len(scaled)), jnp.float32)
        return Parameters(encoder, decoder, mean._replace(bias=level), dispersion, dropout)
