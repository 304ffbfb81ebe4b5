"""The sites, parameters and amplitudes of all columns solved for features that are held fixed.

Used where a fit begins, to find sites for its first features, and where it ends, to find the weights'
posterior for the frozen ones. Latents that are uncertain are given as several equally weighted sets of
features; an entry's f then has the mean and the variance of the mixture over them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from srflvm import entries, pairs
from srflvm._types import FloatArray
from srflvm.compiling import one_blas_thread, quickly_compiled
from srflvm.layers import GroupData, GroupPlan, Piece, take_piece
from srflvm.likelihoods import Likelihood
from srflvm.sites import (
    DAMPING,
    Function,
    better_amplitude,
    better_parameters,
    newton_steps,
    next_sites,
    with_constants,
)

_COLUMNS_AT_ONCE = 128


@dataclass(frozen=True)
class Settled:
    """One group solved: its part of the state, and of each channel the weights' mean (c, L), their packed
    covariance (c, P), and what it adds to the bound (c,)."""

    sites: entries.Sites
    parameters: dict[str, FloatArray]
    log_amplitude: FloatArray
    weights: FloatArray
    packed_covariance: FloatArray
    bound: FloatArray


class Layers(NamedTuple):
    """The state of one group of a `SiteLayer`."""

    sites: entries.Sites
    parameters: dict[str, Any]
    log_amplitude: Any


def settle(
    plans: Sequence[GroupPlan],
    features: FloatArray,
    data: tuple[GroupData, ...],
    state: dict[str, Any],
    n_rounds: int,
    columns: int | None = None,
) -> list[Settled]:
    """Solve all groups (or only about the first `columns` of each) for features (K, N, L), constant
    included."""
    flat = jnp.asarray(features.reshape(-1, features.shape[-1]))
    solved = []
    for index, group in enumerate(plans):
        mine = Layers(*(state[name][index] for name in ("sites", "parameters", "log_amplitude")))
        n_channels = group.n_channels if columns is None else min(columns, group.n_channels)
        with one_blas_thread():
            solved.append(_settle_group(group.likelihood, flat, data[index], mine, n_rounds, n_channels))
    return solved


def _settle_group(likelihood, features: Array, data: GroupData, mine: Layers, n_rounds: int, n_channels: int):
    batches = _batches(n_channels)
    state = [Layers(*take_piece(batch.pick, tuple(mine), data)[-3:]) for batch in batches]
    for _ in range(n_rounds):
        visits = []
        for batch, layers in zip(batches, state, strict=True):
            visits.append(_visit(likelihood, features, _piece(batch, layers, mine, data))[:2])
        state = _agreed(batches, visits, state)
    parts = []
    for batch, layers in zip(batches, state, strict=True):
        solved = (layers, *_visit(likelihood, features, _piece(batch, layers, mine, data))[2:])
        parts.append(jax.tree.map(lambda array, n=batch.keep: np.asarray(array[:n]), solved))
    layers, weights, packed, bound = (
        jax.tree.map(lambda *arrays: np.concatenate(arrays), *group) for group in zip(*parts, strict=True)
    )
    shared = {n: np.asarray(state[0].parameters[n]) for n, v in mine.parameters.items() if len(v) == 1}
    parameters = {**layers.parameters, **shared}
    return Settled(layers.sites, parameters, layers.log_amplitude, weights, packed, bound)


class _Batch(NamedTuple):
    """Columns, and how many of them count: the last batch is filled up with the first columns."""

    pick: Array
    keep: int


def _batches(n_channels: int) -> list[_Batch]:
    size = min(_COLUMNS_AT_ONCE, n_channels)
    return [
        _Batch(jnp.asarray((start + np.arange(size)) % n_channels), min(size, n_channels - start))
        for start in range(0, n_channels, size)
    ]


def _piece(batch: _Batch, layers: Layers, mine: Layers, data: GroupData) -> Piece:
    return take_piece(batch.pick, tuple(mine), data)._replace(**layers._asdict())


def _agreed(batches: list[_Batch], visits: list[Any], before: list[Layers]) -> list[Layers]:
    """The next state of the batches, in which a parameter shared by all columns has made one step for them
    all."""
    old = before[0].parameters
    shared = {}
    for name in (name for name, value in old.items() if len(value) == 1 and len(batches) > 1):
        kept = [
            jax.tree.map(lambda part, n=batch.keep: part[:n], slopes[name])
            for batch, (_, slopes) in zip(batches, visits, strict=True)
        ]
        slopes = jax.tree.map(lambda *parts: jnp.concatenate(parts), *kept)
        shared |= newton_steps({name: old[name]}, {name: slopes})
    return [layers._replace(parameters={**layers.parameters, **shared}) for layers, _ in visits]


@partial(quickly_compiled, static_argnames="likelihood")
def _visit(likelihood: Likelihood, features: Array, piece: Piece):
    """Return the next state of a batch and the slopes of parameters that moved alone, and of the present
    state the weights' posterior and the bound (B,)."""
    weights, here = _posterior(features, piece)
    parameters = with_constants(piece.parameters, piece.constants)
    local = likelihood.expectations(piece.y, here.total, here.variance, parameters)
    value = jnp.sum(jnp.where(piece.observed, local.value, 0.0), axis=1, dtype=jnp.float64)
    bound = value - entries.divergence(weights, jnp.exp(piece.log_amplitude))
    better, slopes = better_parameters(
        likelihood, piece.y, here, piece.observed, piece.parameters, piece.constants
    )
    updated = Layers(
        sites=next_sites(piece.sites, local, here.mean, piece.observed, DAMPING["sites"]),
        parameters=better,
        log_amplitude=better_amplitude(weights),
    )
    packed = pairs.pack_form(weights.covariance).astype(features.dtype)
    return updated, slopes, weights.mean, packed, bound


def _posterior(features: Array, piece: Piece) -> tuple[entries.Weights, Function]:
    """q(h), and q(f) as a mixture over the K sets of features."""
    n_rows = piece.y.shape[1]
    n_sets = features.shape[0] // n_rows
    spread = jax.tree.map(lambda site: jnp.tile(site, (1, n_sets)) / n_sets, piece.sites)
    weights = entries.solve(features, spread, jnp.exp(piece.log_amplitude))
    means, variances = (
        part.reshape(-1, n_sets, n_rows) for part in entries.function_moments(features, weights)
    )
    mean = jnp.mean(means, axis=1)
    variance = jnp.mean(variances, axis=1) + jnp.var(means, axis=1)
    return weights, Function(mean, variance, piece.known, mean)
