"""Linear layer of any likelihoods whose weights' covariances share one basis: the cost of a Gaussian step.

For every Gaussian q(h_m) = N(mean_m, V_m) the bound sum_n E l(f_nm) - KL(q(h_m) || N(0, a_m I)) is valid. The
best V_m of a column is (Phi' diag(p_m) Phi + I / a_m)^-1 with the precisions p_nm = -E l'' of its entries,
a matrix for every column. Here all columns share an orthogonal basis E (L, L), the eigenvectors of
Phi' diag(u) Phi for a typical precision u_n of each row, and have a spectrum of their own,

    V_m = E diag(d_m) E',   d_ml = 1 / (q_ml + 1 / a_m),   q_ml = sum_n p_nm psi_nl^2,   psi_n = E' phi_n,

which is the best diagonal in that basis, and the best V_m of all where p_nm = u_n v_m. With the features
Psi = Phi E in the basis, everything about all columns is a product of an N x L with an L x M matrix: means of
f are Psi mean', variances (Psi^2) d', slopes in the means Psi' (E l'), the q are (Psi^2)' p, and the gradient
of the bound in the features of a row is sum_m E l'_nm mean_m - (sum_m p_nm d_m) psi_n. Nothing has L^2
numbers a column, and rows are seen a chunk at a time: nothing has N M numbers but the data.

A visit of some columns at a draw of the latents
1. makes a Newton step of the means, preconditioned by d, with the length that is best along it,
2. evaluates the bound and its gradient at the new means, with d as it was,
3. finds q, the amplitudes and now and then the parameters of the likelihoods for the next visit.

Weights belong to frequencies, so a draw of these is held for a number of visits. Where it is renewed, the
means move on to the weights whose function is nearest to the old one at all rows, under the precisions
u_n v_m, and the basis is made anew.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from srflvm.data.encoding import GroupRows
from srflvm.likelihoods.base import Expected
from srflvm.model.evidence_layers import GroupPlan, SiteData, affine_scales, pick_columns
from srflvm.model.sites import Function, better_parameters
from srflvm.numerics.features import chunk_shape, layer_features

# Nodes of the averages over q(f): for the direction of Newton steps, and for the bound and its gradient.
DIRECTION_NODES = 3
BOUND_NODES = 5

# A Newton step moves the f of a column's observed entries by no more than this, a root mean square: the
# quadratic is not to be trusted beyond.
_LARGEST_STEP = 1.0

# Bounds of a column before and after a Newton step are of different rules, and differ by up to this much an
# entry without a meaning. After a step that lowered it, the column takes shorter ones for some time.
_TOLERATED_FALL = 0.01
_SMALLEST_TRUST = 1e-3

_SMALLEST_PRECISION = 1e-8

# A draw of the frequencies serves so many visits, and so many rounds of visits to all columns, at least.
# After how many rounds the parameters of likelihoods are moved.
_FEWEST_VISITS_PER_DRAW = 6
_ROUNDS_PER_DRAW = 3
_ROUNDS_PER_PARAMETERS = 3


class ColumnWeights(NamedTuple):
    """Weights of B columns in the basis.

    Means (B, L), precisions q (B, L), log amplitudes (B,), and how far Newton steps are trusted (B,).
    """

    mean: Any
    precision: Any
    log_amplitude: Any
    trust: Any

    @classmethod
    def of(cls, state: dict[str, Any]) -> ColumnWeights:
        """Return the weights of all channels from the entries of a fit's state."""
        return cls(
            state["basis_mean"],
            state["basis_precision"],
            jnp.concatenate(state["log_amplitude"]),
            state["basis_trust"],
        )

    @property
    def spectrum(self) -> Array:
        """Return the variances d (B, L) along the basis."""
        inverse = jnp.exp(-self.log_amplitude).astype(self.mean.dtype)
        return 1.0 / (self.precision + inverse[:, None])

    def divergence(self, spectrum: Array) -> Array:
        """Return KL(q(h_m) || N(0, a_m I)) of each column, (B,)."""
        size = self.mean.shape[1]
        square = jnp.sum(self.mean**2 + spectrum, axis=1, dtype=jnp.float64)
        log_determinant = jnp.sum(jnp.log(spectrum), axis=1, dtype=jnp.float64)
        scaled = square * jnp.exp(-self.log_amplitude)
        return 0.5 * (scaled - size + size * self.log_amplitude - log_determinant)


