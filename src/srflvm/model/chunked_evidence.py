"""Evidence of the shared regression as a function of latents and frequencies, a chunk of rows at a time.

The evidence (see `numerics.shared_regression`) depends on the N x L features only through the sums Phi'Phi
and Phi'Y, and its gradient in the features of a row only on the sums and on that row:

    d/dphi_n = y_n H' / sigma^2 - phi_n (H H' / sigma^2 + M G^-1).

So the features are made chunk by chunk, once for the sums and once more for the gradient, and never held:
memory is that of one chunk, which also stays in the processor's caches. Sums over chunks are in float64.

Given a mesh of devices, each loops over its own chunks, and the sums over all of them are the only thing they
exchange. Rows that fill up the last chunks are not `present` and count for nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.flatten_util import ravel_pytree
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as Spec

from srflvm.numerics.features import ROWS, chunk_shape, fourier_features
from srflvm.numerics.shared_regression import Solution


class ChunkedTargets(NamedTuple):
    """Data of the evidence in C chunks of B rows.

    They are scores (C, B, R), which rows are present (C, B), |Y|^2, and the numbers of columns and rows.
    """

    scores: Array
    present: Array
    total_square: Array
    n_columns: Array
    n_rows: Array


def chunk_targets(
    scores: np.ndarray,
    total_square: float,
    n_columns: int,
    dtype: Any,
    *,
    n_rows: int | None = None,
    n_padded: int | None = None,
    shard: Callable[[np.ndarray], Array] = jax.device_put,
) -> ChunkedTargets:
    """Return the targets of the rows of `scores` (N, R), cut into chunks.

    Where `n_rows` rows are shared out over processes, `scores` are those of this process, `n_padded` is how
    many it has with padding, and `shard` makes a global array of the parts of all processes.
    """
    n_rows = len(scores) if n_rows is None else n_rows
    size = chunk_shape(n_rows)[1]
    padding = (-(-n_rows // size) * size if n_padded is None else n_padded) - len(scores)
    present = np.pad(np.ones(len(scores), dtype), (0, padding)).reshape(-1, size)
    padded = np.pad(scores.astype(dtype, copy=False), ((0, padding), (0, 0)))
    return ChunkedTargets(
        shard(padded.reshape(-1, size, padded.shape[1])),
        shard(present),
        jax.device_put(np.float64(total_square)),
        jax.device_put(np.float64(n_columns)),
        jax.device_put(np.float64(n_rows)),
    )


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def log_evidence(
    mesh: Mesh | None, latents: Array, frequencies: Array, noise: Array, ratio: Array, targets: ChunkedTargets
) -> Array:
    """Return log p(Y | features of the latents), differentiable in all but the targets.

    `latents` (N, Q), `frequencies` and the scores share a dtype; `noise`, `ratio` and the result are float64.
    Latents may have rows that are not present beyond the N that are.
    """
    return _forward(mesh, latents, frequencies, noise, ratio, targets)[0]


def _forward(mesh, latents, frequencies, noise, ratio, targets):
    rows = _in_chunks(latents, targets)
    gram, cross = _over_devices(mesh, _sums, (Spec(), Spec()))(rows, frequencies)
    solution = Solution.of(gram, cross, targets, noise, ratio)
    return solution.log_evidence, (latents, frequencies, noise, ratio, targets, solution)


def _backward(mesh, residuals, cotangent):
    latents, frequencies, noise, ratio, targets, solution = residuals
    dtype = latents.dtype
    gradient = solution.gradient(noise, ratio, targets, cotangent, dtype)
    rows = _in_chunks(latents, targets)
    pull_back = _over_devices(mesh, _pull_back, (Spec(ROWS), Spec()))
    d_chunks, d_frequencies = pull_back(rows, (frequencies, gradient.slope, gradient.pull))
    d_latents = d_chunks.reshape(-1, latents.shape[1])[: len(latents)]
    return d_latents, d_frequencies.astype(dtype), gradient.noise, gradient.ratio, None


log_evidence.defvjp(_forward, _backward)


def _in_chunks(latents: Array, targets: ChunkedTargets) -> tuple[Array, Array, Array]:
    n_chunks, size, _ = targets.scores.shape
    padding = n_chunks * size - len(latents)
    latents = jnp.pad(latents, ((0, padding), (0, 0))) if padding else latents
    return latents.reshape(n_chunks, size, -1), targets.scores, targets.present


def _over_devices(mesh: Mesh | None, function: Callable[..., Any], results: tuple[Spec, Spec]):
    """Return the function of (rows, shared arrays) with every device at its own rows."""
    if mesh is None:
        return partial(function, add_up=lambda tree: tree)
    return jax.shard_map(
        partial(function, add_up=_over_mesh),
        mesh=mesh,
        in_specs=(Spec(ROWS), Spec()),
        out_specs=results,
        check_vma=False,
    )


def _over_mesh(tree: Any) -> Any:
    """Sum over all devices, as one array: every exchange costs the time of a few messages."""
    flat, unravel = ravel_pytree(tree)
    return unravel(jax.lax.psum(flat, ROWS))


def _sums(rows, frequencies: Array, add_up):
    """Return Phi'Phi and Phi'Y."""
    size, n_scores = 2 * len(frequencies), rows[1].shape[-1]

    def add(sums, chunk):
        latents, scores, present = chunk
        features = _features(latents, frequencies, present)
        return (sums[0] + features.T @ features, sums[1] + features.T @ scores), None

    start = jnp.zeros((size, size), jnp.float64), jnp.zeros((size, n_scores), jnp.float64)
    return add_up(jax.lax.scan(add, start, rows)[0])


def _pull_back(rows, shared, add_up):
    """Return the gradient in the latents, by chunks, and in the frequencies."""
    frequencies, slope, pull = shared

    def step(d_frequencies, chunk):
        latents, scores, present = chunk
        features, vjp = jax.vjp(partial(_features, present=present), latents, frequencies)
        d_latents, d_more = vjp(scores @ slope - features @ pull)
        return d_frequencies + d_more, d_latents

    start = jnp.zeros(frequencies.shape, jnp.float64)
    d_frequencies, d_latents = jax.lax.scan(step, start, rows)
    return d_latents, add_up(d_frequencies)


def _features(latents: Array, frequencies: Array, present: Array) -> Array:
    return fourier_features(latents, frequencies) * present[:, None]
