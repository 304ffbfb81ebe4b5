"""Several processes, each with some of the rows: who is who, and what they tell each other.

All processes run the same program and make the same calls in the same order. Rows are dealt out in one
contiguous range per process, over the axis "rows" of a mesh of all devices. Exchanges of host data are exact:
values travel as bytes, whatever JAX thinks of float64 at the time. With one process nothing is exchanged and
`jax.distributed` is not needed.
"""

from __future__ import annotations

import atexit
import math
import os
import pickle
import platform
import secrets
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from srflvm._types import FloatArray
from srflvm.computing import in_float64
from srflvm.exceptions import DataError
from srflvm.joining import check_port, limited_wait, wait_for_first
from srflvm.watchdog import Watchdog, open_listener

ROWS = "rows"

# Seconds in which all processes wait for each other and none gets on, after which all of them end.
PEER_TIMEOUT = 300.0

# Seconds to wait for process 0, and then for all others, when processes start.
CONNECT_TIMEOUT = 60.0

# JAX ends a process with a long stack trace when a peer is silent for so long, or has not come so many
# seconds after `connect_timeout`. The watchdog and `joining` are faster.
_JAX_HEARTBEAT_TIMEOUT = 120
_JAX_LATER_BY = 30

# What carries exchanges between devices, as errors name it. A failed exchange waits so long for the watchdog.
_EXCHANGES = ("gloo", "nccl")
_SECONDS_FOR_A_VERDICT = 45.0

_watchdog: Watchdog | None = None
_is_alone = False
_interrupts: list[int] = []

T = TypeVar("T")


def start(
    coordinator: str | None = None,
    n_processes: int | None = None,
    index: int | None = None,
    *,
    peer_timeout: float = PEER_TIMEOUT,
    connect_timeout: float = CONNECT_TIMEOUT,
) -> None:
    """Join this process with its peers. To be called once, before anything else uses JAX.

    On Linux the calling thread, and all that it starts, is from then on scheduled as batch work, and threads
    that wait for messages get what the others leave of a core.

    Parameters
    ----------
    coordinator : str, default=None
        "host:port" of process 0, any port that is free there. None asks the environment: SLURM, Open MPI or
        Kubernetes, as `jax.distributed.initialize` does.
    n_processes, index : int, default=None
        How many processes there are, and which one this is, from 0. None asks the environment.
    peer_timeout : float, default=300
        Seconds after which the fit is ended everywhere, if all processes wait for each other and none gets on
        or computes; on other devices than the CPU it must be longer than the longest sweep. A process that
        works by itself without computing, as in reading or in a callback, gets ten times as long. A peer that
        dies is noticed within seconds, one that is stopped within half a minute.
    connect_timeout : float, default=60
        Seconds to wait for process 0, which may start later than the others, and then for all others to join.
        Whoever waits for long says so.

    Raises
    ------
    OSError
        If process 0 cannot listen on its port, or another one cannot reach it. Where some never join, the
        process is ended with a line that says so, since JAX cannot be interrupted there.
    """
    if coordinator is not None and index is not None:
        if index == 0:
            check_port(coordinator)
        else:
            wait_for_first(coordinator, index, connect_timeout)
    _do_not_preempt()
    with limited_wait(coordinator, index, connect_timeout):
        jax.distributed.initialize(
            coordinator,
            n_processes,
            index,
            initialization_timeout=math.ceil(connect_timeout) + _JAX_LATER_BY,
            heartbeat_timeout_seconds=_JAX_HEARTBEAT_TIMEOUT,
        )
    if jax.process_count() > 1:
        _start_watchdog(coordinator, peer_timeout)


def _do_not_preempt() -> None:
    """Let the threads of this process, which inherit it, wait for each other instead of breaking in.

    Gloo's own thread polls as long as another one holds a connection's lock. On a core that both share, it
    would wake up in the middle of a message, break in, and poll until its turn is over: milliseconds a
    message. Threads under SCHED_BATCH do not break in.
    """
    if hasattr(os, "SCHED_BATCH"):
        with suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def _let_messages_wait() -> list[int]:
    """Give the threads that wait for messages of peers what the others leave of a core, and return them.

    A message that comes before it is asked for stays where it is, and gloo's thread polls until it is: on the
    core, and in the time, of the very work that the peer has ended earlier. To be called after the first
    exchange, when the threads are there.
    """
    found: list[int] = []
    for task in Path("/proc/self/task").glob("*"):
        with suppress(OSError, ValueError):
            if "ep" in (waits_in := (task / "wchan").read_text()) and "poll" in waits_in:
                found.append(int(task.name))
                os.setpriority(os.PRIO_PROCESS, found[-1], 19)
    return found


