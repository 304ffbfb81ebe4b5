"""How much memory a fit needs, known before it starts.

With N rows (of this process), M columns, R scores, L features, Q latents, chunks of B rows, s bytes a number
of the fit and P = Q + Q^2 parameters of a row (2 Q with diagonal covariances), a fit of complete Gaussian
data holds, in bytes,

    scores      N R (s' + s)   kept, and in chunks; s' is s where they are many, else 8
    latents     14 N P s       parameters, Adam's two moments, before and after a sweep (6), the best state
                               (1), and gradients, steps and copies of XLA's program (7)
    embedding   24 N (Q + Q^2) means and factors in float64: placed, frozen, and found
    columns     40 M^2         Gram matrix, scaled copy and eigenvectors; 40 N^2 + 24 M R if rows are fewer,
                               and 40 M (2 R + 50) for the sketch, if both are more than 3000 and 2 R + 50
    features    100 L^2 + 8 B L s + 16384 (2 Q + 3) L
                               algebra of the regression, a chunk's features, and those of a frozen chunk
    pieces      100 MB         rows as they are read, centred (25 N M where that is less)
    landmarks   16 K M         K = min(N, n_landmarks) rows in float64, and a copy
    programs    200 MB         compiled programs, and what compiling them takes

With holes, or with a site for every entry, the arrays of all N M entries dominate: measured, 150 and 220
bytes an entry (`ENTRY_BYTES`), in place of scores and columns.
"""

from __future__ import annotations

from dataclasses import dataclass

from srflvm import nystrom
from srflvm.chunked import chunk_shape
from srflvm.compression import LARGEST_EXACT, MOST_DOUBLE_SCORES
from srflvm.free_memory import available, in_gb
from srflvm.posterior import CHUNK

ENTRY_BYTES = {"filled": 150.0, "sites": 220.0}

_PIECE_ENTRIES = 4e6
_PROGRAMS = 200e6


@dataclass(frozen=True)
class Shape:
    """What the need depends on: see the module's docstring. `n_scores` is R, `item_bytes` s."""

    n_rows: int
    n_columns: int
    n_scores: int
    n_features: int
    n_latent: int
    diagonal: bool
    item_bytes: int
    n_landmarks: int


@dataclass(frozen=True)
class Memory:
    """Bytes by what they are for, beyond what the process holds before the fit and beyond Y itself."""

    parts: dict[str, float]

    @property
    def total(self) -> float:
        return sum(self.parts.values())

    def __str__(self) -> str:
        largest = sorted(self.parts.items(), key=lambda part: -part[1])
        return f"{in_gb(self.total)} ({', '.join(f'{name} {in_gb(size)}' for name, size in largest)})"


def needed(kind: str, shape: Shape) -> Memory:
    """What a fit needs: `kind` is "shared" (complete Gaussian data), "filled" (with holes) or "sites"."""
    n, m, q, size = shape.n_rows, shape.n_columns, shape.n_latent, shape.item_bytes
    features, per_row = shape.n_features, 2 * q if shape.diagonal else q + q * q
    parts = {
        "latents": 14.0 * n * per_row * size,
        "embedding": 24.0 * n * (q + q * q),
        "features": 100.0 * features**2
        + 8.0 * chunk_shape(n)[1] * features * size
        + 8.0 * CHUNK * (2 * q + 3) * features,
        "pieces": 25.0 * min(n * m, _PIECE_ENTRIES),
        "landmarks": 16.0 * min(n, shape.n_landmarks) * m,
        "programs": _PROGRAMS,
    }
    if kind in ENTRY_BYTES:
        return Memory(parts | {"entries": ENTRY_BYTES[kind] * n * m})
    kept = size if n * shape.n_scores > MOST_DOUBLE_SCORES else 8
    scores = float(n * shape.n_scores * (kept + size))
    return Memory(parts | {"scores": scores, "columns": _of_columns(n, m, shape.n_scores)})


def _of_columns(n_rows: int, n_columns: int, n_scores: int) -> float:
    """What finding the directions takes, by the ways of `compression._leading_directions`."""
    n_tests = nystrom.n_tests(n_scores)
    if min(n_rows, n_columns) > max(LARGEST_EXACT, n_tests):
        return 40.0 * n_columns * n_tests
    return 40.0 * n_columns**2 if n_columns <= n_rows else 40.0 * n_rows**2 + 24.0 * n_columns * n_scores


def refuse_excess(need: Memory, n_sharing: int = 1) -> None:
    """Raise a `MemoryError` where there is not enough for a fit, with so many processes on this machine."""
    room = available()
    if room is not None and n_sharing * need.total > room:
        each = f" in each of {n_sharing} processes here" if n_sharing > 1 else ""
        raise MemoryError(
            f"This fit needs about {need}{each}, but only {in_gb(room)} are free. Give fewer components, "
            "n_frequencies or directions (compression), take dtype='float32', spread the rows over more "
            "machines, or fit in batches (batch_size=1024)."
        )
