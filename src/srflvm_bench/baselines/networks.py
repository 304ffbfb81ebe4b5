"""Small feed-forward networks, and the loop that trains models on batches of rows.

A model is hashable (a frozen dataclass), so that it can be part of a compiled program and two fits of the
same shape share one. The loop works in the precision of the data it is given.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from jax.tree_util import Partial
from sklearn.utils import check_array, check_random_state

from srflvm._typing import FloatArray
from srflvm.likelihoods.base import check_counts
from srflvm.numerics.jit import in_float64


@contextmanager
def in_float32() -> Iterator[None]:
    """Open a scope in which JAX computes with float32 throughout; it is refused where `in_float64` is."""
    with in_float64(), jax.enable_x64(False):
        yield


class Layer(NamedTuple):
    """Affine map: weights (inputs, outputs) and bias (outputs,)."""

    weights: Array
    bias: Array

    def __call__(self, inputs: Array) -> Array:
        return inputs @ self.weights + self.bias


Network = tuple[Layer, ...]


def init_network(key: Array, sizes: Sequence[int]) -> Network:
    """Draw layers between successive sizes.

    Weights are uniform with variance 2 / (inputs + outputs) (Glorot and Bengio, 2010), and biases are zero.
    """
    keys = jax.random.split(key, len(sizes) - 1)
    layers = []
    for layer_key, n_inputs, n_outputs in zip(keys, sizes[:-1], sizes[1:], strict=True):
        limit = (6.0 / (n_inputs + n_outputs)) ** 0.5
        weights = jax.random.uniform(layer_key, (n_inputs, n_outputs), minval=-limit, maxval=limit)
        layers.append(Layer(weights, jnp.zeros(n_outputs)))
    return tuple(layers)


def apply_network(network: Network, inputs: Array, activation: Any = jax.nn.relu) -> Array:
    """Apply the layers, every layer but the last followed by the activation."""
    for layer in network[:-1]:
        inputs = activation(layer(inputs))
    return network[-1](inputs)


class Model(Protocol):
    """Interface of a model, which must be hashable."""

    def loss(self, parameters: Any, state: Any, key: Array, batch: tuple[Array, ...]) -> tuple[Array, Any]:
        """Compute the loss of a batch of rows, and the state for the next step."""
        ...

    def adjust(self, parameters: Any, state: Any) -> Any:
        """Change the parameters after a gradient step by other rules than gradients."""
        ...


@dataclass(frozen=True)
class Training:
    """Length and steps of training.

    Training ends when the mean loss of the last `patience` epochs is below that of the `patience` epochs
    before by less than `tolerance` times all that was gained since the first epoch, or after `n_epochs`.
    """

    n_epochs: int
    batch_size: int
    learning_rate: float
    patience: int = 25
    tolerance: float = 2e-3

    def is_finished(self, losses: Sequence[float]) -> bool:
        """Return whether training ends after these losses, one for each epoch."""
        if len(losses) < 2 * self.patience + 1:
            return False
        latest = float(np.mean(losses[-self.patience :]))
        before = float(np.mean(losses[-2 * self.patience : -self.patience]))
        return before - latest < self.tolerance * (losses[0] - latest)


_FEWEST_BATCHES = 8


class TrainingResult(NamedTuple):
    """Parameters and state after the last step, and the mean loss of every epoch."""

    parameters: Any
    state: Any
    losses: list[float]


def train(
    model: Model, parameters: Any, data: tuple[Array, ...], training: Training, key: Array, state: Any = ()
) -> TrainingResult:
    """Train by Adam on batches of rows of the arrays in `data`, in a new order in every epoch.

    Few rows make smaller batches, so that an epoch has eight steps at least. Rows that do not fill a batch
    are left to other epochs.
    """
    optimiser_state = optax.adam(training.learning_rate).init(parameters)
    carry = (parameters, optimiser_state, state)
    losses: list[float] = []
    for epoch in range(training.n_epochs):
        rate = training.learning_rate
        size = min(training.batch_size, max(1, len(data[0]) // _FEWEST_BATCHES))
        carry, loss = _epoch(model, rate, size, carry, data, jax.random.fold_in(key, epoch))
        losses.append(float(loss))
        if training.is_finished(losses):
            break
    return TrainingResult(carry[0], carry[2], losses)


def _run_epoch(
    model: Model, learning_rate: float, batch_size: int, carry: Any, data: tuple[Array, ...], key: Array
) -> tuple[Any, Array]:
    """Take the steps of one epoch and return the mean loss."""
    optimiser = optax.adam(learning_rate)
    n_batches = len(data[0]) // batch_size
    order_key, step_key = jax.random.split(key)
    order = jax.random.permutation(order_key, len(data[0]))[: n_batches * batch_size]

    def step(carry: Any, rows_and_key: tuple[Array, Array]) -> tuple[Any, Array]:
        parameters, optimiser_state, state = carry
        rows, loss_key = rows_and_key
        batch = tuple(part[rows] for part in data)
        loss = Partial(model.loss, state=state, key=loss_key, batch=batch)
        (value, state), slope = jax.value_and_grad(loss, has_aux=True)(parameters)
        change, optimiser_state = optimiser.update(slope, optimiser_state, parameters)
        parameters = model.adjust(optax.apply_updates(parameters, change), state)
        return (parameters, optimiser_state, state), value

    batches = order.reshape(n_batches, batch_size), jax.random.split(step_key, n_batches)
    carry, values = jax.lax.scan(step, carry, batches)
    return carry, jnp.mean(values)


# Not `quickly_compiled`: its older code generator makes likelihoods of counts run four times as long, and
# training repeats them thousands of times.
_epoch = jax.jit(_run_epoch, static_argnums=(0, 1, 2))


def check_rows(Y: Any, allow_missing: bool = False) -> FloatArray:
    """Return Y (N, M) in float64, and refuse infinite entries, and NaN unless `allow_missing`."""
    finite: Any = "allow-nan" if allow_missing else True
    checked = check_array(Y, dtype="float64", ensure_min_samples=2, ensure_all_finite=finite)
    return np.asarray(checked)


def check_count_rows(Y: Any, system: str) -> FloatArray:
    """Return complete counts (N, M) in float64, and refuse other entries in the name of `system`."""
    Y = check_rows(Y)
    check_counts(Y, [f"column {column}" for column in range(Y.shape[1])], system)
    return Y


def random_key(random_state: Any) -> Array:
    """Make a key of JAX from a `random_state` of scikit-learn."""
    return jax.random.key(int(check_random_state(random_state).randint(2**31 - 1)))
