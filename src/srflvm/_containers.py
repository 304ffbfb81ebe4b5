"""Files with checksums: a JSON header and tensors in one safetensors container, written whole or not at all.

The container's metadata hold the header and its SHA-256; the header holds the SHA-256 of the tensors. What a
file says of its tensors can be judged before any of them is read: a short file with holes can tell of
tensors of any length.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from safetensors import safe_open

from srflvm._model_schema import SchemaError, Tensors
from srflvm.whole_files import remove_abandoned, temporary_beside

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


def encode(header: Mapping[str, Any], tensors: Tensors) -> bytes:
    """The content of a file; the checksum of the tensors is added to the header.

    The same header and tensors always give the same bytes, which the writer of safetensors does not promise
    of metadata.
    """
    signed = {**header, "tensors_sha256": tensor_digest(tensors)}
    text = json.dumps(signed, allow_nan=False, sort_keys=True)
    entries: dict[str, Any] = {"__metadata__": {HEADER_KEY: text, HEADER_DIGEST_KEY: text_digest(text)}}
    end, contents = 0, []
    # wide numbers first: all of them lie at multiples of their own width
    for name in sorted(tensors, key=lambda name: (-tensors[name].dtype.itemsize, name)):
        tensor = np.ascontiguousarray(tensors[name])
        contents.append(
            tensor.astype(tensor.dtype.newbyteorder("<"), copy=False).reshape(-1).view(np.uint8).data
        )
        entries[name] = {
            "dtype": _NAMES_OF_TYPES[tensor.dtype.name],
            "shape": tensors[name].shape,
            "data_offsets": [end, end := end + tensor.nbytes],
        }
    start = json.dumps(entries, separators=(",", ":")).encode()
    start += b" " * (-len(start) % 8)
    return b"".join([struct.pack("<Q", len(start)), start, *contents])


def decode_header(metadata: Mapping[str, str], file_format: str) -> dict[str, Any]:
    """The header in a container's metadata, as it was written."""
    text = metadata.get(HEADER_KEY, "")
    if text_digest(text) != metadata.get(HEADER_DIGEST_KEY):
        raise SchemaError("its header does not have the checksum it was written with")
    try:
        header = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SchemaError("its header cannot be read") from error
    if not isinstance(header, dict) or header.get("format") != file_format:
        raise SchemaError(f"its header does not say {file_format!r}")
    return header


def text_digest(text: str) -> str:
    """SHA-256 of a text."""
    return hashlib.sha256(text.encode()).hexdigest()


def tensor_digest(tensors: Tensors) -> str:
    """SHA-256 over names, types, shapes and contents."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        tensor = np.ascontiguousarray(tensors[name])
        digest.update(_description(name, tensors[name]))
        digest.update(tensor.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def _description(name: str, tensor: np.ndarray | Stored) -> bytes:
    return json.dumps([name, tensor.dtype.name, tensor.shape]).encode()


@dataclass(frozen=True)
class Stored:
    """A tensor in a file: its shape, the name of its type there, and where its bytes begin."""

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


@dataclass(frozen=True)
class Container:
    """A file whose tensors are not read yet."""

    path: Path
    metadata: dict[str, str]
    tensors: dict[str, Stored]

    def read(self, header: Mapping[str, Any]) -> Tensors:
        """Read the tensors, after they were found to be those that the header was written with."""
        with self.path.open("rb") as file:
            if self._digest(file) != header.get("tensors_sha256"):
                raise SchemaError("its numbers do not have the checksum they were written with")
            return {name: _read_tensor(file, stored) for name, stored in self.tensors.items()}

    def _digest(self, file: IO[bytes]) -> str:
        """Compute `tensor_digest` a block at a time, so that nothing is held of tensors that are refused."""
        digest = hashlib.sha256()
        for name in sorted(self.tensors):
            stored = self.tensors[name]
            digest.update(_description(name, stored))
            file.seek(stored.begin)
            for done in range(0, stored.n_bytes, _BLOCK_BYTES):
                digest.update(file.read(min(_BLOCK_BYTES, stored.n_bytes - done)))
        return digest.hexdigest()


def open_container(path: Path) -> Container:
    """Find out what a file says of itself. A `SafetensorError` says that it is no container, or that its
    tensors are longer or shorter than it is."""
    with safe_open(path, framework="numpy") as container:
        metadata = container.metadata() or {}
    with path.open("rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        entries = json.loads(file.read(length))
    entries.pop("__metadata__", None)
    tensors = {
        name: Stored(tuple(entry["shape"]), entry["dtype"], 8 + length + entry["data_offsets"][0])
        for name, entry in entries.items()
    }
    return Container(path, metadata, tensors)


def _read_tensor(file: IO[bytes], stored: Stored) -> np.ndarray:
    file.seek(stored.begin)
    values = np.fromfile(file, stored.dtype.newbyteorder("<"), stored.size)
    return values.astype(stored.dtype, copy=False).reshape(stored.shape)


def write_whole(target: Path, content: bytes) -> None:
    """Write all of the file or nothing: under another name in the same folder, then renamed."""
    if target.is_dir():
        raise IsADirectoryError(f"{target} is a directory. Give the name of a file in it.")
    if not target.parent.is_dir():
        raise FileNotFoundError(f"There is no directory {target.parent}. Create it first.")
    remove_abandoned(target.parent)
    temporary = temporary_beside(target, ".tmp")
    try:
        with temporary.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)
    _make_renaming_last(target.parent)


def _make_renaming_last(folder: Path) -> None:
    """Write the folder's new list of names to the disk where the system can; the file is whole anyway."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
