"""Files with checksums: a JSON header and tensors in one safetensors container, written whole or not at all.

The container's metadata hold the header and its SHA-256; the header holds the SHA-256 of the tensors.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save as to_bytes

from srflvm._model_schema import SchemaError, Tensors

HEADER_KEY = "srflvm"
HEADER_DIGEST_KEY = "srflvm_sha256"

# What is left in a folder if the process is killed while it writes; never the name of a whole file.
UNFINISHED_FILES = ".srflvm-*.tmp"


def encode(header: Mapping[str, Any], tensors: Tensors) -> bytes:
    """The content of a file; the checksum of the tensors is added to the header."""
    text = json.dumps({**header, "tensors_sha256": tensor_digest(tensors)}, allow_nan=False)
    metadata = {HEADER_KEY: text, HEADER_DIGEST_KEY: text_digest(text)}
    return to_bytes({name: np.asarray(tensor, order="C") for name, tensor in tensors.items()}, metadata)


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


def check_tensors(header: Mapping[str, Any], tensors: Tensors) -> None:
    """Refuse tensors that are not those the header was written with."""
    if tensor_digest(tensors) != header.get("tensors_sha256"):
        raise SchemaError("its numbers do not have the checksum they were written with")


def text_digest(text: str) -> str:
    """SHA-256 of a text."""
    return hashlib.sha256(text.encode()).hexdigest()


def tensor_digest(tensors: Tensors) -> str:
    """SHA-256 over names, types, shapes and contents."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(json.dumps([name, tensor.dtype.name, tensor.shape]).encode())
        digest.update(tensor.tobytes(order="C"))
    return digest.hexdigest()


def write_whole(target: Path, content: bytes) -> None:
    """Write all of the file or nothing: under another name in the same folder, then renamed."""
    if target.is_dir():
        raise IsADirectoryError(f"{target} is a directory. Give the name of a file in it.")
    if not target.parent.is_dir():
        raise FileNotFoundError(f"There is no directory {target.parent}. Create it first.")
    temporary = target.with_name(UNFINISHED_FILES.replace("*", uuid.uuid4().hex))
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
