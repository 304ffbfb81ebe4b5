"""Atomic files: a file appears whole or not at all, and never replaces another one unasked.

A file has a temporary name until it is complete. The name contains the process and the machine that write it,
so that the next writer in the folder can remove the files of processes that were killed, and no others.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import platform
import re
import shutil
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_TEMPORARY = re.compile(
    r"\.srflvm-(?P<machine>[0-9a-f]{8})-(?P<process>\d+)-(?P<start>[0-9a-f]{8})-[0-9a-f]{8}(\..*)?"
)

# Tells this process from an earlier one that had the same number.
_PROCESS = uuid.uuid4().hex[:8]

_SECONDS_OF_A_DAY = 86_400


def check_target(path: Path, *, force: bool) -> None:
    """Refuse, before time is spent, a path that cannot be written or where a file exists already."""
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
    """Yield a temporary name in the same folder, and rename the file or folder written there to `path`."""
    target = Path(os.path.realpath(path))
    _remove_abandoned(target.parent)
    temporary = _temporary_beside(target, "".join(target.suffixes))
    try:
        yield temporary
        _replace(temporary, target)
    except OSError as error:
        raise OSError(f"Cannot write {path}: {error.strerror or error}.") from error
    finally:
        _remove(temporary)


def write_whole(path: str | os.PathLike[str], content: bytes) -> None:
    """Write a file and its new name through to the disk; a link at `path` is followed."""
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise IsADirectoryError(f"{target} is a directory. Give the name of a file in it.")
    if not target.parent.is_dir():
        raise FileNotFoundError(f"There is no directory {target.parent}. Create it first.")
    _remove_abandoned(target.parent)
    temporary = _temporary_beside(target, ".tmp")
    try:
        with temporary.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)
    _sync_names(target.parent)


def in_use(path: Path) -> bool:
    """Return whether a process may still be writing a temporary file.

    A process of this machine may if it is alive, one of another machine if it wrote less than a day ago.
    """
    name = _TEMPORARY.fullmatch(path.name)
    if name is None:
        return False
    machine, process, start = name["machine"], int(name["process"]), name["start"]
    if machine == _machine() and process == os.getpid():
        return start == _PROCESS
    if machine == _machine() and os.name == "posix":
        return _is_alive(process)
    try:
        return time.time() - path.stat().st_mtime < _SECONDS_OF_A_DAY
    except OSError:
        return False


def _temporary_beside(target: Path, suffix: str) -> Path:
    """Return a new name in the folder of a file, for this process to write to until the file is complete."""
    return target.with_name(f".srflvm-{_machine()}-{os.getpid()}-{_PROCESS}-{uuid.uuid4().hex[:8]}{suffix}")


def _remove_abandoned(folder: Path) -> None:
    """Remove the temporary files that killed processes have left in a folder."""
    # a folder that cannot be listed may still be written to, and others may remove the same files meanwhile
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for path in [Path(entry.path) for entry in entries if _TEMPORARY.fullmatch(entry.name)]:
            if not in_use(path):
                with contextlib.suppress(OSError):
                    _remove(path)


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except PermissionError:
        return True
    except (OSError, OverflowError):
        return False
    return True


@functools.cache
def _machine() -> str:
    return hashlib.sha256(platform.node().encode()).hexdigest()[:8]


def _replace(temporary: Path, target: Path) -> None:
    if temporary.is_dir():
        # a name that nothing else removes: it is the only copy until the new folder is in its place
        old = target.with_name(f".{target.name}-replaced-by-srflvm")
        if target.is_dir():
            _remove(old)
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


def _sync_names(folder: Path) -> None:
    """Write the folder's list of names to the disk where the system can; the file is whole anyway."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