def _start_watchdog(coordinator: str | None, peer_timeout: float) -> None:
    global _watchdog
    listener, addresses = open_listener(coordinator) if is_first() else (None, [])
    token, addresses = from_first((secrets.token_hex(16), addresses))
    message_threads = _let_messages_wait()
    _watchdog = Watchdog(process_index(), n_processes(), peer_timeout, token, message_threads)
    _watchdog.start(listener, addresses)
    sys.excepthook = partial(_fail, sys.excepthook)
    atexit.register(_leave)


def _fail(show: Callable[..., None], kind: type[BaseException], error: BaseException, *more: Any) -> None:
    """An error that nobody caught ends the peers too."""
    if _watchdog is not None:
        _watchdog.fail(f"{kind.__name__}: {error}")
    show(kind, error, *more)


def _leave() -> None:
    """Say goodbye to the peers. After a failure do not wait for them, as JAX would."""
    if _watchdog is None:
        return
    failed = _watchdog.failed
    _watchdog.stop()
    if failed:
        os._exit(1)


def n_processes() -> int:
    """How many processes work on a fit."""
    return 1 if _is_alone or not jax.distributed.is_initialized() else jax.process_count()


def process_index() -> int:
    """Which of them this is, from 0."""
    return 0 if _is_alone or not jax.distributed.is_initialized() else jax.process_index()


def n_processes_here() -> int:
    """How many of them are on this machine."""
    return gather(platform.node()).count(platform.node())


def is_first() -> bool:
    """Whether this is the process that writes files and prints."""
    return process_index() == 0


def mesh() -> Mesh | None:
    """All devices of all processes along the axis "rows", or None for one process."""
    return Mesh(np.array(jax.devices()), (ROWS,)) if n_processes() > 1 else None


def row_range(n_rows: int, block: int = 1, index: int | None = None) -> tuple[int, int]:
    """The rows start, ..., stop - 1 of a process, whole blocks of rows except at the very end.

    All devices get the same number of blocks, so the last processes may have fewer rows, or none.
    """
    index = process_index() if index is None else index
    own = padded_rows(n_rows, block) // n_processes()
    return min(index * own, n_rows), min((index + 1) * own, n_rows)


