"""Numbers and texts as a page holds them: base64 of little-endian arrays, small integers, sound UTF-8."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np

from srflvm._typing import FloatArray
from srflvm.exceptions import DataError

Block = dict[str, Any]

LARGEST_SINGLE = float(np.finfo(np.float32).max)

_LARGEST_CODE = {"uint8": 254, "uint16": 65534}


def pack_array(values: Any, kind: str) -> Block:
    """Return an array in the given type of number as a block for `readBlock` of the page."""
    try:
        with np.errstate(over="raise"):
            array = np.ascontiguousarray(values, dtype=np.dtype(kind).newbyteorder("<"))
    except FloatingPointError as error:
        raise DataError(
            f"The model holds numbers beyond {LARGEST_SINGLE:.1e}, which a page, in single precision, cannot "
            "hold. Fit it to data in larger units."
        ) from error
    return {"type": kind, "data": base64.b64encode(array.tobytes()).decode("ascii")}


def pack_codes(values: FloatArray) -> Block:
    """Round numbers to `low + step * code`, with the largest code for NaN.

    This is exact for up to 255 neighbouring whole numbers, else to half of a 65 534th of their range.
    """
    values = np.asarray(values, np.float64)
    seen = values[np.isfinite(values)]
    low, high = (float(seen.min()), float(seen.max())) if seen.size else (0.0, 0.0)
    whole = high - low <= _LARGEST_CODE["uint8"] and bool(np.all(seen == np.round(seen)))
    kind = "uint8" if whole else "uint16"
    step = 1.0 if whole or high == low else (high - low) / _LARGEST_CODE[kind]
    filled = np.where(np.isfinite(values), values, low)
    rounded = np.where(np.isfinite(values), np.round((filled - low) / step), _LARGEST_CODE[kind] + 1)
    return {"low": low, "step": step, "codes": pack_array(rounded, kind)}


def base64_length(n_bytes: float) -> int:
    """Return the length in base64 of so many bytes."""
    return 4 * -(-int(n_bytes) // 3)


def sound_text(value: Any) -> str:
    """Return a text that UTF-8 can hold: halves of a character, which Python allows, become U+FFFD."""
    return str(value).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
