"""The linear layer as the bound sees it: what the data say about the features.

A layer is a small immutable object with the names of its entries in the state (`owns` those climbed by
gradients, `carries` those brought up to date at each visit) and one method,

    evidence(key, latents, frequencies, state, data)
        -> (estimate of E log p(Y | features), next carried entries),

differentiable in the latents (N, Q), in the frequencies and in what the layer owns. There are three: Gaussian
data without holes, where the evidence is exact; Gaussian data with holes, where they are filled; and
everything else, by sites.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
from jax import Array
from jax.sharding import Mesh

from srflvm import chunked, entries
from srflvm.chunked import ChunkedTargets
from srflvm.evidence import Targets, predict_and_evidence
from srflvm.features import fourier_features
from srflvm.likelihoods import Likelihood
from srflvm.likelihoods._base import Expected
from srflvm.sites import (
    DAMPING,
    Function,
    better_amplitude,
    better_parameters,
    local_terms,
    next_sites,
    with_constants,
)

# A visit moves fills this far towards the mean of f at the draw at hand, so that they average over draws.
_FILL_STEP = 0.3


class Layer(Protocol):
    """See the module's docstring."""

    @property
    def owns(self) -> tuple[str, ...]: ...

    @property
    def carries(self) -> tuple[str, ...]: ...

    def evidence(
        self, key: Array, latents: Array, frequencies: Array, state: dict[str, Any], data: Any
    ) -> tuple[Array, dict[str, Any]]: ...


class FeatureLayer:
    """A layer that sees the latents through the features of all rows at once."""

    def evidence(self, key, latents, frequencies, state, data) -> tuple[Array, dict[str, Any]]:
        return self.at_features(key, fourier_features(latents, frequencies), state, data)

    def at_features(self, key, features, state, data) -> tuple[Array, dict[str, Any]]:
        """`evidence` at given features (N, L)."""
        raise NotImplementedError


class SharedData(NamedTuple):
    """Targets of the shared regression and the floor of noise / amplitude."""

    targets: ChunkedTargets
    smallest_ratio: Array


class HoleyData(NamedTuple):
    """Standardised data (N, M) with any number in the holes, where the holes are, how many entries are
    observed, and the floor of noise / amplitude."""

    Y: Array
    missing: Array
    n_observed: Array
    smallest_ratio: Array


class GroupData(NamedTuple):
    """One group's channels: y and observed (c, N), constants of those shapes, offset (N,), level (c,)."""

    y: Array
    observed: Array
    constants: dict[str, Array]
    offset: Array
    level: Array


@dataclass(frozen=True)
class SharedLayer:
    """Gaussian data without holes, its rows spread over the devices of a mesh if there is one."""

    mesh: Mesh | None = None

    owns = ("log_noise", "log_ratio")
    carries = ()

    def evidence(self, key, latents, frequencies, state, data: SharedData):
        noise, ratio = noise_of(state, data.smallest_ratio)
        value: Any = chunked.log_evidence(self.mesh, latents, frequencies, noise, ratio, data.targets)
        return value, {}


@dataclass(frozen=True)
class FillingLayer(FeatureLayer):
    """Gaussian data with holes: q(y) = N(fill, noise) for every missing entry.

    The bound E log p(Y, Y_missing | Phi) + entropy of q(Y_missing) is the evidence of the filled data with
    the terms in log noise counted for observed entries only. It is highest at fill = E f, to which each visit
    moves.
    """

    owns = ("log_noise", "log_ratio")
    carries = ("fill",)

    def at_features(self, key, features, state, data: HoleyData):
        noise, ratio = noise_of(state, data.smallest_ratio)
        filled = jnp.where(data.missing, state["fill"], data.Y)
        n_rows, n_columns = filled.shape
        square = jnp.sum(filled**2, dtype=jnp.float64)
        targets = Targets(filled, square, jnp.asarray(float(n_columns)))
        value, mean = predict_and_evidence(features, noise, ratio, targets)
        n_missing = n_rows * n_columns - data.n_observed
        fill = state["fill"] + jnp.where(data.missing, _FILL_STEP * (mean - state["fill"]), 0.0)
        return value + 0.5 * n_missing * jnp.log(2.0 * jnp.pi * noise), {"fill": fill}


@dataclass(frozen=True)
class GroupPlan:
    """What the compiled program has to know of a group; `batch` columns are visited at a time."""

    likelihood: Likelihood
    n_channels: int
    batch: int

    @property
    def scale(self) -> float:
        return self.n_channels / self.batch


