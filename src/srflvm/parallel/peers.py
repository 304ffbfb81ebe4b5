"""One of several processes that fit a model together, on JAX's distributed runtime.

Rows are shared out in one contiguous range for each process, over the axis "rows" of a mesh of all devices.
Exchanges of host data are exact: values travel as bytes, whatever JAX thinks of float64 at the time.
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
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from srflvm._typing import FloatArray
from srflvm.bcd import Run
from srflvm.exceptions import DataError
from srflvm.numerics.features import ROWS
from srflvm.numerics.jit import in_float64
from srflvm.parallel.communicator import Communicator, _use
from srflvm.parallel.joining import meeting
from srflvm.parallel.watchdog import Watchdog

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

# Entries of the state that have a row for each row of the data.
_ROW_ENTRIES = ("latent_mean", "latent_factor")

T = TypeVar("T")


def start(
    coordinator: str | None = None,
    n_processes: int | None = None,
    index: int | None = None,
    *,
    peer_timeout: float = PEER_TIMEOUT,
    connect_timeout: float = CONNECT_TIMEOUT,
) -> None:
    """Join this process with its peers; call it once, before anything else uses JAX.

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
    with meeting(coordinator, index, connect_timeout):
        _do_not_preempt()
        jax.distributed.initialize(
            coordinator,
            n_processes,
            index,
            initialization_timeout=math.ceil(connect_timeout) + _JAX_LATER_BY,
            heartbeat_timeout_seconds=_JAX_HEARTBEAT_TIMEOUT,
        )
    if jax.process_count() > 1:
        peers = Peers()
        peers.watch(coordinator, peer_timeout)
        _use(peers)


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


