"""Folder in which compiled programs are kept from one process to the next.

JAX finds a program by its code, its options and the versions of JAX and XLA. Programs for the CPU hold
instructions of the machine that they were compiled on, so that machines that share a home folder get folders
of their own. Importing the module loads no JAX, and changes none of its settings.
"""

from __future__ import annotations

import hashlib
import os
import platform
import sys
import tempfile
from pathlib import Path

from srflvm.exceptions import warn_caller

# Programs of all sizes are kept: hundreds of small ones take as long to compile as a few large ones.
_SETTINGS = {
    "jax_persistent_cache_min_compile_time_secs": 0.0,
    "jax_persistent_cache_min_entry_size_bytes": -1,
}
_FOLDER_SETTING = "jax_compilation_cache_dir"

# The command line keeps programs unless this variable is "off"; another value is the folder.
_VARIABLE = "SRFLVM_CACHE"
_OFF = ("off", "0", "no", "false")

# The oldest programs are deleted when they take more bytes.
_MOST_BYTES = 2**30


def use_compilation_cache(folder: str | Path | None = None) -> Path | None:
    """Keep compiled programs in a folder, where this and later processes find them.

    Call it before the first fit. A first fit compiles for seconds; with the programs of an earlier process,
    of the same shapes and parameters, it loads them instead. The setting is that of JAX and holds for all
    programs of this process, also for those of other libraries. Anybody who can write to the folder can have
    code run here: it should be yours alone.

    Parameters
    ----------
    folder : str or Path, optional
        The folder, created if need be. By default ``srflvm/programs-...`` in the user's folder of caches:
        ``$XDG_CACHE_HOME``, or else ``~/.cache`` (``~/Library/Caches`` on macOS, ``%LOCALAPPDATA%`` on
        Windows). The last part of its name stands for the processor.

    Returns
    -------
    folder : Path or None
        The folder, or None if it cannot be written to: then there is a warning, and programs are compiled as
        before.
    """
    wanted = _default_folder() if folder is None else Path(folder).expanduser().absolute()
    problem = _prepare(wanted)
    if problem is not None:
        warn_caller(problem)
        return None
    import jax
    from jax.experimental.compilation_cache import compilation_cache

    for name, value in _SETTINGS.items():
        jax.config.update(name, value)
    jax.config.update(_FOLDER_SETTING, str(wanted))
    # JAX goes on with the folder that it used first unless it is told to look again
    compilation_cache.reset_cache()
    return wanted


def keep_programs_of_commands() -> str | None:
    """Have JAX keep programs, in this process and in those that it starts, once it is imported.

    The environment variable SRFLVM_CACHE may hold another folder, or "off". A folder that the user has given
    to JAX itself stays. Return what to tell the user if the folder cannot be written to.
    """
    choice = os.environ.get(_VARIABLE, "")
    if choice.lower() in _OFF or _FOLDER_SETTING.upper() in os.environ:
        return None
    folder = Path(choice).expanduser().absolute() if choice else _default_folder()
    problem = _prepare(folder)
    if problem is None:
        os.environ[_FOLDER_SETTING.upper()] = str(folder)
        for name, value in _SETTINGS.items():
            os.environ.setdefault(name.upper(), str(value))
    return problem


def _default_folder() -> Path:
    """Return the folder of programs for this processor in the user's folder of caches."""
    caches = os.environ.get("XDG_CACHE_HOME", "")
    if not Path(caches).is_absolute():
        caches = {
            "darwin": "~/Library/Caches",
            "win32": os.environ.get("LOCALAPPDATA", "~/AppData/Local"),
        }.get(sys.platform, "~/.cache")
    return Path(os.path.expanduser(caches)) / "srflvm" / f"programs-{_processor()}"


def _processor() -> str:
    """Return a short text that differs between processors with different instructions."""
    described = [platform.machine()]
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            lines = file.read().partition("\n\n")[0].splitlines()
    except OSError:
        lines = []
    described += [line for line in lines if line.startswith(("model name", "flags", "Features"))]
    return hashlib.sha256("\n".join(described).encode()).hexdigest()[:8]


def _prepare(folder: Path) -> str | None:
    """Make the folder and room in it; return what is wrong if nothing can be written there."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
        _delete_oldest(folder)
    except OSError as error:
        return (
            f"Compiled programs are not kept: cannot write to {folder} ({error.strerror}). Name another "
            f'folder, for commands by {_VARIABLE}=folder, or {_VARIABLE}="off".'
        )
    return None


def _delete_oldest(folder: Path) -> None:
    """Delete the programs that were written first, until the others take less than the most bytes."""
    with os.scandir(folder) as entries:
        found = [(entry.stat(), entry.path) for entry in entries if entry.name.endswith("-cache")]
    total = sum(facts.st_size for facts, _ in found)
    for facts, path in sorted(found, key=lambda one: one[0].st_mtime):
        if total <= _MOST_BYTES:
            break
        Path(path).unlink(missing_ok=True)
        total -= facts.st_size