class _Gradient(NamedTuple):
    """Gradient of the bound in the latents (K, N, Q), the frequencies and the scales of an affine part."""

    latents: Array
    frequencies: Array
    scales: Array


class _Visit(NamedTuple):
    """Outcome of a visit of B columns.

    The bound of each column, its gradient, the next weights and parameters, and the mean over the columns of
    their relative precisions in each row, (chunks, rows of a chunk).
    """

    bound: Array
    gradient: _Gradient
    weights: ColumnWeights
    parameters: tuple[dict[str, Array], ...]
    row_precision: Array


class _Chunk(NamedTuple):
    """Rows of a chunk: their features in the basis (n, L), and of each group the rows of some channels."""

    features: Array
    rows: tuple[GroupRows, ...]


@dataclass(frozen=True)
class Rows:
    """All rows of some columns at K sets of latents (K, N, Q), to be seen chunk by chunk.

    `data` are those of all columns, `picks` the columns of each group.
    """

    plans: tuple[GroupPlan, ...]
    data: SiteData
    picks: Sequence[Array]
    latents: Array
    frequencies: Array
    scales: Array

    @property
    def n_sets(self) -> int:
        """Return K."""
        return self.latents.shape[0]

    def sum(self, function: Callable[[Array, Array], Any]) -> Any:
        """Return the mean over the sets of the sums over the chunks of `function(latents, index)`."""
        return self._scan(lambda *item: (function(*item), None))[0]

    def sum_and_stack(self, function: Callable[[Array, Array], Any]) -> Any:
        """Do as `sum` does with the first of two results, and stack the second (chunks K, ...)."""
        return self._scan(function)

    def chunk(self, latents: Array, index: Array, basis: Array) -> _Chunk:
        """Return features and data of a chunk."""
        rows = tuple(
            _columns_of_chunk(plan, mine, index, pick)
            for plan, (mine, _), pick in zip(self.plans, self.data, self.picks, strict=True)
        )
        return _Chunk(self.features(latents, self.frequencies, self.scales) @ basis, rows)

    @staticmethod
    def features(latents: Array, frequencies: Array, scales: Array) -> Array:
        """Return the features of some rows."""
        return layer_features(latents, frequencies, scales)

    def _scan(self, function: Callable[[Array, Array], tuple[Any, Any]]) -> tuple[Any, Any]:
        n_chunks, _, size = self.data[0][0].y.shape
        n_sets, n_rows, n_latent = self.latents.shape
        padded = jnp.pad(self.latents, ((0, 0), (0, n_chunks * size - n_rows), (0, 0)))
        items = padded.reshape(n_sets * n_chunks, size, n_latent)
        if len(items) == 1:
            total, stacked = function(items[0], jnp.array(0))
            return total, jax.tree.map(lambda array: array[None], stacked)

        def add(total: Any, item: tuple[Array, Array]) -> tuple[Any, Any]:
            more, output = function(item[0], item[1] % n_chunks)
            return jax.tree.map(lambda one, other: one + other / n_sets, total, more), output

        shapes = jax.eval_shape(function, items[0], jnp.array(0))[0]
        zeros = jax.tree.map(lambda s: jnp.zeros(s.shape, _sum_type(s.dtype)), shapes)
        return jax.lax.scan(add, zeros, (items, jnp.arange(len(items))))

    def remembered(self, function: Callable[[Array, Array], Any]) -> Callable[[Array, Array], Any]:
        """Return the function itself, or, where there is one chunk alone, one that is computed once."""
        if self.n_sets * self.data[0][0].y.shape[0] > 1:
            return function
        found: list[Any] = []

        def once(latents: Array, index: Array) -> Any:
            if not found:
                found.append(function(latents, index))
            return found[0]

        return once

    def n_observed(self) -> Array:
        """Return the number of observed entries of each column, (B,)."""
        counts = [
            jnp.sum(mine.observed, axis=(0, 2))[pick]
            for (mine, _), pick in zip(self.data, self.picks, strict=True)
        ]
        return jnp.concatenate(counts)

    def are_quadratic(self) -> np.ndarray:
        """Tell for each column whether its log density is quadratic in f, (B,)."""
        return np.concatenate([np.full(plan.batch, plan.likelihood.is_quadratic) for plan in self.plans])

    def levels(self) -> list[Array]:
        """Return the levels of the columns of each group."""
        return [level[pick] for (_, level), pick in zip(self.data, self.picks, strict=True)]

    def local_terms(
        self,
        chunk: _Chunk,
        mean: Array,
        variance: Array,
        parameters: Sequence[dict[str, Array]],
        n_nodes: int,
    ) -> Expected:
        """Return E l, E l' and -E l'' (B, n) of the entries of a chunk, zero where nothing is observed."""
        parts = []
        for plan, rows, here, learned in zip(
            self.plans, chunk.rows, self.functions(chunk, mean, variance), parameters, strict=True
        ):
            # in the precision of the rows, or all would be computed in that of the parameters
            learned = {name: value.astype(mean.dtype) for name, value in learned.items()}
            local = plan.likelihood.quick_expectations(
                rows.y, here.total, here.variance, rows.arguments(learned), n_nodes
            )
            parts.append(Expected(*(jnp.where(rows.observed, part, 0.0) for part in local)))
        joined = jax.tree.map(lambda *arrays: jnp.concatenate(arrays), *parts)
        return Expected(*(part.astype(mean.dtype) for part in joined))

    def functions(self, chunk: _Chunk, mean: Array, variance: Array) -> list[Function]:
        """Return q(f) of each group, given that of all columns (B, n)."""
        found, start = [], 0
        for rows, level in zip(chunk.rows, self.levels(), strict=True):
            own = slice(start, start := start + len(rows.y))
            found.append(Function(mean[own], variance[own], level[:, None] + rows.offset, mean[own]))
        return found


