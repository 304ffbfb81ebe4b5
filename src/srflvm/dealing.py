"""Rows of a fit dealt out over processes: which are whose, and the state of a fit as arrays over all of them.

Every process holds a contiguous range of whole chunks of rows (`chunked`). The entries of the state that have
a row for each row of the data, and what Adam remembers of them, are global arrays over the axis "rows"; rows
that fill up the last chunks stay at the prior, where neither the bound nor its gradient sees them. Everything
else is the same in all processes. With one process the functions return what they are given.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from srflvm import bcd, parallel
from srflvm.chunked import chunk_shape

_ROW_ENTRIES = ("latent_mean", "latent_factor")

T = TypeVar("T")


def own_range(n_rows: int) -> tuple[int, int]:
    """The rows start, ..., stop - 1 of this process."""
    return parallel.row_range(n_rows, chunk_shape(n_rows)[1])


def pick(index: np.ndarray, own: np.ndarray, start: int) -> np.ndarray:
    """The rows of a sorted index, in every process, of an array whose rows from `start` on are here."""
    mine = index[(index >= start) & (index < start + len(own))]
    return parallel.gather_rows(own[mine - start])


def shard(own: np.ndarray, n_rows: int) -> jax.Array:
    """The global array of `n_rows` rows and padding, from the rows of this process."""
    if parallel.n_processes() == 1:
        return jnp.asarray(own)
    size = parallel.padded_rows(n_rows, chunk_shape(n_rows)[1]) // parallel.n_processes()
    padded = np.zeros((size, *own.shape[1:]), own.dtype)
    padded[: len(own)] = own
    return parallel.shard_rows(padded)


def own_rows(array: jax.Array, n_rows: int) -> np.ndarray:
    """The rows of this process of a global array."""
    if parallel.n_processes() == 1:
        return np.asarray(array)
    start, stop = own_range(n_rows)
    shards = sorted(array.addressable_shards, key=lambda shard: shard.index[0].start or 0)
    return np.concatenate([np.asarray(shard.data) for shard in shards])[: stop - start]


def spread(run: bcd.Run, n_rows: int) -> bcd.Run:
    """A run on arrays over all processes, from one on whole arrays; one that is spread stays as it is."""

    def place(is_of_rows: bool, leaf: Any) -> jax.Array:
        if isinstance(leaf, jax.Array) and not leaf.is_fully_addressable:
            return leaf
        values = np.asarray(leaf)
        if is_of_rows:
            return shard(values[slice(*own_range(n_rows))], n_rows)
        everywhere = NamedSharding(_mesh(), PartitionSpec())
        return jax.make_array_from_process_local_data(everywhere, values)

    return _changed(run, place)


def collect(run: bcd.Run, n_rows: int) -> bcd.Run:
    """The run on whole arrays, as one process would have it, in every process."""

    def fetch(is_of_rows: bool, leaf: Any) -> np.ndarray:
        return parallel.fetch_rows(leaf)[:n_rows] if is_of_rows else np.asarray(leaf)

    return _changed(run, fetch)


def _changed(run: bcd.Run, change: Callable[[bool, Any], Any]) -> bcd.Run:
    if parallel.n_processes() == 1:
        return run
    carry = _map_leaves(run.carry, change)
    state = carry.state if run.state is run.carry.state else _map_leaves(run.state, change)
    return replace(run, carry=carry, state=state)


def _map_leaves(tree: T, change: Callable[[bool, Any], Any]) -> T:
    def change_leaf(path: Any, leaf: Any) -> Any:
        return change(any(getattr(key, "key", None) in _ROW_ENTRIES for key in path), leaf)

    return jax.tree_util.tree_map_with_path(change_leaf, tree)


def _mesh() -> jax.sharding.Mesh:
    everywhere = parallel.mesh()
    assert everywhere is not None
    return everywhere