@dataclass(frozen=True)
class SiteLayer(FeatureLayer):
    """Any likelihoods, with a site for every entry and batches of columns.

    Columns are independent given the features, so a random batch estimates the collapsed bound without bias.
    Batches run through a shuffled order: all columns are visited before any comes again.
    """

    groups: tuple[GroupPlan, ...]
    route: str = "sites"

    owns = ()
    carries = ("sites", "parameters", "log_amplitude", "order", "visit")

    def at_features(self, key, features, state, data: tuple[GroupData, ...]):
        features = with_constant(features)
        order_key, draw_key, *keys = jax.random.split(key, 2 + len(self.groups))
        order, picks = self._pick(order_key, state["order"], state["visit"])
        pieces = [take_piece(*parts) for parts in zip(picks, _unzip(state), data, strict=True)]
        sites = _concatenate([piece.sites for piece in pieces])
        log_amplitude = jnp.concatenate([piece.log_amplitude for piece in pieces])
        held = jax.lax.stop_gradient(features)
        weights = entries.solve(held, sites, jnp.exp(log_amplitude))
        moments = entries.function_moments(features, weights)
        draw = _draw(draw_key, held, weights) if self.route == "polya_gamma_sampled" else moments[0]
        divergences = entries.divergence(weights, jnp.exp(log_amplitude))
        amplitudes = better_amplitude(weights)
        value, new, start = jnp.zeros(()), [], 0
        for group, piece, group_key in zip(self.groups, pieces, keys, strict=True):
            mine = slice(start, start := start + group.batch)
            here = Function(moments[0][mine], moments[1][mine], piece.known, draw[mine])
            bound, updated = self._group_terms(group_key, group, piece, here)
            value += group.scale * (bound - jnp.sum(divergences[mine]))
            new.append(updated._replace(log_amplitude=amplitudes[mine]))
        return value, _written_back(state, picks, new) | {"order": order, "visit": state["visit"] + 1}

    def _group_terms(self, key, group: GroupPlan, piece: Piece, here: Function):
        """The group's expected log likelihood with its gradient in the features, and its next sites."""
        held = jax.tree.map(jax.lax.stop_gradient, here)
        parameters = with_constants(piece.parameters, piece.constants)
        values, local = local_terms(self.route, key, group.likelihood, piece.y, held, parameters)
        value = jnp.sum(jnp.where(piece.observed, values, 0.0), dtype=jnp.float64)
        # q(h) was solved with the present sites: Fisher's identity wants their omega, not the next one
        present = Expected(
            values, piece.sites.shift - piece.sites.precision * held.mean, piece.sites.precision
        )
        now = present if self.route == "polya_gamma_sampled" else local
        surrogate = linear_terms(now, here, piece.observed)
        value += surrogate - jax.lax.stop_gradient(surrogate)
        sites = next_sites(piece.sites, local, held.mean, piece.observed, DAMPING[self.route])
        better, _ = better_parameters(
            group.likelihood, piece.y, held, piece.observed, piece.parameters, piece.constants
        )
        return value, piece._replace(sites=sites, parameters=better)

    def _pick(self, key, order: tuple[Array, ...], visit: Array):
        """The columns of this visit; the order of a group is shuffled anew when it has been run through."""
        orders, picks = [], []
        for group, before in zip(self.groups, order, strict=True):
            first = visit % -(-group.n_channels // group.batch) * group.batch
            fresh = jax.random.permutation(key, group.n_channels).astype(before.dtype)
            mixed = jnp.where(first == 0, fresh, before) if group.scale > 1.0 else before
            orders.append(mixed)
            picks.append(mixed[(first + jnp.arange(group.batch)) % group.n_channels])
        return tuple(orders), picks


class Piece(NamedTuple):
    """A batch of one group: its data and its part of the state."""

    y: Array
    observed: Array
    constants: dict[str, Array]
    known: Array
    sites: entries.Sites
    parameters: dict[str, Array]
    log_amplitude: Array


def _unzip(state: dict[str, Any]) -> list[tuple[Any, ...]]:
    return list(zip(state["sites"], state["parameters"], state["log_amplitude"], strict=True))


def take_piece(pick: Array, mine: tuple[Any, ...], data: GroupData) -> Piece:
    """The columns `pick` of a group."""
    sites, parameters, log_amplitude = mine
    return Piece(
        y=data.y[pick],
        observed=data.observed[pick],
        constants={name: value[pick] for name, value in data.constants.items()},
        known=data.level[pick][:, None] + data.offset,
        sites=jax.tree.map(lambda array: array[pick], sites),
        parameters={name: value if len(value) == 1 else value[pick] for name, value in parameters.items()},
        log_amplitude=log_amplitude[pick],
    )


def _written_back(state: dict[str, Any], picks: list[Array], pieces: list[Piece]) -> dict[str, Any]:
    sites, parameters, amplitudes = [], [], []
    for pick, (old, learned, amplitude), piece in zip(picks, _unzip(state), pieces, strict=True):
        sites.append(jax.tree.map(lambda whole, part, at=pick: whole.at[at].set(part), old, piece.sites))
        parameters.append(
            {
                name: piece.parameters[name]
                if len(whole) == 1
                else whole.at[pick].set(piece.parameters[name])
                for name, whole in learned.items()
            }
        )
        amplitudes.append(amplitude.at[pick].set(piece.log_amplitude))
    return {"sites": tuple(sites), "parameters": tuple(parameters), "log_amplitude": tuple(amplitudes)}


def _concatenate(sites: list[entries.Sites]) -> entries.Sites:
    return jax.tree.map(lambda *parts: jnp.concatenate(parts), *sites)


def linear_terms(local: Expected, here: Function, observed: Array) -> Array:
    """The first-order change of the group's terms with mean and variance (Bonnet and Price)."""
    held = jax.tree.map(jax.lax.stop_gradient, local)
    terms = held.slope * here.mean - 0.5 * held.precision * here.variance
    return jnp.sum(jnp.where(observed, terms, 0.0), dtype=jnp.float64)


def _draw(key: Array, features: Array, weights: entries.Weights) -> Array:
    """f (B, N) at one draw of the weights."""
    noise = jax.random.normal(key, weights.mean.shape, weights.mean.dtype)
    drawn = weights.mean + jnp.einsum("bji,bj->bi", weights.root, noise)
    return drawn.astype(features.dtype) @ features.T


def with_constant(features: Any) -> Any:
    """Features with a column of ones, whose weight is the deviation from the column's starting level."""
    xp = features.__array_namespace__()
    return xp.concat([features, xp.ones((features.shape[0], 1), dtype=features.dtype)], axis=1)


def noise_of(state: dict[str, Any], smallest_ratio: Array | float) -> tuple[Array, Array]:
    """Noise variance and noise / amplitude, the latter above its floor."""
    return jnp.exp(state["log_noise"]), smallest_ratio + jnp.exp(state["log_ratio"])
