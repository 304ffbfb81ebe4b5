"""Linear layer of the model, as the evidence lower bound sees it: what the data say about the features.

A layer is a small immutable object with the names of its entries in the state (`owns` those climbed by
gradients, `carries` those brought up to date at each visit) and one method,

    evidence(key, latents, frequencies, state, data)
        -> (estimate of E log p(Y | features), next carried entries),

differentiable in the latents (N, Q), in the frequencies and in what the layer owns. There are four: complete
Gaussian data, where the evidence is exact; Gaussian data with missing entries, where they are filled; all
other data, by sites; and the paper's ablation, in which the weights are climbed by gradients.
"""

from __future__ import annotations

import abc
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import Mesh

from srflvm.data.encoding import GroupRows
from srflvm.likelihoods.base import Expected, Likelihood
from srflvm.model import chunked_evidence
from srflvm.model.chunked_evidence import ChunkedTargets
from srflvm.model.sites import (
    DAMPING,
    Function,
    GroupState,
    at_once,
    better_amplitude,
    better_parameters,
)
from srflvm.numerics import site_regression
from srflvm.numerics.features import fourier_features, layer_features
from srflvm.numerics.shared_regression import Targets, predict_and_evidence

# A visit moves fills this far towards the mean of f at the draw at hand, so that they average over draws.
_FILL_STEP = 0.3

_VISITS_PER_JOINT_STEP = 6

# Data of the layers of groups of columns: of each group the rows, channels first, and the levels (c,).
SiteData = tuple[tuple[GroupRows, Array], ...]


class Layer(Protocol):
    """Interface of all layers; see the module's docstring."""

    @property
    def owns(self) -> tuple[str, ...]:
        """Return the names of the entries of the state that are climbed by gradients."""
        ...

    @property
    def carries(self) -> tuple[str, ...]:
        """Return the names of the entries of the state that each visit brings up to date."""
        ...

    @property
    def is_heavy(self) -> bool:
        """Tell whether a program that runs fast is worth more than one that is compiled fast."""
        ...

    def frequency_key(self, key: Array, state: dict[str, Any]) -> Array:
        """Return the key by which frequencies are drawn: the one given, or that of an earlier visit."""
        ...

    def evidence(
        self, key: Array, latents: Array, frequencies: Array, state: dict[str, Any], data: Any
    ) -> tuple[Array, dict[str, Any]]:
        """Estimate the expected log density of the data, and return the next carried entries."""
        ...


# ---- Gaussian data with one noise -----------------------------------------------------------------


class SharedData(NamedTuple):
    """Targets of the shared regression, and the floor of noise / amplitude."""

    targets: ChunkedTargets
    smallest_ratio: Array


@dataclass(frozen=True)
class SharedLayer:
    """Layer of complete Gaussian data; its rows are spread over the devices of a mesh if there is one."""

    mesh: Mesh | None = None

    owns = ("log_noise", "log_ratio")
    carries = ()
    is_heavy = False

    def frequency_key(self, key: Array, state: dict[str, Any]) -> Array:
        """Return the key: every evaluation has a draw of its own."""
        return key

    def evidence(
        self, key: Array, latents: Array, frequencies: Array, state: dict[str, Any], data: SharedData
    ) -> tuple[Array, dict[str, Any]]:
        """Compute log p(Y | features), exactly."""
        noise, ratio = _noise_and_ratio(state, data.smallest_ratio)
        value: Any = chunked_evidence.log_evidence(
            self.mesh, latents, frequencies, noise, ratio, data.targets
        )
        return value, {}


class IncompleteData(NamedTuple):
    """Standardised data (N, M) with any number in the place of missing entries, and where these are.

    `n_observed` is the number of observed entries, `smallest_ratio` the floor of noise / amplitude.
    """

    Y: Array
    missing: Array
    n_observed: Array
    smallest_ratio: Array