def _columns_of_chunk(plan: GroupPlan, rows: GroupRows, index: Array, pick: Array) -> GroupRows:
    """Return the rows of a chunk, with the columns picked; not moved about if these are all there are."""
    chunk = jax.tree.map(lambda array: array[index], rows)
    return chunk if plan.batch == plan.n_channels else chunk.take_channels(pick)


def _sum_type(dtype: Any) -> Any:
    return jnp.float64 if jnp.issubdtype(dtype, jnp.floating) else dtype


def visit(
    rows: Rows,
    basis: Array,
    weights: ColumnWeights,
    parameters: tuple[dict[str, Array], ...],
    moves_parameters: Array | bool,
) -> _Visit:
    """Visit some columns: the docstring of the module says what is done."""
    spectrum = weights.spectrum
    moved, bound_before = _newton_step(rows, basis, weights, spectrum, parameters)
    share = 1.0 / jnp.maximum(jnp.sum(weights.precision, axis=1), _SMALLEST_PRECISION)

    def evaluate(latents: Array, index: Array) -> tuple[Any, Any]:
        chunk, pull = _differentiable_chunk(rows, latents, index, basis)
        mean, variance = _moments(chunk.features, moved.mean, spectrum)
        local = rows.local_terms(chunk, mean, variance, parameters, BOUND_NODES)
        positive = jnp.maximum(local.precision, 0.0)
        scaled = jax.tree.map(lambda part: part * _scales(rows.plans, part.dtype)[:, None], local)
        slope = scaled.slope.T @ moved.mean - (scaled.precision.T @ spectrum) * chunk.features
        d_latents, d_frequencies, d_scales = pull(slope @ basis.T)
        value = _row_sums(local.value, latents)
        sums = value, positive @ chunk.features**2, d_frequencies, d_scales
        return sums, (d_latents, share @ positive)

    sums, (d_latents, row_precision) = rows.sum_and_stack(evaluate)
    value, precision, d_frequencies, d_scales = sums
    row_precision = jnp.mean(row_precision.reshape(rows.n_sets, -1, row_precision.shape[1]), axis=0)
    bound = value - moved.divergence(spectrum)
    is_worse = ~(bound >= bound_before - _TOLERATED_FALL * rows.n_observed())
    dtype = weights.mean.dtype
    square = jnp.sum(moved.mean**2 + spectrum, axis=1, dtype=jnp.float64)
    after = ColumnWeights(
        mean=jnp.where(is_worse[:, None], weights.mean, moved.mean),
        precision=jnp.where(is_worse[:, None], weights.precision, precision.astype(dtype)),
        log_amplitude=jnp.where(is_worse, weights.log_amplitude, jnp.log(square / basis.shape[0])),
        trust=jnp.where(
            is_worse,
            jnp.maximum(0.25 * weights.trust, _SMALLEST_TRUST),
            jnp.minimum(2.0 * weights.trust, 1.0),
        ),
    )

    def functions(latents: Array, index: Array) -> tuple[_Chunk, list[Function]]:
        chunk = rows.chunk(latents, index, basis)
        return chunk, rows.functions(chunk, *_moments(chunk.features, moved.mean, spectrum))

    better = _better_parameters(rows, functions, parameters, moves_parameters)
    gradient = _Gradient(d_latents, d_frequencies, d_scales)
    return _Visit(bound, gradient, after, better, row_precision)


