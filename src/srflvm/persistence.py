"""A fitted model to and from one file.

The file is a safetensors container. Its metadata hold a JSON header and the header's SHA-256; the header
holds the format, its version, the plain values of `_model_schema` and the SHA-256 of the tensors. These
two keys and the header's format and versions keep their meaning in all versions of the format.
Nothing is pickled: loading a file runs no code from it.
"""

from __future__ import annotations

import hashlib
import json
import os
import uuid
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save as to_bytes
from sklearn.utils.validation import check_is_fitted

from srflvm._model_checks import check_model, check_plain
from srflvm._model_parts import completed, default_parameters, put_together, take_apart, unfitted
from srflvm._model_schema import SCHEMA_VERSION, Plain, SchemaError, Tensors
from srflvm._validation import check_parameters
from srflvm._version import __version__
from srflvm.estimator import SRFLVM
from srflvm.exceptions import ModelFileError

FORMAT = "srflvm-model"

HEADER_KEY = "srflvm"
HEADER_DIGEST_KEY = "srflvm_sha256"

_NUMBER_TYPES = ("F64", "F32")


def save(estimator: SRFLVM, path: str | os.PathLike[str]) -> None:
    """Write a fitted estimator to one file.

    The file appears whole or not at all: it is written under another name in the same directory and
    then renamed, so a failure leaves an older file at `path` as it was. Everything is stored except
    `callbacks` and a `random_state` that is not an integer; these are None after loading.

    Parameters
    ----------
    estimator : SRFLVM
        A fitted one.
    path : str or path
        Where to write; an existing file is replaced.

    Raises
    ------
    ModelFileError
        The model cannot be saved: a likelihood is code of your own, or a parameter has a value that no
        model can be fitted with.
    """
    check_is_fitted(estimator)
    check_parameters(estimator)
    try:
        plain, tensors = take_apart(estimator)
        check_plain(plain, default_parameters())
        check_model(unfitted(plain, tensors), plain, tensors)
    except SchemaError as error:
        raise ModelFileError(f"The model cannot be saved: {error}.") from error
    _write_whole(Path(os.path.realpath(path)), _encode(plain, tensors))


def load(path: str | os.PathLike[str]) -> SRFLVM:
    """Read an estimator from a file that `SRFLVM.save` wrote.

    The loaded estimator computes exactly what the saved one did. The file is checked throughout before
    the estimator is built, and no code from it is run.

    Parameters
    ----------
    path : str or path

    Returns
    -------
    SRFLVM

    Raises
    ------
    FileNotFoundError
        There is no such file.
    ModelFileError
        The file is damaged, truncated, not a model file, or of a newer version of the format.
    """
    path = Path(path)
    try:
        return _restore(*_read(path))
    except SchemaError as error:
        raise ModelFileError(
            f"{path} is not a sound model file: {error}. Restore it from a copy, or save the model again."
        ) from error


def _restore(header: dict[str, Any], tensors: Tensors) -> SRFLVM:
    plain: Any = header.get("model")
    version: int = header["schema_version"]
    check_plain(plain, default_parameters(), version)
    plain = completed(plain)
    estimator = unfitted(plain, tensors)
    check_model(estimator, plain, tensors, version)
    return put_together(estimator, plain, tensors)


def _encode(plain: Plain, tensors: Tensors) -> bytes:
    header = {
        "format": FORMAT,
        "schema_version": SCHEMA_VERSION,
        "library_version": __version__,
        "tensors_sha256": _digest(tensors),
        "model": plain,
    }
    text = json.dumps(header, allow_nan=False)
    metadata = {HEADER_KEY: text, HEADER_DIGEST_KEY: _sha256(text)}
    return to_bytes({name: np.asarray(tensor, order="C") for name, tensor in tensors.items()}, metadata)


def _read(path: Path) -> tuple[dict[str, Any], Tensors]:
    """The header and the tensors, both as they were written."""
    if not path.exists():
        raise FileNotFoundError(f"There is no model file {path}. Check the name and the directory.")
    if not path.is_file():
        raise ModelFileError(f"{path} is not a file. Give the name of a file that SRFLVM.save wrote.")
    try:
        with safe_open(path, framework="numpy") as container:
            header = _read_header(path, container.metadata() or {})
            tensors = _read_tensors(container)
    except SafetensorError as error:
        raise ModelFileError(
            f"{path} is not a model file, or it is cut short or damaged ({error}). "
            "Give a file that SRFLVM.save wrote, restore it from a copy, or save the model again."
        ) from error
    if _digest(tensors) != header.get("tensors_sha256"):
        raise SchemaError("its numbers do not have the checksum they were written with")
    return header, tensors


def _read_header(path: Path, metadata: dict[str, str]) -> dict[str, Any]:
    text = metadata.get(HEADER_KEY)
    if text is None:
        raise ModelFileError(
            f"{path} is a safetensors file but not a model file. Give a file that SRFLVM.save wrote."
        )
    if _sha256(text) != metadata.get(HEADER_DIGEST_KEY):
        raise SchemaError("its header does not have the checksum it was written with")
    try:
        header = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SchemaError("its header cannot be read") from error
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise SchemaError(f"its header does not say {FORMAT!r}")
    _check_version(path, header)
    return header


def _check_version(path: Path, header: dict[str, Any]) -> None:
    version = header.get("schema_version")
    if type(version) is not int or version < 1:
        raise SchemaError(f"its version of the format is {version!r}")
    if version > SCHEMA_VERSION:
        raise ModelFileError(
            f"{path} was written by srflvm {header.get('library_version')} in version {version} of the "
            f"format; this is srflvm {__version__}, which reads up to version {SCHEMA_VERSION}. "
            "Upgrade srflvm to load it."
        )


def _read_tensors(container: Any) -> Tensors:
    names = list(container.keys())
    for name in names:
        dtype = container.get_slice(name).get_dtype()
        if dtype not in _NUMBER_TYPES:
            raise SchemaError(f"tensor {name} is {dtype} in place of {' or '.join(_NUMBER_TYPES)}")
    return {name: container.get_tensor(name) for name in names}


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _digest(tensors: Tensors) -> str:
    """SHA-256 over names, types, shapes and contents."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(json.dumps([name, tensor.dtype.name, tensor.shape]).encode())
        digest.update(tensor.tobytes(order="C"))
    return digest.hexdigest()


def _write_whole(target: Path, content: bytes) -> None:
    """Write all of the file or nothing."""
    if target.is_dir():
        raise IsADirectoryError(f"{target} is a directory. Give the name of a file in it.")
    if not target.parent.is_dir():
        raise FileNotFoundError(f"There is no directory {target.parent}. Create it first.")
    temporary = target.with_name(f".srflvm-{uuid.uuid4().hex}.tmp")
    try:
        with temporary.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)
