"""Vector-quantised autoencoder with an online clustered codebook (Zheng and Vedaldi, 2023).

The encoder sends a row to x_n, the nearest of K codes e_k replaces it, and the decoder sees that code. With
sg for "without gradient", the loss is

    |y_n - decoder(x_n + sg(e - x_n))|^2 / M + |e - sg(x_n)|^2 / Q + commitment |sg(e) - x_n|^2 / Q,

in which the first term's gradient ignores the quantisation. Codes that are nearest to no row have no gradient
and would never be used. So the average use of every code is tracked, and after each step codes are pulled to
anchors, encoded rows of the batch, the more the less they are used,

    use_k <- decay use_k + (1 - decay) (share of rows nearest to e_k),
    pull_k = exp(-10 K use_k / (1 - decay) - 0.001),   e_k <- (1 - pull_k) e_k + pull_k anchor_k.
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

ANCHORS = ("random", "closest")


class Parameters(NamedTuple):
    """Encoder M -> Q, decoder Q -> M, and the codes (K, Q)."""

    encoder: Network
    decoder: Network
    codes: Array


class Usage(NamedTuple):
    """Average use of every code (K,), and an anchor for each (K, Q)."""

    average: Array
    anchors: Array


def square_distances(latents: Array, codes: Array) -> Array:
    """Compute |x_n - e_k|^2 (B, K)."""
    return jnp.sum((latents[:, None, :] - codes) ** 2, axis=-1)


def straight_through(latents: Array, quantised: Array) -> Array:
    """Return the quantised latents, with the gradient of the latents."""
    return latents + jax.lax.stop_gradient(quantised - latents)


def choose_anchors(key: Array, latents: Array, distances: Array, anchor: str) -> Array:
    """Choose a row for every code (K, Q): the closest, or one drawn with probability softmax(-distance)."""
    if anchor == "closest":
        return latents[jnp.argmin(distances, axis=0)]
    return latents[jax.random.categorical(key, -distances, axis=0)]


def pull_codes(codes: Array, usage: Usage, decay: float) -> Array:
    """Pull codes towards their anchors, the more the less they are used."""
    pull = jnp.exp(-10.0 * len(codes) * usage.average / (1.0 - decay) - 1e-3)[:, None]
    return (1.0 - pull) * codes + pull * usage.anchors


@dataclass(frozen=True)
class QuantisedAutoencoder:
    """Model of the training loop. With `anchor` None, codes move by gradients only."""

    commitment: float
    decay: float
    anchor: str | None

    def loss(self, parameters: Parameters, state: Usage, key: Array, batch: Any) -> tuple[Array, Usage]:
        (y,) = batch
        latents = apply_network(parameters.encoder, y)
        distances = square_distances(*jax.lax.stop_gradient((latents, parameters.codes)))
        nearest = jnp.argmin(distances, axis=1)
        quantised = parameters.codes[nearest]
        decoded = apply_network(parameters.decoder, straight_through(latents, quantised))
        towards_rows = jnp.mean((quantised - jax.lax.stop_gradient(latents)) ** 2)
        towards_codes = jnp.mean((jax.lax.stop_gradient(quantised) - latents) ** 2)
        value = jnp.mean((y - decoded) ** 2) + towards_rows + self.commitment * towards_codes
        share = jnp.zeros_like(state.average).at[nearest].add(1.0 / len(y))
        average = self.decay * state.average + (1.0 - self.decay) * share
        if self.anchor is None:
            return value, Usage(average, state.anchors)
        anchors = choose_anchors(key, jax.lax.stop_gradient(latents), distances, self.anchor)
        return value, Usage(average, anchors)

    def adjust(self, parameters: Parameters, state: Usage) -> Parameters:
        if self.anchor is None:
            return parameters
        return parameters._replace(codes=pull_codes(parameters.codes, state, self.decay))


class CVQVAE(BaseEstimator):
    """Vector-quantised autoencoder with an online clustered codebook.

    Columns are centred and divided by one common number. A row has one code; distances are Euclidean.

    Parameters
    ----------
    n_components : int
        Number of latent dimensions.
    n_codes : int
        Size of the codebook.
    anchor : {"random", "closest"} or None
        Target of unused codes: a random row of the batch, the likelier the nearer, or the closest one. None
        gives the plain vector-quantised autoencoder.
    commitment : float
        Weight of the term that keeps the encoder near the codes.
    decay : float
        Decay of the average use of a code.
    hidden : sequence of int
        Sizes of the encoder's hidden layers; the decoder has them in reverse.
    n_epochs, batch_size, learning_rate
        Greatest number of epochs, and the steps of Adam.
    random_state : int, RandomState or None
        Source of randomness.

    Attributes
    ----------
    embedding_ : ndarray (N, n_components)
        The encoder's output before quantisation.
    codes_ : ndarray (n_codes, n_components)
        The codebook.
    code_of_row_ : ndarray of int (N,)
        The nearest code of every row.
    loss_history_ : ndarray
        Mean loss in every epoch.

    References
    ----------
    Zheng and Vedaldi (2023), Online clustered codebook.
    """

    def __init__(
        self,
        n_components: int = 2,
        *,
        n_codes: int = 128,
        anchor: str | None = "random",
        commitment: float = 0.25,
        decay: float = 0.99,
        hidden: Sequence[int] = (200,),
        n_epochs: int = 300,
        batch_size: int = 128,
        learning_rate: float = 1e-3,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.n_codes = n_codes
        self.anchor = anchor
        self.commitment = commitment
        self.decay = decay
        self.hidden = hidden
        self.n_epochs = n_epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.random_state = random_state

    def fit_transform(self, Y: Any) -> FloatArray:
        """Train on Y (N, M) and return the embedding (N, n_components)."""
        if self.anchor is not None and self.anchor not in ANCHORS:
            raise ValueError(f"anchor={self.anchor!r} is not known. Use one of {ANCHORS} or None.")
        Y = check_rows(Y)
        location, scale = Gaussian().units(Y)
        with in_float32():
            start_key, training_key = jax.random.split(random_key(self.random_state))
            y = jnp.asarray((Y - location) / scale, jnp.float32)
            parameters = self._start(start_key, Y.shape[1])
            usage = Usage(jnp.zeros(self.n_codes), jnp.zeros_like(parameters.codes))
            model = QuantisedAutoencoder(self.commitment, self.decay, self.anchor)
            training = Training(self.n_epochs, self.batch_size, self.learning_rate)
            fit = train(model, parameters, (y,), training, training_key, usage)
            latents = apply_network(fit.parameters.encoder, y)
            self.code_of_row_ = np.argmin(square_distances(latents, fit.parameters.codes), axis=1)
            self.embedding_ = np.asarray(latents, np.float64)
            self.codes_ = np.asarray(fit.parameters.codes, np.float64)
        self.loss_history_ = np.array(fit.losses)
        return self.embedding_

    def _start(self, key: Array, n_columns: int) -> Parameters:
        """Draw the first parameters."""
        keys = jax.random.split(key, 3)
        encoder = init_network(keys[0], (n_columns, *self.hidden, self.n_components))
        decoder = init_network(keys[1], (self.n_components, *reversed(self.hidden), n_columns))
        limit, shape = 1.0 / self.n_codes, (self.n_codes, self.n_components)
        return Parameters(encoder, decoder, jax.random.uniform(keys[2], shape, minval=-limit, maxval=limit))
