"""Launcher of worker processes on this machine: starts them, relays their output, and ends them together.

Workers are started even where there is only one per machine. The runtime of JAX aborts a process with a stack
trace when its coordinator dies; the process that started it can still print in one line what happened.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import IO

import numpy as np

from srflvm.parallel.joining import NOTICE
from srflvm.parallel.watchdog import EXIT_CODE as PEER_LOST

INTERRUPTED = 130  # the exit code after Ctrl-C
PORT_TAKEN = 76  # the exit code of a worker that cannot listen on its port

# When one worker has failed the others get so long to print why, and to end.
_SECONDS_TO_END = 10.0

_MOST_LINES_KEPT = 200

# What the runtimes below JAX print of their own accord.
_RUNTIME_TALK = re.compile(r"\[Gloo\]|[IWEF]\d{4} \d\d:")
_ENDED_BY_JAX = "JAX distributed service detected fatal errors"
_REFUSED_PORT = re.compile(r"Failed to add port to server: .* for '(.+)'")


@dataclass
class _Worker:
    """Running process, and the last lines of its standard error."""

    index: int
    process: subprocess.Popen[str]
    errors: deque[str] = field(default_factory=lambda: deque(maxlen=_MOST_LINES_KEPT))
    readers: list[threading.Thread] = field(default_factory=list)

    def read_output(self) -> None:
        """Relay standard output and notices, and keep the rest of standard error."""
        for stream, take in ((self.process.stdout, _relay), (self.process.stderr, self._take_error)):
            reader = threading.Thread(target=_read, args=(stream, take), daemon=True)
            reader.start()
            self.readers.append(reader)

    def _take_error(self, line: str) -> None:
        if line.startswith(NOTICE):
            print(line, end="", file=sys.stderr, flush=True)
        else:
            self.errors.append(line)

    def end(self) -> None:
        """Kill it if it still runs, and read what it left."""
        self.process.kill()
        self.process.wait()
        for reader in self.readers:
            reader.join(1.0)
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()

    @property
    def was_ended_by_jax(self) -> bool:
        return any(_ENDED_BY_JAX in line for line in self.errors)

    @property
    def is_a_victim(self) -> bool:
        """Tell whether it ended because of another process."""
        return self.process.returncode == PEER_LOST or self.was_ended_by_jax

    @property
    def complaint(self) -> str:
        """Return in one line why it ended, or all of its last lines if none of them is an error."""
        code, said = self.process.returncode, "".join(self.errors)
        lines = [line for line in self.errors if line.startswith("Error: ")]
        if lines:
            return lines[-1].removeprefix("Error: ").strip()
        if self.was_ended_by_jax:
            return f"process {self.index} was ended by JAX: a peer was lost, or did not answer in time."
        if port := next(filter(None, map(_REFUSED_PORT.search, self.errors)), None):
            return (
                f"process {self.index} cannot listen on {port[1]}, where the processes should meet: another "
                "program, or an earlier fit, may still use that port. Give another one with --coordinator, "
                "--process-count and --process-index."
            )
        if code < 0:
            return f"process {self.index} was killed by {signal.Signals(-code).name}."
        return f"process {self.index} ended with code {code}:\n{said}"


def free_port() -> int:
    """Return a port of this machine that no program listens on."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def run_workers(commands: Sequence[Sequence[str]], advice: str, *, silent_code: int | None = None) -> int:
    """Run all commands at once, wait for them, and return 0 if all of their exit codes are 0.

    Ctrl-C is passed on, so that workers can end in good order, and the code is 130; a second one kills them.
    Nothing is printed about a worker that failed with `silent_code`, for a caller that then tries again.
    """
    workers = [_start(index, command, len(commands)) for index, command in enumerate(commands)]
    failed, is_interrupted = None, False
    try:
        failed, is_interrupted = _wait(workers)
    finally:
        for worker in workers:
            worker.end()
    if failed is None:
        _print_warnings(workers[0])
        return INTERRUPTED if is_interrupted else 0
    code = failed.process.returncode
    if code == silent_code:
        return code
    was_lost = code < 0 or code == PEER_LOST
    more = f" {advice}" if was_lost and advice not in failed.complaint else ""
    print(f"Error: {failed.complaint}{more}", file=sys.stderr, flush=True)
    return PEER_LOST if was_lost else code


def _start(index: int, command: Sequence[str], n_workers: int) -> _Worker:
    with _on_its_cores(index, n_workers):
        # in a session of its own a worker does not get the terminal's Ctrl-C by itself; the end of its
        # standard input tells it that this process is gone
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
    worker = _Worker(index, process)
    worker.read_output()
    return worker


@contextlib.contextmanager
def _on_its_cores(index: int, n_workers: int) -> Iterator[None]:
    """Give processes that are started here their share of this process's cores, where systems allow that."""
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    if n_workers == 1 or len(cores) < n_workers:
        yield
        return
    os.sched_setaffinity(0, np.array_split(cores, n_workers)[index].tolist())
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


def _wait(workers: list[_Worker]) -> tuple[_Worker | None, bool]:
    """Wait until all workers have ended; return the one that failed, and whether Ctrl-C was pressed.

    When one has failed, the others get a short time to end.
    """
    deadline, n_interrupts = float("inf"), 0
    while any(worker.process.poll() is None for worker in workers) and time.monotonic() < deadline:
        try:
            time.sleep(0.05)
        except KeyboardInterrupt:
            n_interrupts += 1
            if n_interrupts > 1:
                raise
            for worker in workers:
                worker.process.send_signal(signal.SIGINT)
        if any(worker.process.poll() for worker in workers):
            deadline = min(deadline, time.monotonic() + _SECONDS_TO_END)
    failed = [worker for worker in workers if worker.process.poll()]
    return min(failed, key=lambda worker: worker.is_a_victim, default=None), n_interrupts > 0


def _read(stream: IO[str] | None, take) -> None:
    for line in stream or ():
        take(line)


def _relay(line: str) -> None:
    if not _RUNTIME_TALK.match(line):
        print(line, end="", flush=True)


def _print_warnings(worker: _Worker) -> None:
    for line in worker.errors:
        if not _RUNTIME_TALK.match(line):
            print(line, end="", file=sys.stderr, flush=True)
