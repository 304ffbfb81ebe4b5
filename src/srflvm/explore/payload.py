"""All that a page holds, as plain values and blocks of numbers, within a limit of bytes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np

from srflvm._types import FloatArray
from srflvm._version import __version__
from srflvm.exceptions import DataError
from srflvm.explore import decoder as decoding
from srflvm.explore import rows
from srflvm.explore.packing import block, page_text

# Rows at which ranges and the order of columns are found.
_SAMPLE = 256
_KERNEL_POINTS = 61
_MOST_KERNELS = 8

# Scripts, style and what else is of the same length in every page, with room to spare.
_FIXED_BYTES = 150_000


@dataclass(frozen=True)
class Contents:
    """What the caller of `write_page` gave."""

    data: Any
    labels: Any
    ids: Any
    dims: tuple[int, int] | None
    image_shape: tuple[int, int] | None
    title: str | float | None


@dataclass(frozen=True)
class Summary:
    """Of each column (M,): the mean of what is decoded at some rows, its standard deviation over them, the
    range of most error bars, and by how much the rows differ relative to the predictive variance."""

    average: FloatArray
    spread: FloatArray
    low: FloatArray
    high: FloatArray
    signal: FloatArray


def build(model: Any, contents: Contents, limit: int) -> dict[str, Any]:
    """The payload of a page of at most `limit` bytes; `left_out` says what there was no room for."""
    n_rows, n_latent = model.embedding_.shape
    posterior, n_columns = model._posterior, model.n_features_in_
    ids = rows.row_names(contents.ids, n_rows)
    labels = rows.label_block(contents.labels, n_rows)
    values = rows.training_rows(model, contents.data)
    image_shape = _image_shape(contents.image_shape, n_columns)
    sample = model.embedding_[np.linspace(0, n_rows - 1, min(n_rows, _SAMPLE)).astype(int)]
    summary, found = _summary(model, sample), decoding.covariances(posterior, sample)
    names = _column_names(model)
    text = len(json.dumps([names, ids]))
    room = limit - _FIXED_BYTES - rows.rows_bytes(n_rows, n_latent) - text - 40 * n_columns
    kept = _kept_columns(posterior, found, summary, room, image_shape, limit)
    decoder = decoding.decoder(posterior, found, kept)
    room -= int(kept.sum()) * decoding.channel_bytes(posterior, found)
    order = np.lexsort((-summary.signal, ~kept))
    shipped = rows.data_columns(values, order, room)
    return {
        "version": __version__,
        "title": _title(contents.title) or f"Latent space of {n_rows:,} rows",
        "n_rows": n_rows,
        "n_latent": n_latent,
        "dims": _dims(model, contents.dims),
        "relevance": np.round(model.relevance_, 3).tolist(),
        "likelihoods": sorted({likelihood.name for likelihood in posterior.likelihoods}),
        "image_shape": image_shape,
        "image_range": _image_range(values, summary) if image_shape else None,
        "ids": ids,
        "labels": labels,
        "columns": _columns_block(names, summary, kept),
        "decoder": decoder,
        "data": shipped,
        "kernel": _kernel_curves(model, sample),
        "elbo": _finite(model.elbo_history_ / (n_rows * n_columns)),
        "left_out": _left_out(kept, shipped, n_columns),
        **rows.latents(model),
    }


def _summary(model: Any, sample: FloatArray) -> Summary:
    decoded = model.decode(sample)
    mean, variance = decoded.mean, np.broadcast_to(decoded.variance, decoded.mean.shape)
    bars = np.where(np.isfinite(variance), np.sqrt(variance), 0.0)
    noise = np.mean(np.where(np.isfinite(variance), variance, 0.0), axis=0)
    spread = mean.std(axis=0)
    signal = spread**2 / np.where(noise > 0.0, noise, 1.0)
    low, high = np.quantile(mean - bars, 0.02, axis=0), np.quantile(mean + bars, 0.98, axis=0)
    return Summary(mean.mean(axis=0), spread, low, high, signal)


def _kept_columns(
    posterior: Any,
    found: decoding.Covariances,
    summary: Summary,
    room: int,
    image_shape: list[int] | None,
    limit: int,
) -> np.ndarray:
    """All columns if they fit; else those with the strongest signal, as many as fit, and those that cannot
    be told apart."""
    each = decoding.channel_bytes(posterior, found)
    room -= found.packed[:1].size * (8 if found.shared else 4) * 4 // 3
    alone = decoding.can_be_thinned(posterior)
    n_whole = posterior.layout.n_channels - int(alone.sum())
    n_fitting = room // each - n_whole
    if n_fitting >= alone.sum():
        return np.ones(len(alone), bool)
    needed = (limit - room + each * posterior.layout.n_channels) / 1e6
    if image_shape is not None or n_fitting < 1:
        raise ValueError(
            f"The page would take {needed:.1f} MB, more than max_megabytes={limit / 1e6:g}, and the columns "
            "cannot be thinned out far enough. Give a larger max_megabytes, or fit fewer frequencies or "
            "columns."
        )
    kept = ~alone
    kept[np.flatnonzero(alone)[np.argsort(-summary.signal[alone])[:n_fitting]]] = True
    return kept


def _left_out(kept: np.ndarray, shipped: dict[str, Any] | None, n_columns: int) -> list[str]:
    notes = []
    if not kept.all():
        notes.append(
            f"{int((~kept).sum()):,} of {n_columns:,} columns, those that vary least over the rows, are left "
            "out of the page for its size; raise max_megabytes to keep them."
        )
    if shipped is not None and len(shipped["columns"]) < n_columns:
        notes.append(
            f"The data of {n_columns - len(shipped['columns']):,} of {n_columns:,} columns are left out of "
            "the page for its size: what the model decodes is shown in their place. Raise max_megabytes to "
            "keep them."
        )
    return notes


def _columns_block(names: list[str], summary: Summary, kept: np.ndarray) -> dict[str, Any]:
    parts = ("average", "spread", "low", "high")
    return {
        "names": names,
        "first": int(np.argmax(np.where(kept, summary.signal, -1.0))),
        "kept": np.flatnonzero(kept).tolist() if not kept.all() else None,
        **{part: block(getattr(summary, part), "float32") for part in parts},
    }


def _column_names(model: Any) -> list[str]:
    given = getattr(model, "feature_names_in_", None)
    return (
        [f"column {j}" for j in range(model.n_features_in_)]
        if given is None
        else [page_text(n) for n in given]
    )


def _title(title: Any) -> str:
    return "" if title is None else page_text(title)


def _dims(model: Any, dims: Any) -> list[int | None]:
    """The pair of dimensions first shown; None in place of a second one where there is only one."""
    n_latent = model.embedding_.shape[1]
    if n_latent == 1:
        return [0, None]
    if dims is None:
        return sorted(np.argsort(-model.relevance_, kind="stable")[:2].tolist())
    pair = [int(dim) for dim in dims]
    if len(pair) != 2 or pair[0] == pair[1] or not all(0 <= dim < n_latent for dim in pair):
        raise ValueError(f"dims must be two of the {n_latent} latent dimensions, from 0 on, not {dims}.")
    return list(pair)


def _image_shape(image_shape: Any, n_columns: int) -> list[int] | None:
    if image_shape is None:
        return None
    sides = [int(side) for side in image_shape]
    if len(sides) != 2 or min(sides) < 1 or sides[0] * sides[1] != n_columns:
        raise DataError(f"image_shape {tuple(image_shape)} does not have {n_columns} pixels, as a row has.")
    return sides


def _image_range(values: FloatArray | None, summary: Summary) -> list[float]:
    """From the darkest to the brightest pixel, without a few extreme ones."""
    pixels = np.concatenate([summary.average - summary.spread, summary.average + summary.spread])
    if values is not None:
        pixels = values[np.isfinite(values)]
    low, high = np.quantile(pixels, [0.001, 0.999])
    return [float(low), float(high)]


def _kernel_curves(model: Any, sample: FloatArray) -> dict[str, Any]:
    """The correlation of the function with itself at a distance along each latent dimension."""
    n_latent = sample.shape[1]
    reach = float(np.max(np.ptp(sample, axis=0), initial=0.0)) / 2.0 or 1.0
    distances = np.linspace(0.0, reach, _KERNEL_POINTS)
    chosen = sorted(np.argsort(-model.relevance_, kind="stable")[:_MOST_KERNELS].tolist())
    curves = []
    for dim in chosen:
        points = np.zeros((_KERNEL_POINTS, n_latent))
        points[:, dim] = distances
        curves.append(_finite(model.kernel(np.zeros((1, n_latent)), points)[0] / model.amplitude_))
    return {"distances": _finite(distances), "dims": chosen, "curves": curves}


def _finite(values: FloatArray) -> list[float | None]:
    """Numbers for JSON, which has no NaN."""
    return [float(f"{value:.6g}") if np.isfinite(value) else None for value in values]