class Peers(Communicator):
    """Represent one of several processes, with a watchdog that ends it when another one is lost."""

    def __init__(self) -> None:
        self.n_processes, self.index = jax.process_count(), jax.process_index()
        self.n_devices = jax.device_count()
        self.mesh = Mesh(np.array(jax.devices()), (ROWS,))
        self._watchdog: Watchdog | None = None
        self._interrupts: list[int] = []

    def watch(self, coordinator: str | None, peer_timeout: float) -> None:
        """Start the watchdog, and end the peers too if an error in this process is caught by nobody."""
        listener, addresses = Watchdog.listen(coordinator) if self.is_first else (None, [])
        token, addresses = self.from_first((secrets.token_hex(16), addresses))
        message_threads = _let_messages_wait()
        self._watchdog = Watchdog(self.index, self.n_processes, peer_timeout, token, message_threads)
        self._watchdog.start(listener, addresses)
        sys.excepthook = partial(_fail, self._watchdog, sys.excepthook)
        atexit.register(_leave, self._watchdog)

    def n_processes_here(self) -> int:
        return self.gather(platform.node()).count(platform.node())

    # ---- arrays with a row for each row of the data -------------------------------------------------

    def shard(self, own: np.ndarray) -> jax.Array:
        return jax.make_array_from_process_local_data(self._sharding(ROWS), own)

    def shard_rows(self, own: np.ndarray, n_rows: int) -> jax.Array:
        padded = np.zeros((self.n_padded_rows(n_rows), *own.shape[1:]), own.dtype)
        padded[: len(own)] = own
        return self.shard(padded)

    def own_rows(self, array: jax.Array, n_rows: int) -> np.ndarray:
        start, stop = self.row_range(n_rows)
        shards = sorted(array.addressable_shards, key=lambda shard: shard.index[0].start or 0)
        return np.concatenate([np.asarray(shard.data) for shard in shards])[: stop - start]

    def take_rows(self, index: np.ndarray, own: np.ndarray, start: int) -> np.ndarray:
        mine = index[(index >= start) & (index < start + len(own))]
        return self.gather_rows(own[mine - start])

    def fetch_rows(self, array: jax.Array) -> np.ndarray:
        """Return a global array as NumPy, whole, in every process."""
        with self.jointly(), in_float64():
            return np.asarray(multihost_utils.process_allgather(array, tiled=True))

    def shard_run(self, run: Run, n_rows: int) -> Run:
        def shard(is_of_rows: bool, leaf: Any) -> jax.Array:
            if isinstance(leaf, jax.Array) and not leaf.is_fully_addressable:
                return leaf
            values = np.asarray(leaf)
            if is_of_rows:
                return self.shard_rows(values[slice(*self.row_range(n_rows))], n_rows)
            return jax.make_array_from_process_local_data(self._sharding(), values)

        return _map_run(run, shard)

    def gather_run(self, run: Run, n_rows: int) -> Run:
        def fetch(is_of_rows: bool, leaf: Any) -> np.ndarray:
            return self.fetch_rows(leaf)[:n_rows] if is_of_rows else np.asarray(leaf)

        return _map_run(run, fetch)

    def _sharding(self, *axes: str) -> NamedSharding:
        assert self.mesh is not None
        return NamedSharding(self.mesh, PartitionSpec(*axes))

    # ---- exchanges of values ------------------------------------------------------------------------

    def gather(self, own: T) -> list[T]:
        content = np.frombuffer(pickle.dumps(own), np.uint8)
        lengths = [int(part.view(np.int64)[0]) for part in self._gather_bytes(np.array([len(content)]))]
        padded = np.zeros(max(lengths), np.uint8)
        padded[: len(content)] = content
        parts = zip(self._gather_bytes(padded), lengths, strict=True)
        return [_unpacked(part[:length]) for part, length in parts]

    def sum(self, *own: FloatArray) -> list[FloatArray]:
        return [np.sum(parts, axis=0) for parts in zip(*self.gather(own), strict=True)]

    def from_first(self, own: T) -> T:
        content = np.frombuffer(pickle.dumps(own if self.is_first else None), np.uint8)
        length = int(self._broadcast_bytes(np.array([len(content)]).view(np.uint8)).view(np.int64)[0])
        content = self._broadcast_bytes(content if self.is_first else np.zeros(length, np.uint8))
        return _unpacked(content)

    def anywhere(self, *flags: bool) -> tuple[bool, ...]:
        return tuple(np.any(self._gather_bytes(np.array(flags)), axis=0).tolist())

    def _gather_bytes(self, own: np.ndarray) -> list[np.ndarray]:
        with self.jointly():
            return list(np.asarray(multihost_utils.process_allgather(own.view(np.uint8))))

    def _broadcast_bytes(self, own: np.ndarray) -> np.ndarray:
        with self.jointly():
            return np.asarray(multihost_utils.broadcast_one_to_all(own))

    # ---- work ---------------------------------------------------------------------------------------

    def together(self, work: Callable[[], T]) -> T:
        result, complaint, error = None, "", None
        try:
            result = work()
        except Exception as caught:
            error, complaint = caught, f"{type(caught).__name__}: {caught}"
        complaints = self.gather(complaint)
        if error is not None:
            raise error
        for index, text in enumerate(complaints):
            if text:
                raise DataError(f"Process {index} could not go on: {text}")
        return result  # pyright: ignore[reportReturnType]

    def by_first(self, work: Callable[[Communicator], T]) -> T:
        result = None
        if self.is_first:
            with self.apart():
                result = work(Communicator())
        return self.from_first(result)  # pyright: ignore[reportReturnType]

    def jointly(self) -> AbstractContextManager[None]:
        return self._marked(True)

    def apart(self) -> AbstractContextManager[None]:
        return self._marked(False)

    @contextmanager
    def _marked(self, is_waiting: bool) -> Iterator[None]:
        if self._watchdog is None:
            yield
            return
        before = self._watchdog.set_waiting(is_waiting)
        try:
            yield
        finally:
            self._watchdog.set_waiting(before)

    def report(self, activity: str) -> None:
        if self._watchdog is not None:
            self._watchdog.advance(activity)

    @property
    def is_interrupted(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Tell whether Ctrl-C was pressed during work that is `guarded`: processes have to stop together."""
        return bool(self._interrupts)

    @contextmanager
    def guarded(self, checkpoint: Any) -> Iterator[None]:
        """Mark a fit: when it fails in one process, the others end with a message.

        Ctrl-C is only noted, since a process that stops by itself leaves the others waiting.
        """
        if self._watchdog is None:
            yield
            return
        self._watchdog.enter(_advice(checkpoint))
        try:
            with self._noting_interrupts():
                yield
        except BaseException as error:
            if _is_about_a_peer(error):
                self._watchdog.wait_for_verdict(_SECONDS_FOR_A_VERDICT)
            self._watchdog.fail(f"{type(error).__name__}: {error}")
            raise
        finally:
            self._watchdog.leave()

    @contextmanager
    def _noting_interrupts(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        self._interrupts.clear()
        before = signal.signal(signal.SIGINT, lambda number, _: self._interrupts.append(number))
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)


def _unpacked(content: np.ndarray) -> Any:
    """Return a value from its bytes; outside of the scope, arrays of JAX would be cut to float32."""
    with in_float64():
        return pickle.loads(content.tobytes())


def _map_run(run: Run, change: Callable[[bool, Any], Any]) -> Run:
    """Apply `change` to every array of a run, told whether it has a row for each row of the data.

    The entries of the state that have, and what Adam remembers of them, are global arrays over the axis
    "rows"; rows that fill up the last chunks stay at the prior, where neither the bound nor its gradient sees
    them. Everything else is the same in all processes.
    """
    carry = _map_leaves(run.carry, change)
    state = carry.state if run.state is run.carry.state else _map_leaves(run.state, change)
    return replace(run, carry=carry, state=state)


def _map_leaves(tree: T, change: Callable[[bool, Any], Any]) -> T:
    def change_leaf(path: Any, leaf: Any) -> Any:
        return change(any(getattr(key, "key", None) in _ROW_ENTRIES for key in path), leaf)

    return jax.tree_util.tree_map_with_path(change_leaf, tree)


def _fail(
    watchdog: Watchdog, show: Callable[..., None], kind: type[BaseException], error: BaseException, *more: Any
) -> None:
    """Show an error that nobody caught, and end the peers too."""
    watchdog.fail(f"{kind.__name__}: {error}")
    show(kind, error, *more)


def _leave(watchdog: Watchdog) -> None:
    """Leave the peers in good order; after a failure do not wait for them, as JAX would."""
    failed = watchdog.failed
    watchdog.stop()
    if failed:
        os._exit(1)


def _advice(checkpoint: Any) -> str:
    if checkpoint is None:
        return "There is no checkpoint, since no checkpoint folder was given."
    return (
        f"The checkpoint in {checkpoint} is kept: start the same fit again, with any number of processes, "
        "and it goes on from there."
    )


def _is_about_a_peer(error: BaseException) -> bool:
    """Tell whether an exchange between devices failed, because a peer is gone; the watchdog knows which."""
    return any(name in str(error).lower() for name in _EXCHANGES)
