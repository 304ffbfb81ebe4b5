"""Files that are written whole or not at all, and never over others unasked."""

from __future__ import annotations

import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def check_target(path: Path, *, force: bool) -> None:
    """Refuse, before time is spent, a file that could not be written or that is there already."""
    folder = Path(os.path.realpath(path)).parent
    if not folder.is_dir():
        raise FileNotFoundError(f"Cannot write {path}: there is no folder {folder}. Create it first.")
    if path.is_dir() and path.suffix != ".zarr":
        raise IsADirectoryError(f"Cannot write {path}: it is a folder. Give the name of a file in it.")
    if path.exists() and not path.is_dir() and not path.is_file():
        raise OSError(f"Cannot write {path}: it is not a regular file.")
    if path.exists() and not force:
        raise FileExistsError(f"{path} is there already. Give --force to replace it.")
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise OSError(f"Cannot write {path}: {error.strerror or error}.") from error


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """A name in the same folder to write to; what is there in the end becomes `path`, a file or a folder."""
    target = Path(os.path.realpath(path))
    temporary = target.with_name(f".srflvm-{uuid.uuid4().hex}{''.join(target.suffixes)}")
    try:
        yield temporary
        _replace(temporary, target)
    except OSError as error:
        raise OSError(f"Cannot write {path}: {error.strerror or error}.") from error
    finally:
        _remove(temporary)


def _replace(temporary: Path, target: Path) -> None:
    if target.is_dir():
        old = target.with_name(f".srflvm-{uuid.uuid4().hex}")
        os.replace(target, old)
        os.replace(temporary, target)
        _remove(old)
        return
    if temporary.is_file():
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
    os.replace(temporary, target)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