class _FeatureLayer(abc.ABC):
    """Layer that sees the latents through the features of all rows at once."""

    is_heavy = False

    def frequency_key(self, key: Array, state: dict[str, Any]) -> Array:
        """Return the key: every evaluation has a draw of its own."""
        return key

    def evidence(
        self, key: Array, latents: Array, frequencies: Array, state: dict[str, Any], data: Any
    ) -> tuple[Array, dict[str, Any]]:
        """Estimate the expected log density of the data, and return the next carried entries."""
        return self.at_features(key, self.features(latents, frequencies, state), state, data)

    def features(self, latents: Array, frequencies: Array, state: dict[str, Any]) -> Array:
        """Return the features (N, L) of the layer; with sites, a constant is among them."""
        return layer_features(latents, frequencies, jnp.zeros(0, latents.dtype))

    @abc.abstractmethod
    def at_features(
        self, key: Array, features: Array, state: dict[str, Any], data: Any
    ) -> tuple[Array, dict[str, Any]]:
        """Do as `evidence` does, at given features (N, L)."""


@dataclass(frozen=True)
class FillingLayer(_FeatureLayer):
    """Layer of Gaussian data with missing entries, for each of which q(y) = N(fill, noise).

    The bound E log p(Y, Y_missing | Phi) + entropy of q(Y_missing) is the evidence of the filled data with
    the terms in log noise counted for observed entries only. It is highest at fill = E f, to which each visit
    moves.
    """

    owns = ("log_noise", "log_ratio")
    carries = ("fill",)

    def features(self, latents: Array, frequencies: Array, state: dict[str, Any]) -> Array:
        """Return the Fourier features alone: columns are centred."""
        return fourier_features(latents, frequencies)

    def at_features(
        self, key: Array, features: Array, state: dict[str, Any], data: IncompleteData
    ) -> tuple[Array, dict[str, Any]]:
        """Compute the bound, and the next fill."""
        noise, ratio = _noise_and_ratio(state, data.smallest_ratio)
        filled = jnp.where(data.missing, state["fill"], data.Y)
        n_rows, n_columns = filled.shape
        square = jnp.sum(filled**2, dtype=jnp.float64)
        targets = Targets(filled, square, jnp.asarray(float(n_columns)))
        value, mean = predict_and_evidence(features, noise, ratio, targets)
        n_missing = n_rows * n_columns - data.n_observed
        fill = state["fill"] + jnp.where(data.missing, _FILL_STEP * (mean - state["fill"]), 0.0)
        return value + 0.5 * n_missing * jnp.log(2.0 * jnp.pi * noise), {"fill": fill}


def _noise_and_ratio(state: dict[str, Any], smallest_ratio: Array | float) -> tuple[Array, Array]:
    """Return the noise variance and noise / amplitude, the latter above its floor."""
    return jnp.exp(state["log_noise"]), smallest_ratio + jnp.exp(state["log_ratio"])


# ---- groups of columns with any likelihoods -------------------------------------------------------


@dataclass(frozen=True)
class GroupPlan:
    """Facts about a group that the compiled program depends on; `batch` columns are visited at a time."""

    likelihood: Likelihood
    n_channels: int
    batch: int

    @property
    def scale(self) -> float:
        """Return the number of columns that each visited one stands for."""
        return self.n_channels / self.batch


