"""Rows of data under frozen weights, each row on its own: what embedding, decoding and scoring share.

Here a row is a row: arrays are (n, c), the transpose of the fit's, and the learned parameters (c,) or (1,)
broadcast along them. Chunks of rows are padded to one of two sizes, so that few programs are ever compiled
for a model, and no quantity is shared between rows: a row gets the same answer alone and in any batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from srflvm._types import FloatArray
from srflvm.features import fourier_features
from srflvm.layers import with_constant
from srflvm.likelihoods import Likelihood
from srflvm.observations import Encoded

_CHUNKS = (64, 1024)

# Numbers held at once by the larger chunk, for each row a Jacobian of Q x C and what it is made of, Q x L,
# and where weights are uncertain a matrix of L x L.
_MOST_NUMBERS = 5e7


class Frozen(NamedTuple):
    """The frozen function: frequencies (F, Q), weights (L, C) with the constant's last, level (C,), the
    learned parameters of each group, and the weights' packed covariances (C, P) if every channel has its
    own."""

    frequencies: Array
    weights: Array
    level: Array
    parameters: tuple[dict[str, Array], ...]
    packed_covariance: Array | None = None


class Rows(NamedTuple):
    """Some rows of one group: y and observed (n, c), constants (n, c), offset (n, 1)."""

    y: Array
    observed: Array
    constants: dict[str, Array]
    offset: Array


def rows_of(encoded: Sequence[Encoded]) -> tuple[Rows, ...]:
    """NumPy rows for the compiled programs, with a harmless number where nothing is observed."""
    return tuple(
        Rows(np.where(e.observed, e.y, 0.0), e.observed, _harmless(e), e.offset)  # pyright: ignore
        for e in encoded
    )


def _harmless(encoded: Encoded) -> dict[str, FloatArray]:
    return {name: np.where(encoded.observed, value, 1.0) for name, value in encoded.constants.items()}


def function_values(frozen: Frozen, latents: Any) -> Any:
    """f without offsets at latents (n, Q): (n, C)."""
    features = with_constant(fourier_features(latents, frozen.frequencies))
    return features @ frozen.weights + frozen.level


def split(likelihoods: tuple[Likelihood, ...], frozen: Frozen, rows: tuple[Rows, ...]) -> Iterator[Any]:
    """(likelihood, its rows, its parameters with constants, its slice of the channels) of each group."""
    start = 0
    for likelihood, mine, learned in zip(likelihoods, rows, frozen.parameters, strict=True):
        channels = slice(start, start := start + mine.y.shape[1])
        yield likelihood, mine, {**mine.constants, **learned}, channels


def chunk_size(n_rows: int, numbers_per_row: int) -> int:
    """How many rows go through a compiled program at a time."""
    small, large = _CHUNKS
    return small if n_rows <= small or numbers_per_row * large > _MOST_NUMBERS else large


def padded_chunks(tree: Any, n_rows: int, size: int) -> Iterator[Any]:
    """Slices of `size` rows of every array of a tree, the last one padded with zeros."""
    for start in range(0, n_rows, size):

        def cut(array: np.ndarray, start: int = start) -> Array:
            part = array[start : start + size]
            padding = ((0, size - len(part)), *((0, 0),) * (part.ndim - 1))
            return jnp.asarray(np.pad(part, padding))

        yield jax.tree.map(cut, tree)
