"""Communication between the processes that fit one model together.

All processes run the same program and make the same calls in the same order. Each has a contiguous range of
the rows, in whole chunks. A fit is given a `Communicator` and never asks for processes in another way:
`Communicator` itself is one process that works alone, and `srflvm.parallel.peers.Peers` is one of several.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, TypeVar

import jax
import numpy as np
from jax.sharding import Mesh

from srflvm._typing import FloatArray
from srflvm.numerics.features import chunk_shape

if TYPE_CHECKING:
    from srflvm.bcd import Run

T = TypeVar("T")


class Communicator:
    """Represent a process that works alone: it has all rows, and every exchange returns what it is given."""

    n_processes: int = 1
    index: int = 0
    n_devices: int = 1
    mesh: Mesh | None = None
    is_interrupted: bool = False

    # ---- which rows are whose -----------------------------------------------------------------------

    @property
    def is_first(self) -> bool:
        """Tell whether this process writes files and prints."""
        return self.index == 0

    def n_processes_here(self) -> int:
        """Return how many of the processes run on this machine."""
        return 1

    def row_range(self, n_rows: int) -> tuple[int, int]:
        """Return the first row of this process and the row after its last one.

        All devices get the same number of whole chunks, so the last processes may have fewer rows, or none.
        """
        own = self.n_padded_rows(n_rows)
        return min(self.index * own, n_rows), min((self.index + 1) * own, n_rows)

    def n_padded_rows(self, n_rows: int) -> int:
        """Return the number of rows of one process with padding: whole chunks for each of its devices."""
        size = chunk_shape(n_rows)[1]
        per_device = -(-n_rows // (size * self.n_devices))
        return per_device * size * self.n_devices // self.n_processes

    # ---- arrays with a row for each row of the data -------------------------------------------------

    def shard(self, own: np.ndarray) -> jax.Array:
        """Make a global array from the padded part of this process."""
        return jax.device_put(own)

    def shard_rows(self, own: np.ndarray, n_rows: int) -> jax.Array:
        """Make a global array of `n_rows` rows and padding from the rows of this process."""
        return jax.device_put(own)

    def own_rows(self, array: jax.Array, n_rows: int) -> np.ndarray:
        """Return the rows of this process of a global array."""
        return np.asarray(array)

    def take_rows(self, index: np.ndarray, own: np.ndarray, start: int) -> np.ndarray:
        """Return the rows of a sorted index, where `own` are the rows of this process from `start` on."""
        return own[index - start]

    def shard_run(self, run: Run, n_rows: int) -> Run:
        """Return a run on global arrays from one on whole arrays; a sharded run stays as it is."""
        return run

    def gather_run(self, run: Run, n_rows: int) -> Run:
        """Return the run on whole arrays, as one process would have it, in every process."""
        return run

    # ---- exchanges of values ------------------------------------------------------------------------

    def gather(self, own: T) -> list[T]:
        """Return the values of all processes, in order."""
        return [own]

    def gather_rows(self, own: np.ndarray) -> np.ndarray:
        """Return the rows of all processes, in order."""
        return np.concatenate(self.gather(own))

    def sum(self, *own: FloatArray) -> list[FloatArray]:
        """Return the sums of float64 arrays over the processes, in their order: the same bits everywhere."""
        return list(own)

    def from_first(self, own: T) -> T:
        """Return the value that the first process has."""
        return own

    def anywhere(self, *flags: bool) -> tuple[bool, ...]:
        """Tell of each flag whether it is set in any process."""
        return flags

    # ---- work ---------------------------------------------------------------------------------------

    def together(self, work: Callable[[], T]) -> T:
        """Return what `work` returns; if it fails in one process it fails in all, and none waits for ever."""
        return work()

    def by_first(self, work: Callable[[Communicator], T]) -> T:
        """Let the first process do `work` alone, and return its result in all processes."""
        return work(self)

    def jointly(self) -> AbstractContextManager[None]:
        """Mark work that no process can go on with unless all do."""
        return nullcontext()

    def apart(self) -> AbstractContextManager[None]:
        """Mark work, in the midst of joint work, that a process does in its own time."""
        return nullcontext()

    def guarded(self, checkpoint: Any) -> AbstractContextManager[None]:
        """Mark a fit: when it fails in one process, the others end with a message."""
        return nullcontext()

    def report(self, activity: str) -> None:
        """Report that this process has got on, and with what it goes on."""


_current = Communicator()


def current() -> Communicator:
    """Return the communicator of this process: one of several once they have been started, else one alone."""
    if _current.n_processes == 1 and jax.distributed.is_initialized() and jax.process_count() > 1:
        from srflvm.parallel.peers import Peers

        _use(Peers())
    return _current


def _use(communicator: Communicator) -> None:
    """Make a communicator that of this process."""
    global _current
    _current = communicator


def report(activity: str) -> None:
    """Report progress of this process, wherever it is, to those who watch over it."""
    _current.report(activity)