def _row_sums(values: Array, latents: Array) -> Array:
    """Return the sums (B,) over the rows of a chunk, which has these latents.

    They are made by a product with a matrix whose first column is one. XLA joins a sum, or a product with a
    vector or a constant, with what its values are made by, and then makes these again, in one thread.
    """
    ones = jnp.ones((len(latents), 1), values.dtype)
    return (values @ jnp.concatenate([ones, latents.astype(values.dtype)], axis=1))[:, 0].astype(jnp.float64)


def _moments(features: Array, mean: Array, spectrum: Array) -> tuple[Array, Array]:
    """Return mean and variance of f (B, n) at features (n, L) in the basis."""
    return mean @ features.T, spectrum @ (features**2).T


def _scales(plans: Sequence[GroupPlan], dtype: Any) -> np.ndarray:
    """Return for each column of a visit the number of columns that it stands for, (B,)."""
    return np.concatenate([np.full(plan.batch, plan.scale, dtype) for plan in plans])


def _differentiable_chunk(
    rows: Rows, latents: Array, index: Array, basis: Array
) -> tuple[_Chunk, Callable[[Array], Any]]:
    """Return a chunk, and what turns a gradient in its features into one in what these are made of."""
    features, pull = jax.vjp(rows.features, latents, rows.frequencies, rows.scales)
    chunk = rows.chunk(latents, index, basis)
    return chunk._replace(features=features @ basis), pull


