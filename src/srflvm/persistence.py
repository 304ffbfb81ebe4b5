"""A fitted model to and from one file.

The file is a safetensors container. Its metadata hold a JSON header and the header's SHA-256; the header
holds the format, its version, the plain values of `_model_schema` and the SHA-256 of the tensors. These
two keys and the header's format and versions keep their meaning in all versions of the format.
Nothing is pickled: loading a file runs no code from it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from sklearn.utils.validation import check_is_fitted

from srflvm._containers import HEADER_KEY, check_tensors, decode_header, encode, write_whole
from srflvm._model_checks import check_model, check_plain
from srflvm._model_parts import completed, default_parameters, put_together, take_apart, unfitted
from srflvm._model_schema import SCHEMA_VERSION, Plain, SchemaError, Tensors
from srflvm._validation import check_parameters
from srflvm._version import __version__
from srflvm.estimator import SRFLVM
from srflvm.exceptions import ModelFileError

FORMAT = "srflvm-model"

_NUMBER_TYPES = ("F64", "F32")


def save(estimator: SRFLVM, path: str | os.PathLike[str]) -> None:
    """Write a fitted estimator to one file.

    The file appears whole or not at all: it is written under another name in the same directory and
    then renamed, so a failure leaves an older file at `path` as it was. Everything is stored except
    `callbacks`, `checkpoint_dir` and a `random_state` that is not an integer; these are None after loading.

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
    write_whole(Path(os.path.realpath(path)), _encode(plain, tensors))


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


def read_versions(path: str | os.PathLike[str]) -> tuple[int, str]:
    """The version of a model file's format and of the library that wrote it."""
    header, _ = _read(Path(path))
    return header["schema_version"], str(header.get("library_version"))


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
        "model": plain,
    }
    return encode(header, tensors)


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
    check_tensors(header, tensors)
    return header, tensors


def _read_header(path: Path, metadata: dict[str, str]) -> dict[str, Any]:
    if HEADER_KEY not in metadata:
        raise ModelFileError(
            f"{path} is a safetensors file but not a model file. Give a file that SRFLVM.save wrote."
        )
    header = decode_header(metadata, FORMAT)
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
