"""A data set as a fit sees it: Gaussian data without holes, or with them.

A problem says what the course of a fit has to know of its data: the working data that starts are made from,
the layer of the model and its data, the layer's part of the state, and how to freeze a state into a
posterior. See `site_problem` for all other likelihoods.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import jax.numpy as jnp
import numpy as np

from srflvm import parallel
from srflvm._types import FloatArray
from srflvm.bcd import State
from srflvm.blocks import Settings, StartingPoint
from srflvm.chunked import chunk_targets
from srflvm.compression import Compressed, compress, compress_source
from srflvm.embedding import Embedding, embed
from srflvm.evidence import smallest_ratio
from srflvm.filling import low_rank_fill
from srflvm.freezing import freeze_filled, freeze_shared
from srflvm.layers import FillingLayer, HoleyData, Layer, SharedData, SharedLayer
from srflvm.sources import ArraySource, Source


class Problem(Protocol):
    """What a fit asks of its data. `working` are the compressed data that starts are made from."""

    @property
    def working(self) -> Compressed: ...

    @property
    def n_rows(self) -> int: ...

    @property
    def n_entries(self) -> int:
        """Observed entries."""
        ...

    @property
    def layer(self) -> Layer: ...

    def pilot(self) -> Problem | None:
        """A problem that is faster to fit and whose latents are a good start, if there is one."""
        ...

    def fit_data(self, dtype: np.dtype) -> Any:
        """What the layer needs of the data, as JAX arrays."""
        ...

    def layer_state(self, start: StartingPoint, rng: np.random.RandomState, options: Any) -> State:
        """The layer's entries of the state at a start."""
        ...

    def placed_state(self, state: State, posterior: Any, latents: Embedding, options: Any) -> State:
        """The layer's entries of the state for all rows, placed by a posterior fitted to some of them."""
        ...

    def renewed_state(self, state: State, options: Any) -> State:
        """The layer's entries of the state that belong to the data, to go on from an earlier fit's others."""
        ...

    def rows(self, index: np.ndarray) -> Problem:
        """Some of the rows."""
        ...

    def freeze(
        self, state: State, latents: Embedding, settings: Settings, rng: np.random.RandomState
    ) -> tuple[Any, Embedding]:
        """A posterior, and the embedding that it gives to all rows. `latents` are those of this process."""
        ...

    def place(self, posterior: Any) -> Embedding:
        """The embedding that a posterior gives to the rows of this process."""
        ...

    def information(self, bound: float) -> float:
        """Return how many nats the entries tell at a bound in the units of the data, at most one each.

        A bound that rises by a thousandth of it has converged: entries of sparse counts tell far less than a
        nat each.
        """
        ...

    @property
    def row_sizes(self) -> FloatArray | None:
        """Size factors of the rows, if they have any."""
        ...

    def in_data_units(self, bound: float) -> float:
        """log p of raw data: the density of y = location + scale * u is that of u divided by scale."""
        ...