def _newton_step(
    rows: Rows,
    basis: Array,
    weights: ColumnWeights,
    spectrum: Array,
    parameters: tuple[dict[str, Array], ...],
) -> tuple[ColumnWeights, Array]:
    """Move the means uphill; also return the bound (B,) of each column before.

    With the gradient g = Psi' E l' - mean / a, the step is t d g. Along it the bound is, to second order,
    t g'd g - t^2 / 2 (sum_n p_n (psi_n' d g)^2 + |d g|^2 / a), which is highest where the length t is the
    ratio of the two.
    """
    dtype = weights.mean.dtype
    inverse = jnp.exp(-weights.log_amplitude)

    @rows.remembered
    def terms(latents: Array, index: Array) -> tuple[_Chunk, Expected]:
        chunk = rows.chunk(latents, index, basis)
        mean, variance = _moments(chunk.features, weights.mean, spectrum)
        return chunk, rows.local_terms(chunk, mean, variance, parameters, DIRECTION_NODES)

    def slopes(latents: Array, index: Array) -> tuple[Array, Array]:
        chunk, local = terms(latents, index)
        return local.slope @ chunk.features, _row_sums(local.value, latents)

    cross, value = rows.sum(slopes)
    gradient = cross - weights.mean * inverse[:, None]
    step = (spectrum * gradient).astype(dtype)

    def bends(latents: Array, index: Array) -> tuple[Array, Array]:
        chunk, local = terms(latents, index)
        squares = (step @ chunk.features.T) ** 2
        bend = jnp.maximum(local.precision, 0.0) * squares
        seen = jnp.concatenate([group.observed for group in chunk.rows])
        return _row_sums(bend, latents), _row_sums(jnp.where(seen, squares, 0.0), latents)

    bend, square = rows.sum(bends)
    rise = jnp.sum(gradient * step, axis=1)
    length = rise / jnp.maximum(bend + inverse * jnp.sum(step**2, axis=1), 1e-30)
    limit = _LARGEST_STEP / jnp.sqrt(jnp.maximum(square / jnp.maximum(rows.n_observed(), 1), 1e-30))
    length = weights.trust * jnp.where(rows.are_quadratic(), length, jnp.minimum(length, limit))
    moved = weights._replace(mean=weights.mean + length[:, None].astype(dtype) * step)
    return moved, value - weights.divergence(spectrum)


def _better_parameters(
    rows: Rows,
    functions: Callable[[Array, Array], tuple[_Chunk, list[Function]]],
    parameters: tuple[dict[str, Array], ...],
    is_due: Array | bool,
) -> tuple[dict[str, Array], ...]:
    """Move the learned parameters of all groups uphill if it is their turn."""

    def better(number: int, plan: GroupPlan) -> dict[str, Array]:
        def summed(summand: Callable[[GroupRows, Function], Any]) -> Any:
            def of_chunk(latents: Array, index: Array) -> Any:
                chunk, here = functions(latents, index)
                return summand(chunk.rows[number], here[number])

            return rows.sum(of_chunk)

        return better_parameters(plan.likelihood, plan.batch, parameters[number], summed, BOUND_NODES)[0]

    def all_better() -> tuple[dict[str, Array], ...]:
        found = [better(number, plan) if parameters[number] else {} for number, plan in enumerate(rows.plans)]
        return jax.tree.map(lambda new, old: new.astype(old.dtype), tuple(found), parameters)

    if not any(parameters):
        return parameters
    return jax.lax.cond(is_due, all_better, lambda: parameters)


