"""Readers of the files that publishers distribute: IDX, CIFAR batches, MAT, CSV."""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import pickle
import struct
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from srflvm.exceptions import DataError
from srflvm_bench.datasets.folder import check_sum

Pixels = npt.NDArray[np.uint8]

_IDX_BYTES = 0x08

# MD5 of what the files of MNIST and the Python batches of CIFAR-10 hold, unzipped.
PUBLISHED_SUMS = {
    "train-images-idx3-ubyte": "6bbc9ace898e44ae57da46a324031adb",
    "train-labels-idx1-ubyte": "a25bea736e30d166cdddb491f175f624",
    "t10k-images-idx3-ubyte": "2646ac647ad5339dbf082846283269ea",
    "t10k-labels-idx1-ubyte": "27ae3e4e09519cfbb04c329615203637",
    "data_batch_1": "c99cafc152244af753f735de768cd75f",
    "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
    "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
    "data_batch_4": "634d18415352ddfa80567beed471001a",
    "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
    "test_batch": "40351d587109b95175f43aff81a1287e",
}


def read_bytes(path: Path, *, verify: bool = False) -> bytes:
    """Read a plain or gzipped file, and compare it with its known checksum if `verify`."""
    content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    known = PUBLISHED_SUMS.get(path.name.removesuffix(".gz").replace(".idx", "-idx"))
    if verify and known:
        check_sum(path, "MD5", hashlib.md5(content, usedforsecurity=False).hexdigest(), known)
    return content


def read_idx(path: Path, *, verify: bool = False) -> Pixels:
    """Read an array of bytes in IDX.

    The header is two zero bytes, the type, the number of dimensions, and the sizes, big-endian.
    """
    content = read_bytes(path, verify=verify)
    if len(content) < 4 or content[:2] != b"\0\0" or content[2] != _IDX_BYTES:
        raise DataError(f"{path} is not an IDX file of bytes.")
    n_dimensions = content[3]
    start = 4 + 4 * n_dimensions
    shape = struct.unpack(f">{n_dimensions}I", content[4:start]) if len(content) >= start else ()
    if len(content) - start != int(np.prod(shape)) or not shape:
        raise DataError(f"{path} is cut short or too long for the shape {shape} that it declares.")
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)


def read_cifar_batch(path: Path, *, verify: bool = False) -> tuple[Pixels, Pixels]:
    """Read images (n, 3, 32, 32) and labels (n,) of one batch, binary (.bin) or for Python."""
    content = read_bytes(path, verify=verify)
    if path.name.endswith((".bin", ".bin.gz")):
        if len(content) % 3073:
            raise DataError(f"{path} is not a whole number of CIFAR-10 records of 3073 bytes.")
        records = np.frombuffer(content, np.uint8).reshape(-1, 3073)
        return records[:, 1:].reshape(-1, 3, 32, 32), records[:, 0]
    batch = _unpickle_arrays(content, path)
    try:
        return batch[b"data"].reshape(-1, 3, 32, 32), np.asarray(batch[b"labels"], np.uint8)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise DataError(f"{path} is not a batch of CIFAR-10: it has no data and labels.") from error


class _ArraysOnly(pickle.Unpickler):
    """Unpickler of plain containers and NumPy arrays, which refuses every other class or function."""

    def find_class(self, module: str, name: str) -> Any:
        module = module.replace("numpy.core", "numpy._core")
        if (module, name) == ("numpy._core.multiarray", "_reconstruct"):
            return np.empty(0).__reduce__()[0]
        if (module, name) in (("numpy", "ndarray"), ("numpy", "dtype")):
            return getattr(np, name)
        if (module, name) == ("_codecs", "encode"):  # how Python 3 writes bytes in old protocols
            return _encode_latin
        raise pickle.UnpicklingError(f"{module}.{name} is not allowed")


def _encode_latin(text: str, encoding: str) -> bytes:
    """Return the bytes of a string; this is what pickles of Python 3 call for bytes."""
    if encoding not in ("latin1", "latin-1"):
        raise pickle.UnpicklingError(f"the encoding {encoding} is not allowed")
    return text.encode("latin-1")


