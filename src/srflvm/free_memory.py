"""How much memory this process may still take, and what is refused because it takes more."""

from __future__ import annotations

import os
from pathlib import Path

from srflvm.exceptions import DataError

# Control groups (versions 2 and 1) that may allow a process less than the machine has: limit and use.
_GROUPS = (
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
    ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
)

# What is not read at once where the system does not tell how much memory is free.
_MOST_WHEN_UNKNOWN = 64e9


def available() -> float | None:
    """Bytes that this process may still take, as far as the system tells."""
    found = [_of_the_machine(), *(_of_the_group(*files) for files in _GROUPS)]
    known = [size for size in found if size is not None]
    return min(known) if known else None


def refuse_reading(what: str, n_bytes: float, remedy: str) -> None:
    """Raise a `DataError` where `what` takes more bytes, all at once, than are free."""
    room = available()
    if n_bytes > (_MOST_WHEN_UNKNOWN if room is None else room):
        free = "" if room is None else f", but only {in_gb(room)} are free"
        raise DataError(f"{what}, which takes {in_gb(n_bytes)} at once{free}. {remedy}")


def in_gb(size: float) -> str:
    """Bytes for a message."""
    return f"{size / 1e9:.2f} GB"


def _of_the_machine() -> float | None:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return 1024.0 * next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration, ValueError):
        pass
    try:
        return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (AttributeError, OSError, ValueError):
        return None


def _of_the_group(limit: str, use: str) -> float | None:
    try:
        return float(int(Path(limit).read_text()) - int(Path(use).read_text()))
    except (OSError, ValueError):
        return None
