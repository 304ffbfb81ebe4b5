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

from safetensors import SafetensorError
from sklearn.utils.validation import check_is_fitted

from srflvm._containers import HEADER_KEY, Container, decode_header, encode, open_container, write_whole
from srflvm._model_checks import check_model, check_plain, check_values
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
        check_values(plain, tensors)
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
        return _restore(path)
    except SchemaError as error:
        raise ModelFileError(
            f"{path} is not a sound model file: {error}. Restore it from a copy, or save the model again."
        ) from error


def read_versions(path: str | os.PathLike[str]) -> tuple[int, str]:
    """The version of a model file's format and of the library that wrote it."""
    header = _read_header(_open(Path(path)))
    return header["schema_version"], str(header.get("library_version"))


def _restore(path: Path) -> SRFLVM:
    """Judge what the file says of the model before any number of it is read."""
    container = _open(path)
    header = _read_header(container)
    _check_types(container)
    plain: Any = header.get("model")
    version: int = header["schema_version"]
    check_plain(plain, default_parameters(), version)
    plain = completed(plain)
    check_model(unfitted(plain, container.tensors), plain, container.tensors, version)
    tensors = container.read(header)
    check_values(plain, tensors, version)
    return put_together(unfitted(plain, tensors), plain, tensors)


def _encode(plain: Plain, tensors: Tensors) -> bytes:
    header = {
        "format": FORMAT,
        "schema_version": SCHEMA_VERSION,
        "library_version": __version__,
        "model": plain,
    }
    return encode(header, tensors)


def _open(path: Path) -> Container:
    if not path.exists():
        raise FileNotFoundError(f"There is no model file {path}. Check the name and the directory.")
    if not path.is_file():
        raise ModelFileError(f"{path} is not a file. Give the name of a file that SRFLVM.save wrote.")
    try:
        return open_container(path)
    except SafetensorError as error:
        raise ModelFileError(
            f"{path} is not a model file, or it is cut short or damaged ({error}). "
            "Give a file that SRFLVM.save wrote, restore it from a copy, or save the model again."
        ) from error


def _read_header(container: Container) -> dict[str, Any]:
    if HEADER_KEY not in container.metadata:
        raise ModelFileError(
            f"{container.path} is a safetensors file but not a model file. "
            "Give a file that SRFLVM.save wrote."
        )
    header = decode_header(container.metadata, FORMAT)
    _check_version(container.path, header)
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


def _check_types(container: Container) -> None:
    for name, stored in container.tensors.items():
        if stored.kind not in _NUMBER_TYPES:
            raise SchemaError(f"tensor {name} is {stored.kind} in place of {' or '.join(_NUMBER_TYPES)}")
