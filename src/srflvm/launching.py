"""Processes of a command on this machine: starting them, relaying what they say, and ending them together.

Workers are started even where there is only one per machine. The runtime of JAX aborts a process with a stack
trace when its coordinator dies; whoever started it can still say in one line what happened.
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

from srflvm.watchdog import EXIT_CODE as PEER_LOST

# When one worker has failed the others get so long to say why, and to end.
_SECONDS_TO_END = 10.0

_MOST_LINES_KEPT = 200

# What the runtimes below JAX print of their own accord.
_RUNTIME_TALK = re.compile(r"\[Gloo\]|[IWEF]\d{4} \d\d:")
_LOST_COORDINATOR = "JAX distributed service detected fatal errors"


@dataclass
class Worker:
    """A running process, and the last lines of its standard error."""

    index: int
    process: subprocess.Popen[str]
    errors: deque[str] = field(default_factory=lambda: deque(maxlen=_MOST_LINES_KEPT))
    readers: list[threading.Thread] = field(default_factory=list)

    def read_output(self) -> None:
        """Relay standard output, and keep standard error."""
        for stream, take in ((self.process.stdout, _relay), (self.process.stderr, self.errors.append)):
            reader = threading.Thread(target=_read, args=(stream, take), daemon=True)
            reader.start()
            self.readers.append(reader)

    @property
    def lost_its_coordinator(self) -> bool:
        return any(_LOST_COORDINATOR in line for line in self.errors)

    @property
    def is_a_victim(self) -> bool:
        """Whether it ended because of another process."""
        return self.process.returncode == PEER_LOST or self.lost_its_coordinator

    @property
    def complaint(self) -> str:
        """Why it ended, in one line; everything that it said, if it did not put it in one."""
        code, said = self.process.returncode, "".join(self.errors)
        lines = [line for line in self.errors if line.startswith("Error: ")]
        if lines:
            return lines[-1].removeprefix("Error: ").strip()
        if self.lost_its_coordinator:
            return f"process {self.index} was ended by JAX, since process 0 was lost."
        if code < 0:
            return f"process {self.index} was killed by {signal.Signals(-code).name}."
        return f"process {self.index} ended with code {code}:\n{said}"


def free_port() -> int:
    """A port of this machine that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def run_workers(commands: Sequence[Sequence[str]], advice: str) -> int:
    """Run all commands at once and wait for them. The exit code is 0 if all of theirs are.

    Ctrl-C is passed on, so that workers can end in good order; a second one kills them.
    """
    workers = [_start(index, command, len(commands)) for index, command in enumerate(commands)]
    failed = None
    try:
        failed = _wait(workers)
    finally:
        for worker in workers:
            worker.process.kill()
            worker.process.wait()
        for reader in (reader for worker in workers for reader in worker.readers):
            reader.join(1.0)
    if failed is None:
        _print_warnings(workers[0])
        return 0
    code = failed.process.returncode
    was_lost = code < 0 or code == PEER_LOST
    more = f" {advice}" if was_lost and advice not in failed.complaint else ""
    print(f"Error: {failed.complaint}{more}", file=sys.stderr, flush=True)
    return PEER_LOST if was_lost else code


def _start(index: int, command: Sequence[str], n_workers: int) -> Worker:
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
    worker = Worker(index, process)
    worker.read_output()
    return worker


@contextlib.contextmanager
def _on_its_cores(index: int, n_workers: int) -> Iterator[None]:
    """What is started here runs on its share of this process's cores, where the system knows of that."""
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    if n_workers == 1 or len(cores) < n_workers:
        yield
        return
    os.sched_setaffinity(0, np.array_split(cores, n_workers)[index].tolist())
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


def _wait(workers: list[Worker]) -> Worker | None:
    """The worker that failed, when all have ended; when one has, the others do not get long."""
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
    return min(failed, key=lambda worker: worker.is_a_victim, default=None)


def _read(stream: IO[str] | None, take) -> None:
    for line in stream or ():
        take(line)


def _relay(line: str) -> None:
    if not _RUNTIME_TALK.match(line):
        print(line, end="", flush=True)


def _print_warnings(worker: Worker) -> None:
    for line in worker.errors:
        if not _RUNTIME_TALK.match(line):
            print(line, end="", file=sys.stderr, flush=True)
