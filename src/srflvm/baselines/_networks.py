"""Small feed-forward networks, and the loop by which models are trained on batches of rows.

A model is hashable (a frozen dataclass), so that it can be part of a compiled program and two fits of the
same shape share one. The loop works in the precision of the data it is given.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from jax.tree_util import Partial
from sklearn.utils import check_array, check_random_state

from srflvm._types import FloatArray
from srflvm.likelihoods._observed import check_counts


class Layer(NamedTuple):
    """An affine map: weights (inputs, outputs) and bias (outputs,)."""

    weights: Array
    bias: Array

    def __call__(self, inputs: Array) -> Array:
        return inputs @ self.weights + self.bias


Network = tuple[Layer, ...]


def init_network(key: Array, sizes: Sequence[int]) -> Network:
    """Layers between successive sizes: weights uniform with variance 2 / (inputs + outputs), after Glorot and
    Bengio (2010), and zero biases."""
    keys = jax.random.split(key, len(sizes) - 1)
    layers = []
    for layer_key, n_inputs, n_outputs in zip(keys, sizes[:-1], sizes[1:], strict=True):
        limit = (6.0 / (n_inputs + n_outputs)) ** 0.5
        weights = jax.random.uniform(layer_key, (n_inputs, n_outputs), minval=-limit, maxval=limit)
        layers.append(Layer(weights, jnp.zeros(n_outputs)))
    return tuple(layers)


def apply_network(network: Network, inputs: Array, activation: Any = jax.nn.relu) -> Array:
    """Every layer but the last is followed by the activation."""
    for layer in network[:-1]:
        inputs = activation(layer(inputs))
    return network[-1](inputs)


class Model(Protocol):
    """What the loop asks of a model, which must be hashable."""

    def loss(self, parameters: Any, state: Any, key: Array, batch: tuple[Array, ...]) -> tuple[Array, Any]:
        """What is minimised, for a batch of rows, and what is carried on to the next step."""
        ...

    def adjust(self, parameters: Any, state: Any) -> Any:
        """The parameters after a gradient step, changed by other rules than gradients."""
        ...


@dataclass(frozen=True)
class Training:
    """How long, and by which steps.

    Training ends when the mean loss of the last `patience` epochs is below that of the `patience` epochs
    before by less than `tolerance` times all that was gained since the first epoch, or after `n_epochs`.
    """

    n_epochs: int
    batch_size: int
    learning_rate: float
    patience: int = 25
    tolerance: float = 2e-3

    def finished(self, losses: Sequence[float]) -> bool:
        if len(losses) < 2 * self.patience + 1:
            return False
        latest = float(np.mean(losses[-self.patience :]))
        before = float(np.mean(losses[-2 * self.patience : -self.patience]))
        return before - latest < self.tolerance * (losses[0] - latest)


_FEWEST_BATCHES = 8


class Trained(NamedTuple):
    """Parameters and state after the last step, and the mean loss of every epoch."""

    parameters: Any
    state: Any
    losses: list[float]


def train(
    model: Model, parameters: Any, data: tuple[Array, ...], training: Training, key: Array, state: Any = ()
) -> Trained:
    """Adam on batches of rows of the arrays in `data`, in a new order in every epoch.

    Few rows make smaller batches, so that an epoch has eight steps at least. Rows that do not fill a batch
    wait for another epoch.
    """
    optimiser_state = optax.adam(training.learning_rate).init(parameters)
    carry = (parameters, optimiser_state, state)
    losses: list[float] = []
    for epoch in range(training.n_epochs):
        rate = training.learning_rate
        size = min(training.batch_size, max(1, len(data[0]) // _FEWEST_BATCHES))
        carry, loss = _epoch(model, rate, size, carry, data, jax.random.fold_in(key, epoch))
        losses.append(float(loss))
        if training.finished(losses):
            break
    return Trained(carry[0], carry[2], losses)


def _run_epoch(
    model: Model, learning_rate: float, batch_size: int, carry: Any, data: tuple[Array, ...], key: Array
) -> tuple[Any, Array]:
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


def checked_rows(Y: Any, with_holes: bool = False) -> FloatArray:
    """Y (N, M) in float64, finite, and complete unless holes are allowed."""
    finite: Any = "allow-nan" if with_holes else True
    checked = check_array(Y, dtype="float64", ensure_min_samples=2, ensure_all_finite=finite)
    return np.asarray(checked)


def checked_counts(Y: Any, system: str) -> FloatArray:
    """Counts (N, M) in float64, complete; `system` names who asks for counts."""
    Y = checked_rows(Y)
    check_counts(Y, [f"column {column}" for column in range(Y.shape[1])], system)
    return Y


def random_key(random_state: Any) -> Array:
    """A key of JAX from what scikit-learn takes as a source of randomness."""
    return jax.random.key(int(check_random_state(random_state).randint(2**31 - 1)))
