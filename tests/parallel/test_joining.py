"""Processes that look for each other and do not meet."""

import socket
import subprocess
import sys
import threading
import time

import pytest

from srflvm.parallel import joining, launcher


@pytest.fixture
def taken():
    """Yield the address of a port that another program listens on."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


def start_alone(*arguments, **options):
    """Start another process as one of two, of which it is the only one that comes."""
    code = f"from srflvm import parallel\nparallel.start(*{arguments!r}, **{options!r})"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)


def test_a_port_that_is_taken_is_refused_by_name(taken):
    found = start_alone(taken, 2, 0)
    assert found.returncode == 1
    assert f"cannot listen on the port of the coordinator {taken}" in found.stderr.splitlines()[-1]


def test_an_address_where_nobody_answers_is_named_in_time():
    nowhere = f"127.0.0.1:{launcher.free_port()}"
    began = time.monotonic()
    found = start_alone(nowhere, 2, 1, connect_timeout=2.0)
    assert time.monotonic() - began < 30
    assert found.returncode == 1
    last = found.stderr.splitlines()[-1]
    assert last.startswith(f"ConnectionError: Process 1 cannot reach process 0 at {nowhere}")
    assert "within 2 s" in last


def test_process_0_does_not_wait_for_ever_for_the_others():
    here = f"127.0.0.1:{launcher.free_port()}"
    found = start_alone(here, 2, 0, connect_timeout=1.0)
    assert found.returncode == 1
    (line,) = (line for line in found.stderr.splitlines() if line.startswith("Error: "))
    assert f"not all processes have met at {here} within 1 s" in line


def test_whoever_waits_says_for_what_and_goes_on_when_it_comes(monkeypatch, capfd):
    monkeypatch.setattr(joining, "_SECONDS_BEFORE_A_NOTICE", 0.1)
    port = launcher.free_port()
    address = f"127.0.0.1:{port}"
    servers = []
    later = threading.Timer(0.8, lambda: servers.append(socket.create_server(("127.0.0.1", port))))
    later.start()
    joining._wait_for_first(address, 3, 20.0)
    later.join()
    servers[0].close()
    assert (
        capfd.readouterr().err
        == f"Note: process 3 waits for process 0 at {address} and gives up after 20 s.\n"
    )


@pytest.mark.parametrize("address", ["host", "host:", ":55527", "host:port", "host:70000"])
def test_an_address_without_a_port_is_refused(address):
    with pytest.raises(ValueError, match="not of the form host:port"):
        joining._split_address(address)
