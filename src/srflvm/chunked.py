"""The collapsed regression as a function of latents and frequencies, a chunk of rows at a time.

`evidence.log_evidence` needs of the N x L features only the sums Phi'Phi and Phi'Y, and its gradient with
respect to a row's features needs of them only that row:

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

from srflvm import parallel
from srflvm.evidence import row_gradient_terms, scalar_gradients, solve
from srflvm.features import fourier_features

ROWS = parallel.ROWS

# Rows of a chunk. The features of a few thousand rows fit in a cache that cores share, and threads find too
# little to do in fewer.
MOST_CHUNK_ROWS = 2048

QUARTERS = 4
VECTOR = 8


class ChunkedTargets(NamedTuple):
    """What the evidence needs of the data: scores (C, B, R) in C chunks of B rows, which of the rows are
    present (C, B), |Y|^2 and the numbers of columns and rows."""

    scores: Array
    present: Array
    total_square: Array
    n_columns: Array
    n_rows: Array


def chunk_shape(n_rows: int) -> tuple[int, int]:
    """The number of chunks and their rows: as even as can be, whatever the number of devices.

    From three on, chunks come in fours, so that one, two and four processes have whole quarters of them, and
    their rows in eights, whole vectors of a processor.
    """
    n_chunks = -(-n_rows // MOST_CHUNK_ROWS)
    if n_chunks <= 2:
        return n_chunks, -(-n_rows // n_chunks)
    size = _round_up(-(-n_rows // _round_up(n_chunks, QUARTERS)), VECTOR)
    return _round_up(-(-n_rows // size), QUARTERS), size


def _round_up(number: int, unit: int) -> int:
    return -(-number // unit) * unit


def chunk_targets(
    scores: np.ndarray, total_square: float, n_columns: int, dtype: Any, n_rows: int | None = None
) -> ChunkedTargets:
    """Targets of the rows of `scores` (N, R), or of `n_rows` rows of which this process has those."""
    n_rows = len(scores) if n_rows is None else n_rows
    size = chunk_shape(n_rows)[1]
    n_padded = parallel.padded_rows(n_rows, size) // parallel.n_processes()
    padding = n_padded - len(scores)
    present = np.pad(np.ones(len(scores), dtype), (0, padding)).reshape(-1, size)
    padded = np.pad(scores.astype(dtype, copy=False), ((0, padding), (0, 0)))
    return ChunkedTargets(
        parallel.shard_rows(padded.reshape(-1, size, padded.shape[1])),
        parallel.shard_rows(present),
        jnp.asarray(total_square),
        jnp.asarray(float(n_columns)),
        jnp.asarray(float(n_rows)),
    )


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def log_evidence(
    mesh: Mesh | None, latents: Array, frequencies: Array, noise: Array, ratio: Array, targets: ChunkedTargets
) -> Array:
    """log p(Y | features of the latents), differentiable in all but the targets.

    `latents` (N, Q), `frequencies` and the scores share a dtype; `noise`, `ratio` and the result are float64.
    Latents may have rows that are not present beyond the N that are.
    """
    return _forward(mesh, latents, frequencies, noise, ratio, targets)[0]


def _forward(mesh, latents, frequencies, noise, ratio, targets):
    rows = _in_chunks(latents, targets)
    gram, cross = _over_devices(mesh, _sums, (Spec(), Spec()))(rows, frequencies)
    solution = solve(gram, cross, targets, noise, ratio)
    return solution.log_evidence, (latents, frequencies, noise, ratio, targets, solution)


def _backward(mesh, residuals, cotangent):
    latents, frequencies, noise, ratio, targets, solution = residuals
    dtype = latents.dtype
    terms = row_gradient_terms(solution, noise, targets, cotangent, dtype)
    rows = _in_chunks(latents, targets)
    pull_back = _over_devices(mesh, _pull_back, (Spec(ROWS), Spec()))
    d_chunks, d_frequencies = pull_back(rows, (frequencies, terms.slope, terms.pull))
    d_latents = d_chunks.reshape(-1, latents.shape[1])[: len(latents)]
    d_noise, d_ratio = scalar_gradients(noise, ratio, targets, solution, terms)
    return d_latents, d_frequencies.astype(dtype), cotangent * d_noise, cotangent * d_ratio, None


log_evidence.defvjp(_forward, _backward)


def _in_chunks(latents: Array, targets: ChunkedTargets) -> tuple[Array, Array, Array]:
    n_chunks, size, _ = targets.scores.shape
    padding = n_chunks * size - len(latents)
    latents = jnp.pad(latents, ((0, padding), (0, 0))) if padding else latents
    return latents.reshape(n_chunks, size, -1), targets.scores, targets.present


def _over_devices(mesh: Mesh | None, function: Callable[..., Any], results: tuple[Spec, Spec]):
    """The function of (rows, what is shared), with every device at its own rows."""
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
    """The sums over all devices, as one array: every exchange costs the time of a few messages."""
    flat, unravel = ravel_pytree(tree)
    return unravel(jax.lax.psum(flat, ROWS))


def _sums(rows, frequencies: Array, add_up):
    """Phi'Phi and Phi'Y."""
    size, n_scores = 2 * len(frequencies), rows[1].shape[-1]

    def add(sums, chunk):
        latents, scores, present = chunk
        features = _features(latents, frequencies, present)
        return (sums[0] + features.T @ features, sums[1] + features.T @ scores), None

    start = jnp.zeros((size, size), jnp.float64), jnp.zeros((size, n_scores), jnp.float64)
    return add_up(jax.lax.scan(add, start, rows)[0])


def _pull_back(rows, shared, add_up):
    """The gradient in the latents, by chunks, and in the frequencies."""
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
