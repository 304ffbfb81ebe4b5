"""What a fit is given and what it gives back."""

from __future__ import annotations

from dataclasses import dataclass, field

import jax
import numpy as np

from srflvm import bcd
from srflvm._types import FloatArray
from srflvm.batches import Stream
from srflvm.embedding import Embedding
from srflvm.journal import Journal, NoJournal
from srflvm.posterior import Posterior
from srflvm.progress import Callback


@dataclass(frozen=True)
class Options:
    """Everything a fit depends on besides the data, resolved to definite values."""

    n_components: int
    n_frequencies: int
    n_pilot_frequencies: int
    n_mixture: int
    frequency_sampling: str
    covariance_type: str
    latent_covariance_type: str
    n_samples: int
    n_directions: int | str
    max_iter: int
    tol: float
    n_init: int
    init: str | FloatArray
    n_landmarks: int
    learning_rate: float
    dtype: np.dtype
    callbacks: tuple[Callback, ...] = ()
    journal: Journal = field(default_factory=NoJournal)
    stage: str = "fit"
    settling_share: float = 0.0

    @property
    def init_name(self) -> str:
        return self.init if isinstance(self.init, str) else "array"


@dataclass(frozen=True)
class Fall:
    """A stage over which the bound fell, and by how many nats an entry."""

    stage: str
    drop: float


@dataclass(frozen=True)
class Fitted:
    """A finished fit. Bounds are totals over all entries, in the units of the data; `stream` is
    what further rows are added to, if it was fitted in batches; `sizes` are size factors of the rows."""

    posterior: Posterior
    embedding: Embedding
    state: bcd.State
    elbo: float
    history: FloatArray
    n_rejected: int
    converged: bool
    interrupted: bool
    stopped: bool
    start: str
    start_elbos: dict[str, float] = field(default_factory=dict)
    stream: Stream | None = None
    sizes: FloatArray | None = None
    falls: tuple[Fall, ...] = ()

    @property
    def is_finite(self) -> bool:
        """Whether the embedding and all that is kept of the posterior are finite."""
        kept = jax.tree.leaves((tuple(self.embedding), list(vars(self.posterior).values())))
        return all(np.isfinite(part).all() for part in kept if isinstance(part, np.ndarray | float))