@dataclass(frozen=True)
class SiteLayer(_FeatureLayer):
    """Layer of any likelihoods, with a site for every entry and batches of columns.

    Columns are independent given the features, so a random batch estimates the collapsed bound without bias.
    Batches run through a shuffled order: all columns are visited before any comes again.

    With an affine part the latents themselves are among the features. Waves and each latent are multiplied
    by a scale that is climbed by gradients, `log_affine` (1 + Q,): a latent of which no column is a linear
    function ends with a small one, and so do the waves where all is linear.
    """

    groups: tuple[GroupPlan, ...]
    route: str = "sites"
    has_affine: bool = False

    carries = ("sites", "parameters", "log_amplitude", "order", "visit")

    @property
    def owns(self) -> tuple[str, ...]:
        """Return the entry of the affine part, if there is one."""
        return ("log_affine",) if self.has_affine else ()

    def features(self, latents: Array, frequencies: Array, state: dict[str, Any]) -> Array:
        """Return waves, the scaled latents of an affine part, and the constant."""
        return layer_features(latents, frequencies, affine_scales(state, latents.dtype))

    def at_features(
        self, key: Array, features: Array, state: dict[str, Any], data: SiteData
    ) -> tuple[Array, dict[str, Any]]:
        """Estimate the bound from a batch of columns, and bring their state up to date."""
        order_key, draw_key, *keys = jax.random.split(key, 2 + len(self.groups))
        order, picks = pick_columns(self.groups, order_key, state["order"], state["visit"])
        wholes = GroupState.of_groups(state)
        batches = [whole.take(pick) for whole, pick in zip(wholes, picks, strict=True)]
        sites = jax.tree.map(lambda *parts: jnp.concatenate(parts), *(batch.sites for batch in batches))
        log_amplitude = jnp.concatenate([batch.log_amplitude for batch in batches])
        held = jax.lax.stop_gradient(features)
        weights = site_regression.solve(held, sites, jnp.exp(log_amplitude))
        moments = weights.function_moments(features)
        draw = _draw(draw_key, held, weights) if self.route == "polya_gamma_sampled" else moments[0]
        divergences = weights.divergence(jnp.exp(log_amplitude))
        amplitudes = better_amplitude(weights)
        value, new, start = jnp.zeros(()), [], 0
        for plan, (all_rows, level), pick, batch, group_key in zip(
            self.groups, data, picks, batches, keys, strict=True
        ):
            mine = slice(start, start := start + plan.batch)
            rows = all_rows.take_channels(pick)
            known = level[pick][:, None] + rows.offset
            here = Function(moments[0][mine], moments[1][mine], known, draw[mine])
            bound, updated = self._group_terms(group_key, plan, rows, batch, here, state["visit"])
            value += plan.scale * (bound - jnp.sum(divergences[mine]))
            updated = updated.centred(plan.likelihood, weights.mean[mine, -1])
            new.append(updated._replace(log_amplitude=amplitudes[mine]))
        written = [whole.put(pick, part) for whole, pick, part in zip(wholes, picks, new, strict=True)]
        return value, GroupState.as_entries(written) | {"order": order, "visit": state["visit"] + 1}

    def _group_terms(
        self, key: Array, plan: GroupPlan, rows: GroupRows, state: GroupState, here: Function, visit: Array
    ) -> tuple[Array, GroupState]:
        """Compute the expected log likelihood, with its gradient in the features, and the next state."""
        held = jax.tree.map(jax.lax.stop_gradient, here)
        parameters = rows.arguments(state.parameters)
        values, local = held.local_terms(self.route, key, plan.likelihood, rows.y, parameters)
        value = jnp.sum(jnp.where(rows.observed, values, 0.0), dtype=jnp.float64)
        # q(h) was solved with the present sites: Fisher's identity wants their omega, not the next one
        sites = state.sites
        present = Expected(values, sites.shift - sites.precision * held.mean, sites.precision)
        now = present if self.route == "polya_gamma_sampled" else local
        surrogate = _linear_terms(now, here, rows.observed)
        value += surrogate - jax.lax.stop_gradient(surrogate)
        sites = state.move_sites(held.target_sites(local, rows.observed), DAMPING[self.route])
        better = _parameters_if_due(plan.likelihood, rows, held, state.parameters, visit)
        return value, state._replace(sites=sites, parameters=better)


