"""Data of any likelihoods, fitted with weights whose covariances share one basis.

Where a fit begins, and where it ends, all columns are visited at features that are held fixed, batch by
batch: to find weights for the first features, and those of the frozen ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from srflvm._typing import FloatArray
from srflvm.bcd import State
from srflvm.inference.problems.sites import SiteProblem
from srflvm.model.elbo import Settings, StartingPoint
from srflvm.model.evidence_layers import SiteData
from srflvm.model.shared_basis import ColumnWeights, SharedBasisLayer, chunk_rows
from srflvm.numerics.features import chunk_shape, layer_features
from srflvm.numerics.jit import one_blas_thread, quickly_compiled
from srflvm.numerics.weight_covariances import SharedBasisCovariances
from srflvm.posterior.chunks import Embedding
from srflvm.posterior.sites import SitePosterior

_ROUNDS_AT_START = 3
_ROUNDS_AT_END = 4


@dataclass(frozen=True)
class SharedBasisProblem(SiteProblem):
    """Training data of any likelihoods, whose weights have covariances in a shared basis."""

    @property
    def layer(self) -> Any:
        """Return the layer of the model."""
        return SharedBasisLayer(self._plans, self.has_affine)

    def fit_data(self, dtype: np.dtype) -> SiteData:
        """Return what the layer needs of the data, in chunks of rows, as JAX arrays."""
        return tuple(
            (
                jax.tree.map(jnp.asarray, chunk_rows(rows.filled().channels_first(dtype), self.n_rows)),
                jnp.asarray(level, dtype),
            )
            for rows, level in zip(self.encoded, self.levels, strict=True)
        )

    # ---- the layer's state ------------------------------------------------------------------------

    def layer_state(self, start: StartingPoint, rng: np.random.RandomState, options: Any) -> State:
        """Solve for weights at the start's latents and one draw of W."""
        spread = np.exp(rng.uniform(-0.7, 0.7, size=(options.n_frequencies, 1)))
        shape = (options.n_frequencies, start.latents.shape[1])
        frequencies = start.frequency_scale * spread * rng.standard_normal(shape)
        amplitudes, entries = self._starting_amplitudes(start)
        scales = self._affine_scales(entries)
        features = layer_features(start.latents, frequencies, scales)
        values, basis = np.linalg.eigh(features.T @ features)
        guesses = np.concatenate(self._guesses(), axis=1)
        weights = _regression(basis.T @ (features.T @ guesses), np.maximum(values, 0.0), amplitudes)
        state = self._entries(basis, weights, self.parameters, frequencies, options.dtype) | entries
        return self._solve(state, start.latents[None], scales, _ROUNDS_AT_START)

    def _starting_amplitudes(self, start: StartingPoint) -> tuple[FloatArray, State]:
        """Return the amplitudes (C,) of the start, and the entry of the affine part, if there is one."""
        if not self.has_affine:
            return np.exp(np.concatenate(self._log_amplitudes(start))), {}
        entries = self._affine_entries(start)
        return np.exp(np.concatenate(entries.pop("log_amplitude"))), entries

    def embedded_state(self, state: State, posterior: Any, latents: Embedding, options: Any) -> State:
        """Return the layer's entries of the state for all rows, embedded by a posterior of some of them."""
        return self._state_behind(posterior, options)

    def renewed_state(self, state: State, posterior: Any, options: Any) -> State:
        """Return the layer's entries that belong to the data, to go on from an earlier fit's others."""
        return self._state_behind(posterior, options)

    def _state_behind(self, posterior: SitePosterior, options: Any) -> State:
        """Return the entries that a posterior of fewer or as many rows follows from."""
        covariance: Any = posterior.covariance
        basis = np.asarray(covariance.basis, np.float64)
        precision = 1.0 / np.asarray(covariance.spectrum, np.float64) - 1.0 / posterior.amplitude[:, None]
        weights = ColumnWeights(
            posterior.weights.T @ basis,
            np.maximum(precision, 0.0),
            np.log(posterior.amplitude),
            np.ones(len(precision)),
        )
        return self._entries(basis, weights, posterior.parameters, posterior.frequencies, options.dtype)

    @property
    def _group_ends(self) -> np.ndarray:
        """Return the numbers of channels at which groups but the last end."""
        return np.cumsum([plan.n_channels for plan in self._plans])[:-1]

    def _entries(
        self,
        basis: FloatArray,
        weights: ColumnWeights,
        parameters: tuple[dict[str, FloatArray], ...],
        frequencies: FloatArray,
        dtype: np.dtype,
    ) -> State:
        """Return the layer's entries of the state."""
        return {
            "basis": np.asarray(basis, dtype),
            "basis_mean": np.asarray(weights.mean, dtype),
            "basis_precision": np.asarray(weights.precision, dtype),
            "basis_trust": np.asarray(weights.trust, np.float64),
            "row_precision": np.ones(chunk_shape(self.n_rows), dtype),
            "drawn_frequencies": np.asarray(frequencies, dtype),
            "frequency_key": np.zeros(4, np.uint32),
            "parameters": tuple({n: np.asarray(v) for n, v in learned.items()} for learned in parameters),
            "log_amplitude": tuple(np.split(np.asarray(weights.log_amplitude, np.float64), self._group_ends)),
            "order": tuple(np.arange(plan.n_channels, dtype=np.int32) for plan in self._plans),
            "visit": np.zeros((), np.int32),
        }

    def _solve(self, state: State, points: FloatArray, scales: FloatArray, n_rounds: int) -> State:
        """Return the state after visits of all columns at points (K, N, Q) and the frequencies drawn."""
        dtype, layer = np.asarray(state["basis"]).dtype, self.layer
        data, entries = self.fit_data(dtype), {name: state[name] for name in layer.carries}
        fixed = jnp.asarray(points, dtype), jnp.asarray(scales, dtype)
        with one_blas_thread():
            for number in range(n_rounds * layer.n_batches):
                changed = _visit_batch(layer, *fixed, entries, data, np.int32(number))
                entries |= changed
        return state | entries

    # ---- the posterior at the end -----------------------------------------------------------------

    def build_posterior(
        self, state: State, latents: Embedding, settings: Settings, rng: np.random.RandomState
    ) -> tuple[SitePosterior, Embedding]:
        """Keep the last draw of the frequencies, solve for the weights, and embed all rows by them."""
        scales = self._affine_scales(state)
        solved = self._solve(state, self._points(latents, rng), scales, _ROUNDS_AT_END)
        weights = jax.tree.map(np.asarray, ColumnWeights.of(solved))
        basis = np.asarray(solved["basis"], np.float64)
        anchors = self._anchors(rng)
        posterior = SitePosterior(
            columns=self.working.columns,
            frequencies=np.asarray(solved["drawn_frequencies"], np.float64),
            anchors=latents.mean[anchors],
            anchor_scores=self.working.scores[anchors],
            table=self.layout,
            weights=basis @ np.asarray(weights.mean, np.float64).T,
            covariance=SharedBasisCovariances(basis.astype(np.float32), np.asarray(weights.spectrum)),
            level=np.concatenate(self.levels),
            amplitude=np.exp(np.asarray(weights.log_amplitude, np.float64)),
            parameters=jax.tree.map(np.asarray, solved["parameters"]),
            affine=scales,
        )
        return posterior, self.embed(posterior)

    def _points(self, latents: Embedding, rng: np.random.RandomState) -> FloatArray:
        """Return two points (2, N, Q) of q(X), opposite to each other, in a random direction of each row.

        Cubature takes as many points as there are axes twice, each at the cost of a visit of all columns.
        """
        n_rows, n_latent = latents.mean.shape
        directions = rng.standard_normal((n_rows, n_latent))
        directions *= np.sqrt(n_latent) / np.linalg.norm(directions, axis=1, keepdims=True)
        steps = np.einsum("nqr,nr->nq", latents.cholesky, directions)
        return np.stack([latents.mean + steps, latents.mean - steps])


def _regression(cross: FloatArray, values: FloatArray, amplitudes: FloatArray) -> ColumnWeights:
    """Return the weights of regressions with noise one, from Psi'f (L, C) and the eigenvalues of Phi'Phi."""
    precision = np.broadcast_to(values, (len(amplitudes), len(values)))
    mean = cross.T / (precision + 1.0 / amplitudes[:, None])
    return ColumnWeights(mean, precision, np.log(amplitudes), np.ones(len(amplitudes)))


@partial(quickly_compiled, static_argnames="layer")
def _visit_batch(
    layer: SharedBasisLayer, points: Any, scales: Any, state: State, data: SiteData, number: Any
) -> State:
    return layer.solve(points, scales, state, data, number)