def padded_rows(n_rows: int, block: int = 1) -> int:
    """The number of rows with padding: a whole number of blocks for every device."""
    n_devices = jax.device_count() if n_processes() > 1 else 1
    per_device = -(-n_rows // (block * n_devices))
    return per_device * block * n_devices


def shard_rows(own: np.ndarray) -> jax.Array:
    """A global array of the padded rows of all processes, from this process's part."""
    everywhere = mesh()
    if everywhere is None:
        return jax.numpy.asarray(own)
    return jax.make_array_from_process_local_data(NamedSharding(everywhere, PartitionSpec(ROWS)), own)


def fetch_rows(array: jax.Array) -> np.ndarray:
    """A global array as NumPy, whole, in every process."""
    if n_processes() == 1:
        return np.asarray(array)
    with jointly(), in_float64():
        return np.asarray(multihost_utils.process_allgather(array, tiled=True))


def gather(own: T) -> list[T]:
    """The values of all processes, in order."""
    if n_processes() == 1:
        return [own]
    content = np.frombuffer(pickle.dumps(own), np.uint8)
    lengths = [int(part.view(np.int64)[0]) for part in _gather_bytes(np.array([len(content)]))]
    padded = np.zeros(max(lengths), np.uint8)
    padded[: len(content)] = content
    parts = zip(_gather_bytes(padded), lengths, strict=True)
    return [pickle.loads(part[:length].tobytes()) for part, length in parts]


def gather_rows(own: np.ndarray) -> np.ndarray:
    """The rows of all processes, in order."""
    return np.concatenate(gather(own))


def sum_over_processes(*own: FloatArray) -> list[FloatArray]:
    """Sums of float64 arrays over the processes, in their order: the same bits everywhere."""
    if n_processes() == 1:
        return list(own)
    return [np.sum(parts, axis=0) for parts in zip(*gather(own), strict=True)]


def from_first(own: T) -> T:
    """The value that process 0 has."""
    if n_processes() == 1:
        return own
    content = np.frombuffer(pickle.dumps(own if is_first() else None), np.uint8)
    length = int(_broadcast_bytes(np.array([len(content)]).view(np.uint8)).view(np.int64)[0])
    content = _broadcast_bytes(content if is_first() else np.zeros(length, np.uint8))
    return pickle.loads(content.tobytes())


def anywhere(*flags: bool) -> tuple[bool, ...]:
    """For each flag, whether it is set in any process."""
    if n_processes() == 1:
        return flags
    return tuple(np.any(_gather_bytes(np.array(flags)), axis=0).tolist())


@contextmanager
def _alone() -> Iterator[None]:
    global _is_alone
    _is_alone = True
    try:
        yield
    finally:
        _is_alone = False


def together(work: Callable[[], T]) -> T:
    """What `work` returns; if it fails in one process it fails in all, and nobody waits for the others."""
    if n_processes() == 1:
        return work()
    result, complaint, error = None, "", None
    try:
        result = work()
    except Exception as caught:
        error, complaint = caught, f"{type(caught).__name__}: {caught}"
    complaints = gather(complaint)
    if error is not None:
        raise error
    for index, text in enumerate(complaints):
        if text:
            raise DataError(f"Process {index} could not go on: {text}")
    return result  # pyright: ignore[reportReturnType]


def note(doing: str) -> None:
    """Tell the watchdog that this process got on, and with what."""
    if _watchdog is not None:
        _watchdog.advance(doing)


@contextmanager
def _marked(is_waiting: bool) -> Iterator[None]:
    if _watchdog is None or n_processes() == 1:
        yield
        return
    before = _watchdog.set_waiting(is_waiting)
    try:
        yield
    finally:
        _watchdog.set_waiting(before)


def jointly() -> AbstractContextManager[None]:
    """Work that all processes do together: none of them gets on without the others."""
    return _marked(True)


def apart() -> AbstractContextManager[None]:
    """Work in the midst of such that a process does by itself, in its own time."""
    return _marked(False)


def by_first(work: Callable[[], T]) -> T:
    """What `work` gives to process 0, which does it alone while the others wait."""
    if n_processes() == 1:
        return work()
    result = None
    if is_first():
        with apart(), _alone():
            result = work()
    return from_first(result)  # pyright: ignore[reportReturnType]


def is_interrupted() -> bool:
    """Whether Ctrl-C was pressed during work that is `guarded`. Processes have to stop together."""
    return bool(_interrupts)


@contextmanager
def guarded(checkpoint: Any) -> Iterator[None]:
    """Work that all processes do together: when it fails in one, the others end with a message.

    Ctrl-C is only noted, since a process that stops by itself leaves the others waiting.
    """
    if _watchdog is None:
        yield
        return
    _watchdog.enter(_advice(checkpoint))
    try:
        with _noting_interrupts():
            yield
    except BaseException as error:
        if _is_about_a_peer(error):
            _watchdog.wait_for_verdict(_SECONDS_FOR_A_VERDICT)
        _watchdog.fail(f"{type(error).__name__}: {error}")
        raise
    finally:
        _watchdog.leave()


@contextmanager
def _noting_interrupts() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    _interrupts.clear()
    before = signal.signal(signal.SIGINT, lambda number, _: _interrupts.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _advice(checkpoint: Any) -> str:
    if checkpoint is None:
        return "There is no checkpoint, since no checkpoint folder was given."
    return (
        f"The checkpoint in {checkpoint} is kept: start the same fit again, with any number of processes, "
        "and it goes on from there."
    )


def _is_about_a_peer(error: BaseException) -> bool:
    """Whether an exchange between devices failed, because a peer is gone. The watchdog knows which."""
    return any(name in str(error).lower() for name in _EXCHANGES)


def _gather_bytes(own: np.ndarray) -> list[np.ndarray]:
    with jointly():
        return list(np.asarray(multihost_utils.process_allgather(own.view(np.uint8))))


def _broadcast_bytes(own: np.ndarray) -> np.ndarray:
    with jointly():
        return np.asarray(multihost_utils.broadcast_one_to_all(own))
