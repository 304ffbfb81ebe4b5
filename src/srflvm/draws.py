"""Draws from the posterior of given rows, also as an xarray data set."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from srflvm._types import FloatArray
from srflvm.posterior import Posterior


def draw_rows(
    posterior: Posterior,
    Y: FloatArray,
    log_sizes: FloatArray | None,
    n_draws: int,
    rng: np.random.RandomState,
) -> tuple[FloatArray, FloatArray]:
    """Latents (n_draws, n, Q) of rows, and rows that might have been in their place (n_draws, n, M).

    Each draw is one of the latents, of the function and of the entries.
    """
    placed = posterior.place(Y, log_sizes)
    latents = np.empty((n_draws, *placed.mean.shape))
    rows = np.empty((n_draws, *Y.shape))
    for draw in range(n_draws):
        noise = rng.standard_normal(placed.mean.shape)
        latents[draw] = placed.mean + np.einsum("nqr,nr->nq", placed.cholesky, noise)
        rows[draw] = posterior.draw_data(latents[draw], rng, Y, log_sizes)
    return latents, rows


def as_dataset(
    latents: FloatArray, rows: FloatArray, components: Sequence[str], columns: Sequence[str] | None
) -> Any:
    """The draws with names for their dimensions, the first two being those that ArviZ expects."""
    try:
        import xarray
    except ImportError as error:
        raise ImportError(
            "Draws as a data set need the package xarray: pip install 'srflvm[xarray]'."
        ) from error
    names = np.arange(rows.shape[2]) if columns is None else np.array([str(name) for name in columns])
    return xarray.Dataset(
        {
            "latent": (("chain", "draw", "row", "component"), latents[None]),
            "observation": (("chain", "draw", "row", "column"), rows[None]),
        },
        coords={"component": np.array([str(name) for name in components]), "column": names},
    )