# ---- the layer ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SharedBasisLayer:
    """Layer of any likelihoods with weights in a shared basis, visited in batches of columns.

    Of the state it carries the basis, the weights of all C channels, the typical precision u of each row, and
    the frequencies that the weights belong to with the key they were drawn by.
    """

    groups: tuple[GroupPlan, ...]
    has_affine: bool = False

    is_heavy = True
    carries = (
        "basis",
        "basis_mean",
        "basis_precision",
        "basis_trust",
        "row_precision",
        "drawn_frequencies",
        "frequency_key",
        "parameters",
        "log_amplitude",
        "order",
        "visit",
    )

    @property
    def owns(self) -> tuple[str, ...]:
        """Return the entry of the affine part, if there is one."""
        return ("log_affine",) if self.has_affine else ()

    @property
    def n_batches(self) -> int:
        """Return the number of visits after which all columns have been seen."""
        return max(-(-plan.n_channels // plan.batch) for plan in self.groups)

    def _is_draw_due(self, state: dict[str, Any]) -> Array:
        n_visits = max(_ROUNDS_PER_DRAW * self.n_batches, _FEWEST_VISITS_PER_DRAW)
        return state["visit"] % n_visits == 0

    def frequency_key(self, key: Array, state: dict[str, Any]) -> Array:
        """Return the key by which frequencies are drawn: that of the last visit, or a new one if due."""
        fresh = jax.random.key_data(key)
        kept = jnp.where(self._is_draw_due(state), fresh, state["frequency_key"])
        return jax.random.wrap_key_data(kept, impl="rbg")

    def evidence(
        self,
        key: Array,
        latents: Array,
        frequencies: Array,
        state: dict[str, Any],
        data: SiteData,
    ) -> tuple[Array, dict[str, Any]]:
        """Estimate the bound from a batch of columns, and bring their state up to date."""
        scales = jnp.asarray(affine_scales(state, latents.dtype))
        held = jax.lax.stop_gradient((latents, frequencies, scales))
        order, picks = pick_columns(self.groups, key, state["order"], state["visit"])
        rows = Rows(self.groups, data, picks, held[0][None], *held[1:])
        basis, whole = self._weights_at(rows, state)
        is_due = (state["visit"] // self.n_batches) % _ROUNDS_PER_PARAMETERS == 0
        current = {**state, "basis": basis, **self._weight_entries(whole)}
        seen, carried = self._visited(rows, current, is_due)
        value = jnp.sum(_scales(self.groups, np.float64) * seen.bound)
        slopes = seen.gradient._replace(latents=_unpadded(seen.gradient.latents, latents))
        linear = sum(
            jnp.sum(jax.lax.stop_gradient(slope).astype(at.dtype) * at, dtype=jnp.float64)
            for slope, at in zip(slopes, (latents, frequencies, scales), strict=True)
        )
        carried |= {
            "basis": basis,
            "drawn_frequencies": held[1],
            "frequency_key": state["frequency_key"],
            "order": order,
            "visit": state["visit"] + 1,
        }
        return value + linear - jax.lax.stop_gradient(linear), carried

    def solve(
        self, points: Array, scales: Array, state: dict[str, Any], data: SiteData, number: Array
    ) -> dict[str, Any]:
        """Visit the columns of a batch at points (K, N, Q) and the frequencies drawn; return what changed."""
        picks = [(number * plan.batch + jnp.arange(plan.batch)) % plan.n_channels for plan in self.groups]
        rows = Rows(self.groups, data, picks, points, state["drawn_frequencies"], scales)
        return self._visited(rows, state, True)[1]

    def _visited(
        self, rows: Rows, state: dict[str, Any], moves_parameters: Array | bool
    ) -> tuple[_Visit, dict[str, Any]]:
        """Visit the columns that were picked, and return the entries of the state that changed."""
        firsts = np.cumsum([0, *(plan.n_channels for plan in self.groups)])[:-1].tolist()
        index = jnp.concatenate([first + pick for first, pick in zip(firsts, rows.picks, strict=True)])
        whole = ColumnWeights.of(state)
        some = ColumnWeights(*(part[index] for part in whole))
        learned = [
            {name: value if len(value) == 1 else value[pick] for name, value in mine.items()}
            for mine, pick in zip(state["parameters"], rows.picks, strict=True)
        ]
        seen = visit(rows, state["basis"], some, tuple(learned), moves_parameters)
        seen = _centred(self.groups, state["basis"], seen)
        whole = ColumnWeights(*(old.at[index].set(new) for old, new in zip(whole, seen.weights, strict=True)))
        parameters = tuple(
            {
                name: new[name] if len(value) == 1 else value.at[pick].set(new[name])
                for name, value in mine.items()
            }
            for mine, pick, new in zip(state["parameters"], rows.picks, seen.parameters, strict=True)
        )
        entries = {"parameters": parameters, "row_precision": seen.row_precision}
        return seen, entries | self._weight_entries(whole)

    def _weight_entries(self, weights: ColumnWeights) -> dict[str, Any]:
        ends = np.cumsum([plan.n_channels for plan in self.groups])[:-1]
        return {
            "basis_mean": weights.mean,
            "basis_precision": weights.precision,
            "basis_trust": weights.trust,
            "log_amplitude": tuple(jnp.split(weights.log_amplitude, ends)),
        }

    def _weights_at(self, rows: Rows, state: dict[str, Any]) -> tuple[Array, ColumnWeights]:
        """Return the basis and the weights of all channels, for new frequencies if these were drawn anew."""
        before = ColumnWeights.of(state)

        def renewed() -> tuple[Array, ColumnWeights]:
            return _transfer(rows, state["drawn_frequencies"], state["row_precision"], state["basis"], before)

        return jax.lax.cond(self._is_draw_due(state), renewed, lambda: (state["basis"], before))


def _transfer(
    rows: Rows, old_frequencies: Array, row_precision: Array, old_basis: Array, weights: ColumnWeights
) -> tuple[Array, ColumnWeights]:
    """Return a basis for the features of the rows, and the weights in it nearest to those of old features.

    With the precisions u_n v_m in the place of those of all entries, v_m the ratio of the traces of q_m and
    of Phi'diag(u)Phi, the means are those of a regression on the old f,
    E diag(1 / (v D + 1 / a)) E' v Phi'diag(u) f.
    """

    def sums(latents: Array, index: Array) -> tuple[Array, Array, Array]:
        features = rows.features(latents, rows.frequencies, rows.scales)
        old = rows.features(latents, old_frequencies, rows.scales)
        weighted = features * row_precision[index][:, None]
        trace = jnp.sum(row_precision[index] * jnp.sum(old**2, axis=1), dtype=jnp.float64)
        return weighted.T @ features, weighted.T @ old, trace

    dtype = old_basis.dtype
    gram, cross, trace = rows.sum(sums)
    values, vectors = jnp.linalg.eigh(gram.astype(jnp.float64))
    values, basis = jnp.maximum(values, 0.0), vectors.astype(dtype)
    factor = jnp.sum(weights.precision, axis=1, dtype=jnp.float64) / jnp.maximum(trace, 1e-30)
    precision = factor[:, None] * values
    shrunk = factor[:, None] / (precision + jnp.exp(-weights.log_amplitude)[:, None])
    turned = (basis.T @ cross.astype(dtype)) @ old_basis
    mean = shrunk.astype(dtype) * (weights.mean @ turned.T)
    return basis, weights._replace(mean=mean, precision=precision.astype(dtype))


def _centred(plans: Sequence[GroupPlan], basis: Array, seen: _Visit) -> _Visit:
    """Move the constants of f to a parameter that moves with f, where a likelihood has one.

    `GroupState.centred` says why. The constant is the last feature, and its weight basis[-1] @ mean.
    """
    mean, parameters, start = seen.weights.mean, [], 0
    for plan, learned in zip(plans, seen.parameters, strict=True):
        own = slice(start, start := start + plan.batch)
        name = plan.likelihood.moves_with_f
        if name is not None:
            constants = mean[own] @ basis[-1]
            mean = mean.at[own].add(-constants[:, None] * basis[-1])
            learned = {**learned, name: (learned[name] - constants).astype(learned[name].dtype)}
        parameters.append(learned)
    return seen._replace(weights=seen.weights._replace(mean=mean), parameters=tuple(parameters))


def _unpadded(chunks: Array, latents: Array) -> Array:
    return chunks.reshape(-1, latents.shape[1])[: len(latents)]


def chunk_rows(rows: GroupRows, n_rows: int) -> GroupRows:
    """Cut rows in the form of `channels_first` into chunks: (c, N) becomes (chunks, c, rows of a chunk).

    Of rows that fill up the last chunk nothing is observed.
    """
    n_chunks, size = chunk_shape(n_rows)

    def cut(array: np.ndarray) -> np.ndarray:
        padded = np.pad(array, ((0, 0), (0, n_chunks * size - n_rows)))
        return np.ascontiguousarray(np.moveaxis(padded.reshape(len(array), n_chunks, size), 1, 0))

    filled = {name: cut(value - 1.0) + 1.0 for name, value in rows.constants.items()}
    return GroupRows(cut(rows.y), cut(rows.observed), filled, cut(rows.offset))