def pick_columns(
    groups: Sequence[GroupPlan], key: Array, order: tuple[Array, ...], visit: Array
) -> tuple[tuple[Array, ...], list[Array]]:
    """Choose the columns of a visit, and shuffle the order of a group that has been run through."""
    orders, picks = [], []
    for plan, before in zip(groups, order, strict=True):
        first = visit % -(-plan.n_channels // plan.batch) * plan.batch
        fresh = jax.random.permutation(key, plan.n_channels).astype(before.dtype)
        mixed = jnp.where(first == 0, fresh, before) if plan.scale > 1.0 else before
        orders.append(mixed)
        picks.append(mixed[(first + jnp.arange(plan.batch)) % plan.n_channels])
    return tuple(orders), picks


@dataclass(frozen=True)
class GradientLayer(_FeatureLayer):
    """Layer of any likelihoods whose weights are climbed by gradients: the ablation of the paper.

    q(h_m) = N(mean_m, diag(std_m^2)) does not depend on the features, in contrast to `SiteLayer`, where it is
    solved for at every draw of them. It is kept to show what the conditional is worth. All columns are
    visited at every step.
    """

    groups: tuple[GroupPlan, ...]

    owns = ("weight_mean", "weight_log_std")
    carries = ("parameters", "log_amplitude")

    def at_features(
        self, key: Array, features: Array, state: dict[str, Any], data: SiteData
    ) -> tuple[Array, dict[str, Any]]:
        """Compute the bound, and better parameters and amplitudes."""
        value, parameters, amplitudes = jnp.zeros(()), [], []
        parts = zip(
            self.groups,
            data,
            state["weight_mean"],
            state["weight_log_std"],
            state["parameters"],
            state["log_amplitude"],
            strict=True,
        )
        for plan, (rows, level), mean, log_std, learned, log_amplitude in parts:
            variance = jnp.exp(2.0 * log_std)
            known = level[:, None] + rows.offset
            f_mean, f_variance = mean @ features.T, variance @ (features**2).T
            here = Function(f_mean, f_variance, known, f_mean)
            terms, better = self._group_terms(plan, rows, here, learned)
            square = jnp.mean(mean**2 + variance, axis=1, dtype=jnp.float64)
            value += terms - _diagonal_divergence(square, log_std, log_amplitude)
            parameters.append(better)
            amplitudes.append(jnp.log(jax.lax.stop_gradient(square)))
        return value, {"parameters": tuple(parameters), "log_amplitude": tuple(amplitudes)}

    @staticmethod
    def _group_terms(
        plan: GroupPlan, rows: GroupRows, here: Function, learned: dict[str, Array]
    ) -> tuple[Array, dict[str, Array]]:
        """Compute the expected log likelihood, with its gradient in q(f), and better parameters."""
        held = jax.tree.map(jax.lax.stop_gradient, here)
        local = plan.likelihood.expectations(rows.y, held.total, held.variance, rows.arguments(learned))
        value = jnp.sum(jnp.where(rows.observed, local.value, 0.0), dtype=jnp.float64)
        surrogate = _linear_terms(local, here, rows.observed)
        better, _ = better_parameters(plan.likelihood, len(rows.y), learned, at_once(rows, held))
        return value + surrogate - jax.lax.stop_gradient(surrogate), better


def affine_scales(state: dict[str, Any], dtype: Any) -> Any:
    """Return the scales (1 + Q,) of waves and latents among the features, or (0,) without an affine part.

    Their squares sum to one: the size of the function is left to the amplitudes of columns.
    """
    if "log_affine" not in state:
        return np.zeros(0, dtype)
    log_scales = state["log_affine"]
    xp = log_scales.__array_namespace__()
    scales = xp.exp(log_scales - xp.max(log_scales))
    return (scales / xp.sqrt(xp.sum(scales**2))).astype(dtype)


def _parameters_if_due(
    likelihood: Likelihood, rows: GroupRows, here: Function, learned: dict[str, Array], visit: Array
) -> dict[str, Array]:
    """Move the learned parameters uphill: a few at every visit, many at some of them only.

    A joint step of many parameters, such as thresholds between levels, costs more than all else in a visit.
    """

    def better() -> dict[str, Array]:
        return better_parameters(likelihood, len(rows.y), learned, at_once(rows, here))[0]

    if len(learned) <= 2:
        return better()
    return jax.lax.cond(visit % _VISITS_PER_JOINT_STEP == 0, better, lambda: learned)


def _linear_terms(local: Expected, here: Function, observed: Array) -> Array:
    """Return the first-order change of a group's terms with mean and variance (Bonnet and Price)."""
    held = jax.tree.map(jax.lax.stop_gradient, local)
    terms = held.slope * here.mean - 0.5 * held.precision * here.variance
    return jnp.sum(jnp.where(observed, terms, 0.0), dtype=jnp.float64)


def _draw(key: Array, features: Array, weights: site_regression.Weights) -> Array:
    """Return f (B, N) at one draw of the weights."""
    noise = jax.random.normal(key, weights.mean.shape, weights.mean.dtype)
    drawn = weights.mean + jnp.einsum("bji,bj->bi", weights.root, noise)
    return drawn.astype(features.dtype) @ features.T


def _diagonal_divergence(square: Array, log_std: Array, log_amplitude: Array) -> Array:
    """Compute sum_m KL(q(h_m) || N(0, a_m I)), from the mean of E h^2 over the weights of each column."""
    size = log_std.shape[1]
    log_determinant = 2.0 * jnp.sum(log_std, axis=1, dtype=jnp.float64)
    per_column = size * (square * jnp.exp(-log_amplitude) - 1.0 + log_amplitude) - log_determinant
    return 0.5 * jnp.sum(per_column)