@dataclass(frozen=True)
class SharedProblem:
    """Gaussian data without holes, read in pieces. Only freezing reads them again after the compression."""

    source: Source
    working: Compressed
    row_sizes = None

    @property
    def layer(self) -> SharedLayer:
        return SharedLayer(parallel.mesh())

    @classmethod
    def of(cls, source: Source, n_directions: int | str, dtype: np.dtype) -> SharedProblem:
        return cls(source, compress_source(source, n_directions, dtype))

    @property
    def n_rows(self) -> int:
        return self.source.n_rows

    @property
    def n_entries(self) -> int:
        return self.source.n_rows * self.source.n_columns

    def pilot(self) -> None:
        return None

    def information(self, bound: float) -> float:
        return float(self.n_entries)

    def fit_data(self, dtype: np.dtype) -> SharedData:
        working = self.working
        targets = chunk_targets(
            working.scores, working.total_square, working.n_columns, dtype, working.n_rows
        )
        return SharedData(targets, jnp.asarray(smallest_ratio(self.n_rows, dtype)))

    def layer_state(self, start: StartingPoint, rng: np.random.RandomState, options: Any) -> State:
        return _noise_state(start)

    def placed_state(self, state: State, posterior: Any, latents: Embedding, options: Any) -> State:
        return {}

    def renewed_state(self, state: State, options: Any) -> State:
        return {}

    def rows(self, index: np.ndarray) -> SharedProblem:
        start = self.working.start
        mine = index[(index >= start) & (index < start + len(self.working.scores))]
        Y = parallel.gather_rows(parallel.together(lambda: self.source.take(mine)))
        return SharedProblem(ArraySource(Y), self.working.rows(index))

    def freeze(
        self, state: State, latents: Embedding, settings: Settings, rng: np.random.RandomState
    ) -> tuple[Any, Embedding]:
        posterior = freeze_shared(state, latents, self.working, self.source, settings, rng)
        own = self.place(posterior)
        return posterior, Embedding(*(parallel.gather_rows(array) for array in own))

    def place(self, posterior: Any) -> Embedding:
        return embed(posterior, self.working.scores)

    def in_data_units(self, bound: float) -> float:
        return bound - self.n_entries * np.log(self.working.columns.scale)


@dataclass(frozen=True)
class FilledProblem:
    """Gaussian data with holes: Y has NaN in them, `filled` (standardised) has a first guess."""

    Y: FloatArray
    filled: FloatArray
    working: Compressed
    layer = FillingLayer()
    row_sizes = None

    @classmethod
    def of(cls, Y: FloatArray, n_directions: int | str, n_components: int) -> FilledProblem:
        filled = low_rank_fill(Y, n_components)
        working = compress(filled, n_directions)
        return cls(Y, working.columns.standardise(filled), working)

    @property
    def n_rows(self) -> int:
        return len(self.Y)

    @property
    def missing(self) -> np.ndarray:
        return np.isnan(self.Y)

    @property
    def n_entries(self) -> int:
        return int(self.Y.size - np.sum(self.missing))

    def pilot(self) -> None:
        return None

    def information(self, bound: float) -> float:
        return float(self.n_entries)

    def fit_data(self, dtype: np.dtype) -> HoleyData:
        return HoleyData(
            jnp.asarray(self.filled, dtype),
            jnp.asarray(self.missing),
            jnp.asarray(float(self.n_entries)),
            jnp.asarray(smallest_ratio(self.n_rows, dtype)),
        )

    def layer_state(self, start: StartingPoint, rng: np.random.RandomState, options: Any) -> State:
        return _noise_state(start) | {"fill": self.filled.astype(options.dtype)}

    def placed_state(self, state: State, posterior: Any, latents: Embedding, options: Any) -> State:
        decoded = self.working.columns.standardise(posterior.decode(latents.mean).mean)
        return {"fill": jnp.asarray(np.where(self.missing, decoded, self.filled), options.dtype)}

    def renewed_state(self, state: State, options: Any) -> State:
        return {"fill": jnp.asarray(self.filled, options.dtype)}

    def rows(self, index: np.ndarray) -> FilledProblem:
        return FilledProblem(self.Y[index], self.filled[index], self.working.rows(index))

    def freeze(
        self, state: State, latents: Embedding, settings: Settings, rng: np.random.RandomState
    ) -> tuple[Any, Embedding]:
        filled = np.where(self.missing, np.asarray(state["fill"], np.float64), self.filled)
        posterior = freeze_filled(state, latents, self.working, filled, self.missing, settings, rng)
        return posterior, self.place(posterior)

    def place(self, posterior: Any) -> Embedding:
        return posterior.place(self.Y)

    def in_data_units(self, bound: float) -> float:
        return bound - self.n_entries * np.log(self.working.columns.scale)


def _noise_state(start: StartingPoint) -> State:
    return {"log_noise": np.array(np.log(start.noise)), "log_ratio": np.array(np.log(start.ratio))}