def _unpickle_arrays(content: bytes, path: Path) -> Any:
    """Unpickle plain containers and NumPy arrays, strings of Python 2 as bytes, and run no code."""
    try:
        return _ArraysOnly(io.BytesIO(content), encoding="bytes").load()
    except Exception as error:
        raise DataError(f"{path} is not a pickle of plain arrays: {error}.") from error


def to_grey(images: Pixels) -> Pixels:
    """Convert images (n, 3, h, w) to grey (n, h, w): 0.299 R + 0.587 G + 0.114 B (ITU-R 601), rounded."""
    result = np.empty((len(images), *images.shape[2:]), np.uint8)
    weights = np.array([19595, 38470, 7471], np.uint32)  # of 2^16
    for start in range(0, len(images), 5000):
        rows = slice(start, start + 5000)
        luma = np.einsum("c,nchw->nhw", weights, images[rows].astype(np.uint32))
        result[rows] = (luma + 2**15) >> 16
    return result


def shrink(images: Pixels, size: int) -> Pixels:
    """Shrink square images (n, h, h) to size x size by triangles as wide as a pixel of the result.

    All numbers are whole, as in imaging software: weights are in units of 2^-22, and grey values are rounded
    after the first of the two passes and after the second. All are below 2^53, so float64 is exact.
    """
    unit = 2.0**22
    weights = np.floor(unit * _triangles(images.shape[1], size) + 0.5)
    across = np.floor(images.astype(np.float64) @ weights.T / unit + 0.5)
    return np.floor(weights @ across / unit + 0.5).astype(np.uint8)


def _triangles(old: int, new: int) -> npt.NDArray[np.float64]:
    """Compute the weights (new, old) of pixels.

    Pixel i of the result lies at (i + ½) old / new, and its triangle has the half-width old / new.
    """
    step = old / new
    centres = (np.arange(new) + 0.5) * step
    distances = np.abs(np.arange(old) + 0.5 - centres[:, None]) / step
    weights = np.maximum(1.0 - distances, 0.0)
    return weights / weights.sum(axis=1, keepdims=True)


def read_mat(path: Path, *names: str) -> list[Any]:
    """Read variables of a MATLAB file."""
    from scipy.io import loadmat

    content = loadmat(io.BytesIO(read_bytes(path)))
    absent = [name for name in names if name not in content]
    if absent:
        raise DataError(f"{path} has no variable {absent[0]!r}.")
    return [content[name] for name in names]


def read_columns(path: Path, *wanted: str) -> list[list[str]]:
    """Read columns of a CSV file, each the first whose heading contains the wanted text.

    Headings are compared by their ASCII letters and digits alone: accents come in several encodings.
    """
    reader = csv.reader(io.StringIO(read_bytes(path).decode("latin-1")))
    rows = [(reader.line_num, row) for row in reader if any(row)]
    if not rows:
        raise DataError(f"{path} is empty: download it again.")
    (_, headings), *rows = rows
    columns = []
    for name in wanted:
        found = [index for index, heading in enumerate(headings) if _plain(name) in _plain(heading)]
        if not found:
            raise DataError(f"{path} has no column {name!r}; its columns are {', '.join(headings)}.")
        short = [line for line, row in rows if len(row) <= found[0]]
        if short:
            raise DataError(
                f"{path}, line {short[0]} has no entry in column {name!r}: remove or complete it."
            )
        columns.append([row[found[0]].strip() for _, row in rows])
    return columns


def parse_numbers(path: Path, columns: list[list[str]]) -> npt.NDArray[np.float64]:
    """Convert columns of text such as 1,704 to an array (N, M)."""
    try:
        return np.array([[float(text.replace(",", "")) for text in column] for column in columns]).T
    except ValueError as error:
        raise DataError(f"{path} has an entry that is not a number: {error}.") from error


def _plain(text: str) -> str:
    """Reduce a heading to its ASCII letters and digits."""
    return "".join(character for character in text.lower() if character.isascii() and character.isalnum())
