"""Container of a JSON header and tensors in one safetensors file, with checksums.

The metadata of the file hold the header and its SHA-256; the header holds the SHA-256 of the tensors. Names,
shapes and types of the tensors can be checked before any number is read: a short sparse file can announce
tensors of any length.
"""

from __future__ import annotations

import hashlib
import json
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Protocol

import numpy as np
from safetensors import safe_open

Tensors = dict[str, np.ndarray]

HEADER_KEY = "srflvm"
HEADER_DIGEST_KEY = "srflvm_sha256"

# Types of tensors, by their names in files.
_TYPES = {
    "BOOL": "bool",
    "U8": "uint8",
    "U16": "uint16",
    "U32": "uint32",
    "U64": "uint64",
    "I8": "int8",
    "I16": "int16",
    "I32": "int32",
    "I64": "int64",
    "F32": "float32",
    "F64": "float64",
}

_NAMES_OF_TYPES = {kind: name for name, kind in _TYPES.items()}

# Bytes that are read at a time to compute a checksum.
_BLOCK_BYTES = 1 << 24


class SchemaError(ValueError):
    """Error of a file whose content contradicts its format; the message names the place."""


def require(condition: Any, otherwise: str) -> None:
    """Raise a SchemaError with the message `otherwise` unless the condition holds."""
    if not condition:
        raise SchemaError(otherwise)


def plain_value(value: Any) -> Any:
    """Convert a value to what JSON can hold: scalars of NumPy to those of Python, tuples to lists."""
    if isinstance(value, tuple):
        return [plain_value(part) for part in value]
    return value.item() if isinstance(value, np.generic) else value


def text_digest(text: str) -> str:
    """Compute the SHA-256 of a text."""
    return hashlib.sha256(text.encode()).hexdigest()


def tensor_digest(tensors: Tensors) -> str:
    """Compute the SHA-256 over the names, types, shapes and contents of tensors."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        digest.update(_description(name, tensors[name]))
        digest.update(_content(tensors[name]))
    return digest.hexdigest()


def encode(header: Mapping[str, Any], tensors: Tensors) -> bytes:
    """Return the content of a file; the checksum of the tensors is added to the header.

    The same header and tensors always give the same bytes, which the writer of safetensors does not promise
    of metadata.
    """
    signed = {**header, "tensors_sha256": tensor_digest(tensors)}
    text = json.dumps(signed, allow_nan=False, sort_keys=True)
    entries: dict[str, Any] = {"__metadata__": {HEADER_KEY: text, HEADER_DIGEST_KEY: text_digest(text)}}
    end, contents = 0, []
    # wide numbers first: all of them lie at multiples of their own width
    for name in sorted(tensors, key=lambda name: (-tensors[name].dtype.itemsize, name)):
        tensor = tensors[name]
        contents.append(_content(tensor))
        entries[name] = {
            "dtype": _NAMES_OF_TYPES[tensor.dtype.name],
            "shape": tensor.shape,
            "data_offsets": [end, end := end + tensor.nbytes],
        }
    start = json.dumps(entries, separators=(",", ":")).encode()
    start += b" " * (-len(start) % 8)
    return b"".join([struct.pack("<Q", len(start)), start, *contents])


class _TensorForm(Protocol):
    """Shape and type of a tensor, without its numbers."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> np.dtype: ...

    @property
    def size(self) -> int: ...


# Forms of tensors in memory, or of those of a file that are not read yet.
TensorForms = Mapping[str, _TensorForm]


@dataclass(frozen=True)
class _StoredTensor:
    """Tensor in a file: its shape, the name of its type there, and the place of its first byte."""

    shape: tuple[int, ...]
    kind: str
    begin: int

    @property
    def dtype(self) -> np.dtype:
        if self.kind not in _TYPES:
            raise SchemaError(f"it has a tensor of type {self.kind}")
        return np.dtype(_TYPES[self.kind])

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def n_bytes(self) -> int:
        return self.size * self.dtype.itemsize

    def read(self, file: IO[bytes]) -> np.ndarray:
        file.seek(self.begin)
        values = np.fromfile(file, self.dtype.newbyteorder("<"), self.size)
        return values.astype(self.dtype, copy=False).reshape(self.shape)


@dataclass(frozen=True)
class Container:
    """File whose tensors are not read yet."""

    path: Path
    metadata: dict[str, str]
    tensors: dict[str, _StoredTensor]

    @classmethod
    def open(cls, path: Path) -> Container:
        """Read the metadata of a file, and the names, shapes and types of its tensors.

        Raises
        ------
        SafetensorError
            The file is no container, or its tensors are longer or shorter than it is.
        """
        with safe_open(path, framework="numpy") as container:
            metadata = container.metadata() or {}
        with path.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            entries = json.loads(file.read(length))
        entries.pop("__metadata__", None)
        tensors = {
            name: _StoredTensor(tuple(entry["shape"]), entry["dtype"], 8 + length + entry["data_offsets"][0])
            for name, entry in entries.items()
        }
        return cls(path, metadata, tensors)

    def header(self, file_format: str) -> dict[str, Any]:
        """Return the header as it was written, after checking its checksum and its format."""
        text = self.metadata.get(HEADER_KEY, "")
        if text_digest(text) != self.metadata.get(HEADER_DIGEST_KEY):
            raise SchemaError("its header does not have the checksum it was written with")
        try:
            header = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise SchemaError("its header cannot be read") from error
        if not isinstance(header, dict) or header.get("format") != file_format:
            raise SchemaError(f"its header does not say {file_format!r}")
        return header

    def read(self, header: Mapping[str, Any]) -> Tensors:
        """Read the tensors, after checking that they have the checksum in the header."""
        with self.path.open("rb") as file:
            if self._digest(file) != header.get("tensors_sha256"):
                raise SchemaError("its numbers do not have the checksum they were written with")
            return {name: stored.read(file) for name, stored in self.tensors.items()}

    def _digest(self, file: IO[bytes]) -> str:
        """Compute `tensor_digest` a block at a time, so that no tensor is held before it is accepted."""
        digest = hashlib.sha256()
        for name in sorted(self.tensors):
            stored = self.tensors[name]
            digest.update(_description(name, stored))
            file.seek(stored.begin)
            for done in range(0, stored.n_bytes, _BLOCK_BYTES):
                digest.update(file.read(min(_BLOCK_BYTES, stored.n_bytes - done)))
        return digest.hexdigest()


def _description(name: str, tensor: _TensorForm) -> bytes:
    return json.dumps([name, tensor.dtype.name, tensor.shape]).encode()


def _content(tensor: np.ndarray) -> memoryview:
    """Return the numbers of a tensor as bytes, row by row and little-endian."""
    little = np.ascontiguousarray(tensor, dtype=tensor.dtype.newbyteorder("<"))
    return little.reshape(-1).view(np.uint8).data
