"""Result of a fit, and the fitted attributes that follow from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from scipy.special import softmax

from srflvm import bcd
from srflvm._typing import FloatArray
from srflvm.exceptions import NumericalError
from srflvm.model.elbo import free_factor, mixture_of
from srflvm.posterior.base import Posterior
from srflvm.posterior.chunks import Embedding

if TYPE_CHECKING:
    from srflvm.inference.statistics import StreamState

# Entries of the state that a warm start makes anew, from the data or from the posterior.
_BELONGS_TO_THE_DATA = (
    "fill",
    "sites",
    "order",
    "visit",
    "basis",
    "basis_mean",
    "basis_precision",
    "basis_trust",
    "row_precision",
    "drawn_frequencies",
    "frequency_key",
)

# Attributes that a model has only if its likelihoods ask for them.
OPTIONAL_ATTRIBUTES = ("size_factors_", "noise_variance_")


@dataclass(frozen=True)
class Fall:
    """Hold a stage over which the bound fell, and by how many nats an entry."""

    stage: str
    drop: float


@dataclass(frozen=True)
class FitResult:
    """Hold a finished fit.

    Bounds are totals over all entries, in the units of the data. `stream` is what further rows are added to,
    if rows were seen in batches; `sizes` are size factors of the rows.
    """

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
    stream: StreamState | None = None
    sizes: FloatArray | None = None
    falls: tuple[Fall, ...] = ()

    @property
    def is_finite(self) -> bool:
        """Tell whether the embedding and all that is kept of the posterior are finite."""
        return self.posterior.is_finite and all(np.isfinite(part).all() for part in self.embedding)

    def attributes(self) -> dict[str, Any]:
        """Return the fitted attributes, all NumPy or plain Python; refuse those that are not finite."""
        if not self.is_finite:
            raise NumericalError(
                "The latents or the weights of the fit are not finite, and were not kept. Look for extreme "
                "outliers in Y and for columns of very different size, or set dtype='float64'."
            )
        kept = {name: value for name, value in self.state.items() if name not in _BELONGS_TO_THE_DATA}
        state = jax.tree.map(np.array, kept)
        found = {
            "_posterior": self.posterior,
            "_state": state,
            "_stream": self.stream,
            "n_components_": int(self.embedding.mean.shape[1]),
            "n_samples_seen_": self.stream.sums.n_rows if self.stream else len(self.embedding.mean),
            "embedding_": self.embedding.mean,
            "embedding_std_": self.embedding.std,
            "elbo_": float(self.elbo),
            "elbo_history_": self.history,
            "n_iter_": len(self.history),
            "converged_": bool(self.converged),
            "interrupted_": bool(self.interrupted),
            "start_": self.start,
            "start_elbos_": {name: float(bound) for name, bound in self.start_elbos.items()},
            "n_rejected_steps_": int(self.n_rejected),
            "frequencies_": self.posterior.frequencies,
            "relevance_": _relevance(self.embedding),
            "amplitude_": self.posterior.mean_amplitude,
            "likelihood_parameters_": self.posterior.learned_parameters(),
        }
        optional = {"size_factors_": self.sizes, "noise_variance_": self.posterior.noise_variance}
        found |= {name: value for name, value in optional.items() if value is not None}
        return found | _mixture_attributes(state)

    def state_for(self, posterior: Posterior, embedding: Embedding) -> bcd.State:
        """Return the state with the latents of other rows, and what a posterior has learned."""
        diagonal = self.state["latent_factor"].ndim == 2
        dtype = np.asarray(self.state["latent_mean"]).dtype
        latents = {
            "latent_mean": embedding.mean.astype(dtype),
            "latent_factor": np.asarray(free_factor(embedding.cholesky, diagonal), dtype),
        }
        return self.state | latents | posterior.state_entries()

    @classmethod
    def of_attributes(cls, attributes: Mapping[str, Any]) -> FitResult:
        """Return the result that fitted attributes follow from, as far as they tell, to go on from it."""
        return cls(
            posterior=attributes["_posterior"],
            embedding=Embedding(attributes["embedding_"], np.empty((0, 0, 0))),
            state=attributes["_state"],
            elbo=attributes["elbo_"],
            history=attributes["elbo_history_"],
            n_rejected=attributes["n_rejected_steps_"],
            converged=attributes["converged_"],
            interrupted=attributes["interrupted_"],
            stopped=False,
            start=attributes["start_"],
            start_elbos=attributes["start_elbos_"],
            stream=attributes["_stream"],
            sizes=attributes.get("size_factors_"),
        )


def _relevance(embedding: Embedding) -> FloatArray:
    """Return the mean over rows of KL(q(x_nq) || N(0, 1))."""
    variance = np.sum(embedding.cholesky**2, axis=-1, dtype=np.float64)
    return np.mean(0.5 * (embedding.mean**2 + variance - 1.0 - np.log(variance)), axis=0)


def _mixture_attributes(state: bcd.State) -> dict[str, Any]:
    mixture, concentration = mixture_of(state), state["concentration"]
    return {
        "mixture_weights_": np.mean(softmax(state["logits"], axis=-1), axis=0),
        "mixture_means_": mixture.means,
        "mixture_covariances_": np.einsum("kqr,ksr->kqs", mixture.choleskys, mixture.choleskys),
        "concentration_": float(concentration.shape / concentration.rate),
    }
