"""Watchdog: notices when another process of the same fit dies or gets stuck, and then ends this one.

A process that waits for a peer inside a collective operation cannot notice that the peer will never come. So
a thread of every process sends a line a second over a connection of its own, with a count of what the process
has done so far. Process 0 is in the middle: it hears all others, and they hear it. A connection that closes
means a process that died; one that falls silent means a process or a machine that was stopped; and where no
count rises for long, one is stuck. A death is known at once, silence within half a minute.

Slow is not stuck. The count rises with what the process reports, and with every second in which it computes,
so that compiling and factorising take as long as they take. Processes that all wait for each other without
computing will do so for ever: they get `peer_timeout` seconds. One that works by itself may also wait for
something else, such as a disk or a callback of the user's: it gets ten times as many.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import socket
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# The exit code of a process that the watchdog ends: "try again" in sysexits.h.
EXIT_CODE = 75

_SECONDS_BETWEEN_BEATS = 1.0
_SECONDS_OF_SILENCE = 30.0

# A process computes if it uses more than this share of a core. One that waits uses less than a hundredth.
_SHARE_OF_A_CORE = 0.05

# How many times `peer_timeout` a process may work by itself without computing.
_PATIENCE_WITH_OWN_WORK = 10.0

# Process 0 waits so long before it leaves, since JAX aborts the others as soon as it is gone.
_SECONDS_FOR_THE_LAST_WORD = 2.0

_SECONDS_TO_CONNECT = 60.0


@dataclass
class _Peer:
    """Hold what is known of another process, and the connection with it."""

    index: int
    connection: socket.socket
    heard: float = field(default_factory=time.monotonic)
    count: int = 0
    doing: str = ""
    is_waiting: bool = False
    unread: bytes = b""
    has_left: bool = False
    is_closed: bool = False

    def send(self, **message: Any) -> None:
        try:
            self.connection.sendall(json.dumps(message).encode() + b"\n")
        except OSError:
            self.is_closed = True

    def receive(self) -> list[dict[str, Any]]:
        """Return the messages that have arrived; call it when there is something to read."""
        try:
            content = self.connection.recv(65536)
        except OSError:
            content = b""
        if not content:
            self.is_closed = True
            return []
        self.heard = time.monotonic()
        *lines, self.unread = (self.unread + content).split(b"\n")
        return [json.loads(line) for line in lines]


class Watchdog:
    """Watch over the processes of a fit, as one of `n_processes` watchdogs that share a secret token.

    What the threads `message_threads` do is not counted as computing: they may poll while they wait.
    """

    def __init__(
        self,
        index: int,
        n_processes: int,
        peer_timeout: float,
        token: str,
        message_threads: Sequence[int] = (),
    ):
        self.index, self.n_processes, self.peer_timeout, self.token = index, n_processes, peer_timeout, token
        self.failed = False
        self._message_threads = message_threads
        self._peers: list[_Peer] = []
        self._count, self._doing, self._advice = 0, "", ""
        self._is_waiting = False
        self._n_busy_beats, self._told, self._told_waiting = 0, 0, False
        self._last_beat, self._seconds_computed = time.monotonic(), self._computed()
        self._last_progress = time.monotonic()
        self._is_over = threading.Event()
        self._failure: str | None = None

    def start(self, listener: socket.socket | None, addresses: list[str]) -> None:
        """Connect with the others, from the first of the addresses that answers, and begin to watch."""
        self._peers = self._accept(listener) if listener is not None else [self._connect(addresses)]
        self._thread = threading.Thread(target=self._watch, name="srflvm-watchdog", daemon=True)
        self._thread.start()

    @staticmethod
    def listen(coordinator: str | None) -> tuple[socket.socket, list[str]]:
        """Open a listening socket of process 0; return it with addresses under which others may find it."""
        listener = socket.create_server(("", 0))
        port = listener.getsockname()[1]
        name = socket.gethostname()
        hosts = (
            [coordinator.rpartition(":")[0]] if coordinator else [socket.getfqdn(), name, _own_address(name)]
        )
        return listener, [f"{host}:{port}" for host in dict.fromkeys(hosts)]

    def enter(self, advice: str) -> None:
        """Note that a fit begins; `advice` says what to do when a peer is lost."""
        self._advice = advice
        self.advance("beginning")

    def leave(self) -> None:
        """Note that a fit has ended."""
        self.advance("")

    def advance(self, doing: str) -> None:
        """Note that this process has got on and is now `doing` something, or nothing."""
        self._count, self._doing = self._count + 1, doing

    def set_waiting(self, is_waiting: bool) -> bool:
        """Set whether this process can only get on with the others from now on, and return what held before.

        Who has come to wait has got on: the count rises first, and `_beat` reads it last.
        """
        self._count += 1
        before, self._is_waiting = self._is_waiting, is_waiting
        return before

    def fail(self, reason: str) -> None:
        """Tell the others that this process cannot go on."""
        self.failed, self._failure = True, reason

    def wait_for_verdict(self, seconds: float) -> None:
        """Wait for the watchdog to end this process; return if it finds nothing wrong."""
        self._is_over.wait(seconds)

    def stop(self) -> None:
        """Leave without alarming the others."""
        self._is_over.set()
        self._thread.join(2 * _SECONDS_BETWEEN_BEATS)
        for peer in self._peers:
            peer.connection.close()

    def _accept(self, listener: socket.socket) -> list[_Peer]:
        listener.settimeout(_SECONDS_TO_CONNECT)
        peers: list[_Peer] = []
        with listener:
            while len(peers) < self.n_processes - 1:
                connection, _ = listener.accept()
                connection.settimeout(_SECONDS_TO_CONNECT)
                peer = _Peer(0, connection)
                greeting = (peer.receive() or [{}])[0]
                if greeting.get("token") == self.token:
                    peer.index = greeting["index"]
                    peers.append(peer)
                else:
                    connection.close()
        return peers

    def _connect(self, addresses: list[str]) -> _Peer:
        for address in addresses:
            host, _, port = address.rpartition(":")
            with contextlib.suppress(OSError):
                peer = _Peer(0, socket.create_connection((host, int(port)), _SECONDS_TO_CONNECT))
                peer.send(token=self.token, index=self.index)
                return peer
        raise ConnectionError(f"Process {self.index} cannot reach process 0 at {' or '.join(addresses)}.")

    def _watch(self) -> None:
        with selectors.DefaultSelector() as selector:
            for peer in self._peers:
                selector.register(peer.connection, selectors.EVENT_READ, peer)
            while not self._is_over.is_set():
                self._beat()
                self._listen(selector)
                verdict = self._verdict()
                if verdict is not None:
                    self._end(verdict)
            for peer in self._peers:
                peer.send(failed=self._failure) if self._failure else peer.send(bye=True)

    def _beat(self) -> None:
        self._note_computing()
        self._told_waiting = self._is_waiting
        count = self._count + self._n_busy_beats
        if count != self._told:
            self._told, self._last_progress = count, time.monotonic()
        for peer in self._peers:
            if self._failure:
                peer.send(failed=self._failure)
            else:
                peer.send(count=count, doing=self._doing, waiting=self._told_waiting)

    def _note_computing(self) -> None:
        """Count the time since the last beat, if this process has computed in it."""
        now, computed = time.monotonic(), self._computed()
        if computed - self._seconds_computed > _SHARE_OF_A_CORE * (now - self._last_beat):
            self._n_busy_beats += 1
        self._last_beat, self._seconds_computed = now, computed

    def _computed(self) -> float:
        """Return the seconds that cores have spent on this process."""
        return time.process_time() - sum(map(_seconds_of_thread, self._message_threads))

    def _listen(self, selector: selectors.BaseSelector) -> None:
        """Read for the time between two beats."""
        until = time.monotonic() + _SECONDS_BETWEEN_BEATS
        while (seconds := until - time.monotonic()) > 0 and selector.get_map() and not self._is_over.is_set():
            for key, _ in selector.select(min(seconds, 0.1)):
                peer: _Peer = key.data
                for message in peer.receive():
                    self._take(peer, message)
                if peer.is_closed:
                    selector.unregister(peer.connection)
                    return
        time.sleep(max(until - time.monotonic(), 0.0) if not selector.get_map() else 0.0)

    def _take(self, peer: _Peer, message: dict[str, Any]) -> None:
        if "end" in message:
            self._end(message["end"])
        elif "failed" in message:
            self._end(f"process {peer.index} failed ({message['failed']})")
        elif "bye" in message:
            peer.has_left = True
        else:
            if message["count"] != peer.count:
                self._last_progress = time.monotonic()
            peer.count, peer.doing = message["count"], message["doing"]
            peer.is_waiting = message["waiting"]

    def _verdict(self) -> str | None:
        """Return what is wrong, if anything is."""
        now = time.monotonic()
        for peer in self._peers:
            silence = now - peer.heard
            if peer.is_closed and not peer.has_left:
                return f"process {peer.index} was lost: it has ended, or its machine cannot be reached"
            if silence > _SECONDS_OF_SILENCE and not peer.has_left:
                return f"process {peer.index} is stopped or lost: nothing was heard of it for {silence:.0f} s"
        idle = now - self._last_progress
        if self.index == 0 and idle > self._patience() and (activities := self._activities()):
            return f"no process has got on for {idle:.0f} s ({activities}), so one of them is stuck"
        return None

    def _patience(self) -> float:
        """Return after how many seconds without progress of any process one of them is stuck."""
        all_wait = self._told_waiting and all(peer.is_waiting for peer in self._peers)
        return self.peer_timeout * (1.0 if all_wait else _PATIENCE_WITH_OWN_WORK)

    def _activities(self) -> str:
        """Return what everyone is doing, if anyone is at a fit."""
        doing = {self.index: self._doing} | {peer.index: peer.doing for peer in self._peers}
        listed = [f"process {index}: {text or 'not fitting'}" for index, text in sorted(doing.items())]
        return ", ".join(listed) if any(doing.values()) else ""

    def _end(self, verdict: str) -> None:
        if self._is_over.is_set() or self.failed:
            return
        if self.index == 0:
            for peer in self._peers:
                peer.send(end=verdict)
        text = f"Error: {verdict}. Process {self.index} ends too. {self._advice}"
        print(" ".join(text.split()), file=sys.stderr, flush=True)
        if self.index == 0:
            time.sleep(_SECONDS_FOR_THE_LAST_WORD)
        os._exit(EXIT_CODE)


def _seconds_of_thread(task: int) -> float:
    """Return the seconds that cores have spent on a thread, where the system tells."""
    with contextlib.suppress(OSError):
        fields = Path(f"/proc/self/task/{task}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return 0.0


def _own_address(name: str) -> str:
    try:
        return socket.gethostbyname(name)
    except OSError:
        return "127.0.0.1"
