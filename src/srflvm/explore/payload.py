"""Payload of a page: everything it holds of the model and of the rows, within a limit of bytes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from srflvm._typing import FloatArray
from srflvm._version import __version__
from srflvm.data.reading import read_data, read_source, with_names_of
from srflvm.data.sources import SparseSource, is_frame
from srflvm.exceptions import DataError
from srflvm.explore.decoder import Decoder
from srflvm.explore.packing import LARGEST_SINGLE, base64_length, pack_array, pack_codes, sound_text

# Rows at which ranges and the order of columns are found.
_SAMPLE = 256
_KERNEL_POINTS = 61
_MOST_KERNELS = 8

# Scripts, style and what else is of the same length in every page, with some to spare.
_FIXED_BYTES = 150_000

# Up to so many different whole numbers are classes, as in the pictures of `srflvm.plot`.
_MOST_NUMBERED_CLASSES = 20
_MISSING_CODE = 65535

# Larger numbers are named by their power of ten.
_WHOLE_NUMBERS_BELOW = 1e15


def build_payload(
    model: Any,
    limit: int,
    *,
    data: Any,
    labels: Any,
    ids: Any,
    dims: tuple[int, int] | None,
    image_shape: tuple[int, int] | None,
    title: str | float | None,
) -> dict[str, Any]:
    """Return the payload of a page of at most `limit` bytes; `left_out` names what did not fit."""
    n_rows, n_latent = model.embedding_.shape
    posterior, n_columns = model._posterior, model.n_features_in_
    names_of_rows, label_block = _row_names(ids, n_rows), _label_block(labels, n_rows)
    values = _training_rows(model, data)
    sides = _image_sides(image_shape, n_columns)
    sample = model.embedding_[np.linspace(0, n_rows - 1, min(n_rows, _SAMPLE)).astype(int)]
    summary, decoder = _summary(model, sample), Decoder.of(posterior, sample)
    names = _column_names(model)
    text = len(json.dumps([names, names_of_rows]))
    n_free = limit - _FIXED_BYTES - _bytes_of_rows(n_rows, n_latent) - text - 40 * n_columns
    kept = _kept_columns(decoder, summary, n_free, sides, limit)
    decoder_block = decoder.payload(kept)
    n_free -= int(kept.sum()) * decoder.channel_bytes
    order = np.lexsort((-summary.signal, ~kept))
    shipped = _data_columns(values, order, n_free)
    return {
        "version": __version__,
        "title": _heading(title) or f"Latent space of {n_rows:,} rows",
        "n_rows": n_rows,
        "n_latent": n_latent,
        "dims": _shown_dims(model, dims),
        "relevance": np.round(model.relevance_, 3).tolist(),
        "likelihoods": sorted({group.likelihood.name for group in posterior.layout.groups}),
        "image_shape": sides,
        "image_range": _image_range(values, summary) if sides else None,
        "ids": names_of_rows,
        "labels": label_block,
        "columns": _columns_block(names, summary, kept),
        "decoder": decoder_block,
        "data": shipped,
        "kernel": _kernel_curves(model, sample),
        "elbo": _finite(model.elbo_history_ / (n_rows * n_columns)),
        "left_out": _left_out(kept, shipped, n_columns),
        "latents": pack_array(model.embedding_, "float32"),
        "latent_std": pack_codes(model.embedding_std_),
    }


# ---- the model and its columns ---------------------------------------------------------------------------


@dataclass(frozen=True)
class _Summary:
    """Decoded values of each column (M,) at some rows.

    These are their mean, their standard deviation over the rows, the range of most error bars, and `signal`,
    the variance over the rows relative to the predictive variance.
    """

    average: FloatArray
    spread: FloatArray
    low: FloatArray
    high: FloatArray
    signal: FloatArray


def _summary(model: Any, sample: FloatArray) -> _Summary:
    decoded = model.decode(sample)
    mean, variance = decoded.mean, np.broadcast_to(decoded.variance, decoded.mean.shape)
    bars = np.where(np.isfinite(variance), np.sqrt(variance), 0.0)
    noise = np.mean(np.where(np.isfinite(variance), variance, 0.0), axis=0)
    spread = mean.std(axis=0)
    signal = spread**2 / np.where(noise > 0.0, noise, 1.0)
    low, high = np.quantile(mean - bars, 0.02, axis=0), np.quantile(mean + bars, 0.98, axis=0)
    return _Summary(mean.mean(axis=0), spread, low, high, signal)


def _kept_columns(
    decoder: Decoder, summary: _Summary, n_free: int, image_sides: list[int] | None, limit: int
) -> np.ndarray:
    """Choose all columns if they fit into the free bytes, else as many as fit.

    Those with the strongest signal come first. Columns that share channels cannot be left out.
    """
    each, n_channels = decoder.channel_bytes, decoder.posterior.layout.n_channels
    n_free -= decoder.common_bytes
    alone = decoder.separable
    n_whole = n_channels - int(alone.sum())
    n_fitting = n_free // each - n_whole
    if n_fitting >= alone.sum():
        return np.ones(len(alone), bool)
    needed = (limit - n_free + each * n_channels) / 1e6
    if image_sides is not None or n_fitting < 1:
        raise ValueError(
            f"The page would take {needed:.1f} MB, more than max_megabytes={limit / 1e6:g}, and not enough "
            "columns can be left out. Give a larger max_megabytes, or fit fewer frequencies or columns."
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
            "the page for its size; it shows decoded values in their place. Raise max_megabytes to keep them."
        )
    return notes


def _columns_block(names: list[str], summary: _Summary, kept: np.ndarray) -> dict[str, Any]:
    parts = ("average", "spread", "low", "high")
    return {
        "names": names,
        "first": int(np.argmax(np.where(kept, summary.signal, -1.0))),
        "kept": np.flatnonzero(kept).tolist() if not kept.all() else None,
        **{part: pack_array(getattr(summary, part), "float32") for part in parts},
    }


def _column_names(model: Any) -> list[str]:
    given = getattr(model, "feature_names_in_", None)
    if given is None:
        return [f"column {j}" for j in range(model.n_features_in_)]
    return [sound_text(name) for name in given]


def _heading(title: Any) -> str:
    return "" if title is None else sound_text(title)


def _shown_dims(model: Any, dims: Any) -> list[int | None]:
    """Return the pair of dimensions first shown, with None for the second where there is only one."""
    n_latent = model.embedding_.shape[1]
    if n_latent == 1:
        return [0, None]
    if dims is None:
        return sorted(np.argsort(-model.relevance_, kind="stable")[:2].tolist())
    pair = [int(dim) for dim in dims]
    if len(pair) != 2 or pair[0] == pair[1] or not all(0 <= dim < n_latent for dim in pair):
        raise ValueError(f"dims must be two of the {n_latent} latent dimensions, from 0 on, not {dims}.")
    return list(pair)


def _image_sides(image_shape: Any, n_columns: int) -> list[int] | None:
    if image_shape is None:
        return None
    sides = [int(side) for side in image_shape]
    if len(sides) != 2 or min(sides) < 1 or sides[0] * sides[1] != n_columns:
        raise DataError(f"image_shape {tuple(image_shape)} does not have {n_columns} pixels, as a row has.")
    return sides


def _image_range(values: FloatArray | None, summary: _Summary) -> list[float]:
    """Return the values of the darkest and the brightest pixel, without a few extreme ones."""
    pixels = np.concatenate([summary.average - summary.spread, summary.average + summary.spread])
    if values is not None:
        pixels = values[np.isfinite(values)]
    low, high = np.quantile(pixels, [0.001, 0.999])
    return [float(low), float(high)]


def _kernel_curves(model: Any, sample: FloatArray) -> dict[str, Any]:
    """Compute the correlation of the function with itself at distances along each latent dimension."""
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
    """Return numbers for JSON, which has no NaN."""
    return [float(f"{value:.6g}") if np.isfinite(value) else None for value in values]


# ---- the rows --------------------------------------------------------------------------------------------


def _row_names(ids: Any, n_rows: int) -> list[str] | None:
    if ids is None:
        return None
    return [sound_text(name) for name in _column_of(ids, n_rows, "ids")]


def _label_block(labels: Any, n_rows: int) -> dict[str, Any] | None:
    """Return classes as their names in order and a code for each row, or numbers as they are."""
    if labels is None:
        return None
    values = _column_of(labels, n_rows, "labels")
    missing = np.array([_is_missing(value) for value in values])
    seen = values[~missing]
    numbers = _as_numbers(seen)
    if numbers is not None and not _are_classes(numbers):
        whole = np.full(n_rows, np.nan)
        whole[~missing] = numbers
        return {"kind": "numbers", "values": pack_array(whole, _precision(numbers))}
    texts = np.array([sound_text(value) for value in seen]) if numbers is None else numbers
    names, found = np.unique(texts, return_inverse=True)
    if len(names) >= _MISSING_CODE:
        raise DataError(f"labels have {len(names)} different values. Give classes, or numbers to colour by.")
    coded = np.full(n_rows, _MISSING_CODE)
    coded[~missing] = found
    return {
        "kind": "classes",
        "names": [_class_name(name) for name in names],
        "codes": pack_array(coded, "uint16"),
    }


def _training_rows(model: Any, data: Any) -> FloatArray | None:
    """Return the data as floats with NaN for missing entries."""
    if data is None:
        return None
    values = _read_rows(model, data)
    n_rows = len(model.embedding_)
    if len(values) != n_rows:
        raise DataError(
            f"data has {len(values)} rows but the model has latents of {n_rows}. Give the rows it was fitted "
            "to, in their order."
        )
    _refuse_large_entries(values)
    return values


def _read_rows(model: Any, data: Any) -> FloatArray:
    """Read rows for a fitted model; levels of a frame's columns are read as their codes."""
    if is_frame(data) and hasattr(model, "columns_"):
        frame = read_source(model, data, reset=False)
        return frame.read(0, frame.n_rows)
    if sparse.issparse(data):
        source = SparseSource(data, what="data")
        data = source.read(0, source.n_rows)
    return read_data(model, with_names_of(model, data), reset=False)


