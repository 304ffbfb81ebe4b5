"""Meeting of the processes of a fit: they wait for each other before JAX's runtime is asked to join them.

That runtime dies with a stack trace, or a segmentation fault, where its port is taken or its peers do not
come, and it is silent until then. So process 0 tries its port first, the others try to reach it, and whoever
waits for long says for what.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import threading
import time
from collections.abc import Iterator

# Lines for the user that cannot wait for the end of a process begin so.
NOTICE = "Note: "

_SECONDS_BEFORE_A_NOTICE = 5.0
_SECONDS_BETWEEN_ATTEMPTS = 0.5
_SECONDS_OF_AN_ATTEMPT = 5.0


class PortTakenError(OSError):
    """Report that another program listens on the port that process 0 was given."""


def _split_address(coordinator: str) -> tuple[str, int]:
    """Return the host and the port of "host:port"."""
    host, _, port = coordinator.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ValueError(
            f"The coordinator {coordinator!r} is not of the form host:port. Give the host of process 0 and a "
            "port that is free there, such as first-host:55527."
        )
    return host.strip("[]"), int(port)


def _check_port(coordinator: str) -> None:
    """Refuse a port of this machine that process 0 cannot listen on."""
    _, port = _split_address(coordinator)
    both = socket.has_dualstack_ipv6()
    family, host = (socket.AF_INET6, "::") if both else (socket.AF_INET, "")
    try:
        socket.create_server((host, port), family=family, dualstack_ipv6=both).close()
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise PortTakenError(
            f"Process 0 cannot listen on the port of the coordinator {coordinator} ({reason}): "
            "another program, or an earlier fit, may still use it. Give all processes another port that is "
            "free on the machine of process 0."
        ) from error


def _wait_for_first(coordinator: str, index: int, seconds: float) -> None:
    """Return as soon as process 0 listens at its address; say after some seconds that this is waited for."""
    address = _split_address(coordinator)
    until, reason = time.monotonic() + seconds, ""
    with _notice(f"process {index} waits for process 0 at {coordinator} and gives up after {seconds:g} s."):
        while (left := until - time.monotonic()) > 0:
            try:
                socket.create_connection(address, min(left, _SECONDS_OF_AN_ATTEMPT)).close()
                return
            except OSError as error:
                reason = error.strerror or str(error)
            time.sleep(min(_SECONDS_BETWEEN_ATTEMPTS, max(until - time.monotonic(), 0.0)))
    raise ConnectionError(
        f"Process {index} cannot reach process 0 at {coordinator}: nothing answered within {seconds:g} s "
        f"({reason}). Check the address, and that process 0 runs there. If it starts later, wait longer with "
        "connect_timeout (--connect-timeout)."
    )


@contextlib.contextmanager
def meeting(coordinator: str | None, index: int | None, seconds: float) -> Iterator[None]:
    """Let processes meet within some seconds; process 0 tries its port first, the others reach out for it."""
    if coordinator is not None and index is not None:
        if index == 0:
            _check_port(coordinator)
        else:
            _wait_for_first(coordinator, index, seconds)
    with _limited_wait(coordinator, index, seconds):
        yield


@contextlib.contextmanager
def _limited_wait(coordinator: str | None, index: int | None, seconds: float) -> Iterator[None]:
    """End this process, in one line, if the work in which processes meet takes longer.

    JAX would abort it a little later, and no error can be raised while it waits.
    """
    who = "this process" if index is None else f"process {index}"
    where = "" if coordinator is None else f" at {coordinator}"
    joined = threading.Event()

    def give_up() -> None:
        if not joined.wait(seconds):
            print(
                f"Error: not all processes have met{where} within {seconds:g} s. Check that all of them run, "
                "with the same coordinator and number of processes. If some start later, wait longer with "
                "connect_timeout (--connect-timeout).",
                file=sys.stderr,
                flush=True,
            )
            os._exit(1)

    with _notice(f"{who} waits for the other processes to join{where} and gives up after {seconds:g} s."):
        threading.Thread(target=give_up, daemon=True).start()
        try:
            yield
        finally:
            joined.set()


@contextlib.contextmanager
def _notice(text: str) -> Iterator[None]:
    """Say what is waited for, if it takes some seconds."""
    timer = threading.Timer(
        _SECONDS_BEFORE_A_NOTICE, lambda: print(f"{NOTICE}{text}", file=sys.stderr, flush=True)
    )
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
