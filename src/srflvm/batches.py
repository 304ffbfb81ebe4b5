"""Statistics of batches of rows: what a fit that never holds all rows keeps of those that it has seen.

With frozen frequencies, everything global is a function of sums over rows: q(H), the noise and other
parameters of the likelihoods, the amplitudes. A *kind* of model says how rows turn into such sums, given the
present model (`gather`), and how the sums turn into the next model (`refresh`). There are two, in
`shared_batches` for complete Gaussian data and in `site_batches` for everything else.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import jax
import numpy as np

from srflvm._types import FloatArray
from srflvm.embedding import Embedding
from srflvm.posterior import Posterior


class Gathered(NamedTuple):
    """Sums over some rows: the statistics (a tree of arrays), what the rows add to the bound in the units of
    the data, sum_n E log p(y_n | x_n, H) - KL(q(x_n) || p(x_n)), and the rows' q(x_n)."""

    statistics: Any
    bound: float
    placed: Embedding


class Model(NamedTuple):
    """A posterior, and KL(q(H) || p(H)) of its weights."""

    posterior: Any
    divergence: float


class Kind(Protocol):
    """See the module's docstring. Totals are statistics summed over (or scaled to) `n_rows` rows."""

    def gather(self, posterior: Any, Y: FloatArray, log_sizes: FloatArray | None) -> Gathered: ...

    def refresh(self, posterior: Any, totals: Any, n_rows: float) -> Model: ...


@dataclass(frozen=True)
class Sums:
    """Statistics summed over `n_rows` rows."""

    statistics: Any
    n_rows: int

    def plus(self, statistics: Any, n_rows: int) -> Sums:
        return Sums(jax.tree.map(np.add, self.statistics, statistics), self.n_rows + n_rows)

    @property
    def is_finite(self) -> bool:
        return all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(self.statistics))


class Stream(NamedTuple):
    """What more rows are added to: the sums over all rows seen, and the present KL(q(H) || p(H))."""

    sums: Sums
    divergence: float


@dataclass(frozen=True)
class Epoch:
    """A pass over all N rows: the sums of the pass before, and those of the rows visited so far.

    After t rows, the rows that were not visited are still described by the pass before, which was made of
    `before.n_rows` rows (all N, or fewer in the first epoch, which goes on from landmarks). With
    k = before.n_rows (1 - t / N) of these, the totals are those of k + t rows, scaled to N. At the end of the
    pass k = 0: every row counts once, and no noise of sampling is left.
    """

    n_rows: int
    before: Sums
    visited: Sums

    @classmethod
    def after(cls, n_rows: int, before: Sums) -> Epoch:
        return cls(n_rows, before, Sums(jax.tree.map(np.zeros_like, before.statistics), 0))

    def plus(self, statistics: Any, n_rows: int) -> Epoch:
        return replace(self, visited=self.visited.plus(statistics, n_rows))

    @property
    def totals(self) -> Any:
        left = 1.0 - self.visited.n_rows / self.n_rows
        scale = self.n_rows / (self.before.n_rows * left + self.visited.n_rows)
        return jax.tree.map(
            lambda old, new: scale * (left * old + new), self.before.statistics, self.visited.statistics
        )


def divergence_of_latents(placed: Embedding) -> float:
    """sum_n KL(q(x_n) || N(0, I))."""
    log_stds = np.log(np.diagonal(placed.cholesky, axis1=1, axis2=2))
    return float(0.5 * np.sum(placed.mean**2) + 0.5 * np.sum(placed.cholesky**2) - np.sum(log_stds + 0.5))


def with_anchors(posterior: Posterior, latents: FloatArray) -> Any:
    """The posterior with its anchors placed anew."""
    return replace(posterior, anchors=latents)