def _refuse_large_entries(values: FloatArray) -> None:
    places = np.argwhere(np.abs(values) > LARGEST_SINGLE)
    if len(places):
        row, column = places[0].tolist()
        raise DataError(
            f"data has {values[row, column]:g} at row {row}, column {column}, and a page holds numbers up to "
            f"{LARGEST_SINGLE:.1e}. Give data in larger units, or no data."
        )


def _data_columns(values: FloatArray | None, order: np.ndarray, n_free: int) -> dict[str, Any] | None:
    """Return the first columns in an order that fit into the free bytes."""
    if values is None:
        return None
    kept, blocks = [], []
    for column in order:
        coded = pack_codes(values[:, column])
        n_free -= len(coded["codes"]["data"]) + 100
        if n_free < 0:
            break
        kept.append(int(column))
        blocks.append(coded)
    return {"columns": kept, "values": blocks}


def _bytes_of_rows(n_rows: int, n_latent: int) -> int:
    """Estimate the length of the latents, the labels and the numbers of rows in a page."""
    return base64_length(n_rows * n_latent * 6) + base64_length(n_rows * 8)


def _column_of(values: Any, n_rows: int, what: str) -> np.ndarray:
    array = np.asarray(values)
    if array.shape != (n_rows,):
        raise DataError(
            f"{what} must have one value for each of the {n_rows} rows of the model; the shape is "
            f"{array.shape}."
        )
    return array.astype(object)


def _is_missing(value: Any) -> bool:
    """Return whether a label is None, NaN, NaT or pandas' NA, which is not equal to anything."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(value, float | np.floating) and bool(np.isnan(value))


def _as_numbers(values: np.ndarray) -> FloatArray | None:
    if any(isinstance(value, str | bool | np.bool_) for value in values):
        return None
    try:
        return values.astype(np.float64)
    except (OverflowError, TypeError, ValueError):
        return None


def _precision(numbers: FloatArray) -> str:
    """Return the type of numbers that holds the largest of these neither as infinity nor as zero."""
    largest = np.max(np.abs(numbers), where=np.isfinite(numbers), initial=0.0)
    return "float32" if largest == 0.0 or 1e-30 < largest < 1e38 else "float64"


def _are_classes(numbers: FloatArray) -> bool:
    return bool(np.all(numbers == np.round(numbers))) and len(np.unique(numbers)) <= _MOST_NUMBERED_CLASSES


def _class_name(name: Any) -> str:
    whole = isinstance(name, float) and abs(name) < _WHOLE_NUMBERS_BELOW
    return str(int(name)) if whole else str(name)
