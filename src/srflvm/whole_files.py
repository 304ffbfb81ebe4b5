"""Files that are written whole or not at all, and never over others unasked.

What is written has another name until it is whole. The name tells which process of which machine writes, so
that the next one to write there can remove what a killed process has left behind, and nothing else.
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


def temporary_beside(target: Path, suffix: str) -> Path:
    """Return a new name in the folder of a file, for this process to write to until the file is whole."""
    return target.with_name(f".srflvm-{_machine()}-{os.getpid()}-{_PROCESS}-{uuid.uuid4().hex[:8]}{suffix}")


def remove_abandoned(folder: Path) -> None:
    """Remove what processes that were killed have left half written in a folder."""
    # a folder that cannot be listed may still be written to, and others may remove the same files meanwhile
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for path in [Path(entry.path) for entry in entries if _TEMPORARY.fullmatch(entry.name)]:
            if not in_use(path):
                with contextlib.suppress(OSError):
                    _remove(path)


def in_use(path: Path) -> bool:
    """Whether a process may still be writing a file of a name of `temporary_beside`: one of this machine that
    is alive, or one of another machine less than a day ago."""
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


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """A name in the same folder to write to; what is there in the end becomes `path`, a file or a folder."""
    target = Path(os.path.realpath(path))
    remove_abandoned(target.parent)
    temporary = temporary_beside(target, "".join(target.suffixes))
    try:
        yield temporary
        _replace(temporary, target)
    except OSError as error:
        raise OSError(f"Cannot write {path}: {error.strerror or error}.") from error
    finally:
        _remove(temporary)


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
