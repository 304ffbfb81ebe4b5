"""Rows as a posterior sees them: their embedding, and chunks of them that bound memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import Array

from srflvm._typing import FloatArray

# Rows decoded at a time: bounds memory to a few times CHUNK * max(L, M) numbers.
CHUNK = 2048

# Rows that go through a compiled program at a time: few programs are then ever compiled for a model.
_PADDED_SIZES = (64, 1024)

# Numbers held at once by the larger chunk, for each row a Jacobian of Q x C and what it is made of, Q x L,
# and where weights are uncertain a matrix of L x L.
_MOST_NUMBERS = 5e7


class Embedding(NamedTuple):
    """Latent means (n, Q) and lower Cholesky factors of their covariances (n, Q, Q)."""

    mean: FloatArray
    cholesky: FloatArray

    @property
    def std(self) -> FloatArray:
        """Return the standard deviations of the latents (n, Q)."""
        return np.sqrt(np.sum(self.cholesky**2, axis=-1, dtype=np.float64))

    def divergence(self) -> float:
        """Compute sum_n KL(q(x_n) || N(0, I))."""
        log_stds = np.log(np.diagonal(self.cholesky, axis1=1, axis2=2))
        return float(0.5 * np.sum(self.mean**2) + 0.5 * np.sum(self.cholesky**2) - np.sum(log_stds + 0.5))

    def draw(self, rng: np.random.RandomState) -> FloatArray:
        """Draw a latent (n, Q) of each row."""
        noise = rng.standard_normal(self.mean.shape)
        return self.mean + np.einsum("nqr,nr->nq", self.cholesky, noise)


def row_chunks(n_rows: int) -> Iterator[slice]:
    """Yield slices of at most CHUNK rows that cover them all."""
    for start in range(0, n_rows, CHUNK):
        yield slice(start, min(start + CHUNK, n_rows))


@dataclass(frozen=True)
class PaddedChunks:
    """Chunks of `size` rows for compiled programs, the last one padded with zeros."""

    n_rows: int
    size: int

    @classmethod
    def for_rows(cls, n_rows: int, numbers_per_row: int) -> PaddedChunks:
        """Choose between the two usual sizes by the numbers that a program holds for each row."""
        small, large = _PADDED_SIZES
        return cls(n_rows, small if n_rows <= small or numbers_per_row * large > _MOST_NUMBERS else large)

    def cut(self, tree: Any) -> Iterator[Any]:
        """Yield the chunks of all arrays of a tree."""
        for start in range(0, self.n_rows, self.size):

            def cut(array: np.ndarray, start: int = start) -> Array:
                part = array[start : start + self.size]
                padding = ((0, self.size - len(part)), *((0, 0),) * (part.ndim - 1))
                return jax.device_put(np.pad(part, padding))

            yield jax.tree.map(cut, tree)

    def join(self, parts: Sequence[Any]) -> Any:
        """Concatenate the arrays of trees, one tree for each chunk, without the padding."""
        return jax.tree.map(lambda *arrays: np.concatenate(arrays)[: self.n_rows], *parts)
