"""Processes, as far as one process can tell."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from srflvm import joining, launching, parallel, watchdog
from srflvm.commands import fit as fit_command


def test_one_process_exchanges_nothing():
    values = np.arange(4.0)
    assert parallel.n_processes() == 1
    assert parallel.process_index() == 0
    assert parallel.mesh() is None
    assert parallel.row_range(10, block=4) == (0, 10)
    assert parallel.from_first(values) is values
    assert parallel.gather(values) == [values]
    assert parallel.sum_over_processes(values)[0] is values
    assert parallel.anywhere(True, False) == (True, False)
    assert parallel.together(lambda: 3) == 3
    np.testing.assert_array_equal(parallel.fetch_rows(parallel.shard_rows(values)), values)
    with parallel.guarded(None):
        parallel.note("something")


@pytest.mark.parametrize("n_rows", [1, 7, 64, 1000, 1025])
@pytest.mark.parametrize(("n_processes", "block"), [(1, 5), (2, 1), (3, 16), (4, 64)])
def test_ranges_cover_all_rows_in_whole_blocks(monkeypatch, n_rows, n_processes, block):
    monkeypatch.setattr(parallel, "n_processes", lambda: n_processes)
    monkeypatch.setattr(parallel.jax, "device_count", lambda: n_processes)
    ranges = [parallel.row_range(n_rows, block, index) for index in range(n_processes)]
    rows = [row for start, stop in ranges for row in range(start, stop)]
    assert rows == list(range(n_rows))
    assert all(start % block == 0 or start == n_rows for start, _ in ranges)
    assert parallel.padded_rows(n_rows, block) % (block * n_processes) == 0
    assert 0 <= parallel.padded_rows(n_rows, block) - n_rows < block * n_processes


def worker(code):
    return [sys.executable, "-c", code]


def test_workers_that_end_well(capfd):
    code = "import sys; print('said'); print('[Gloo] talk'); print('warned', file=sys.stderr)"
    assert launching.run_workers([worker(code)], "advice") == 0
    said, warned = capfd.readouterr()
    assert (said, warned) == ("said\n", "warned\n")


def test_a_killed_worker_ends_the_others(capfd):
    victim = worker(f"import os; os.kill(os.getpid(), {int(signal.SIGKILL)})")
    patient = worker("import sys; print('Error: lost a peer', file=sys.stderr); sys.exit(75)")
    assert launching.run_workers([patient, victim], "Resume.") == watchdog.EXIT_CODE
    (line,) = capfd.readouterr().err.splitlines()
    assert line == "Error: process 1 was killed by SIGKILL. Resume."


def test_a_worker_that_hangs_is_killed(capfd, monkeypatch):
    monkeypatch.setattr(launching, "_SECONDS_TO_END", 0.2)
    failing = worker("import sys; print('Error: bad data', file=sys.stderr); sys.exit(1)")
    hanging = worker("import time; time.sleep(60)")
    began = time.monotonic()
    assert launching.run_workers([hanging, failing], "Resume.") == 1
    assert time.monotonic() - began < 20
    assert capfd.readouterr().err == "Error: bad data\n"


def test_a_defect_shows_its_traceback(capfd):
    assert launching.run_workers([worker("1 / 0")], "Resume.") == 1
    assert "ZeroDivisionError" in capfd.readouterr().err


def test_an_abort_by_the_runtime_is_explained(capfd):
    said = f"F1116 05:17:53.529181 25853 client.h:80] {launching._ENDED_BY_JAX}"
    code = f"import os, sys; print({said!r}, file=sys.stderr, flush=True); os.abort()"
    assert launching.run_workers([worker(code)], "Resume.") == watchdog.EXIT_CODE
    (line,) = capfd.readouterr().err.splitlines()
    assert line == "Error: process 0 was ended by JAX: a peer was lost, or did not answer in time. Resume."


def test_ctrl_c_is_passed_on_and_told_by_the_exit_code(tmp_path, monkeypatch):
    ready, ended = tmp_path / "ready", tmp_path / "ended"
    code = (
        "import pathlib, time\ntry:\n"
        f"    pathlib.Path({str(ready)!r}).touch(); time.sleep(60)\n"
        f"except KeyboardInterrupt:\n    pathlib.Path({str(ended)!r}).touch()"
    )
    pressed = []

    def press_once(seconds, sleep=time.sleep):
        if ready.exists() and not pressed:
            pressed.append(True)
            raise KeyboardInterrupt
        sleep(seconds)

    monkeypatch.setattr(launching.time, "sleep", press_once)
    assert launching.run_workers([worker(code)], "") == launching.INTERRUPTED
    assert ended.exists()


@pytest.fixture
def taken():
    """The address of a port that another program listens on."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


def start_alone(*arguments, **options):
    """Another process that starts as one of two, and does not get its peer."""
    code = f"from srflvm import parallel\nparallel.start(*{arguments!r}, **{options!r})"
    return subprocess.run(worker(code), capture_output=True, text=True, timeout=60)


def test_a_port_that_is_taken_is_refused_by_name(taken):
    found = start_alone(taken, 2, 0)
    assert found.returncode == 1
    assert f"cannot listen on the port of the coordinator {taken}" in found.stderr.splitlines()[-1]


def test_an_address_where_nobody_answers_is_named_in_time():
    nowhere = f"127.0.0.1:{launching.free_port()}"
    began = time.monotonic()
    found = start_alone(nowhere, 2, 1, connect_timeout=2.0)
    assert time.monotonic() - began < 30
    assert found.returncode == 1
    last = found.stderr.splitlines()[-1]
    assert last.startswith(f"ConnectionError: Process 1 cannot reach process 0 at {nowhere}")
    assert "within 2 s" in last


def test_process_0_does_not_wait_for_ever_for_the_others():
    here = f"127.0.0.1:{launching.free_port()}"
    found = start_alone(here, 2, 0, connect_timeout=1.0)
    assert found.returncode == 1
    (line,) = (line for line in found.stderr.splitlines() if line.startswith("Error: "))
    assert f"not all processes have met at {here} within 1 s" in line


def test_whoever_waits_says_for_what_and_goes_on_when_it_comes(monkeypatch, capfd):
    monkeypatch.setattr(joining, "_SECONDS_BEFORE_A_NOTICE", 0.1)
    port = launching.free_port()
    address = f"127.0.0.1:{port}"
    servers = []
    later = threading.Timer(0.8, lambda: servers.append(socket.create_server(("127.0.0.1", port))))
    later.start()
    joining.wait_for_first(address, 3, 20.0)
    later.join()
    servers[0].close()
    assert (
        capfd.readouterr().err
        == f"Note: process 3 waits for process 0 at {address} and gives up after 20 s.\n"
    )


@pytest.mark.parametrize("address", ["host", "host:", ":55527", "host:port", "host:70000"])
def test_an_address_without_a_port_is_refused(address):
    with pytest.raises(ValueError, match="not of the form host:port"):
        joining.split_address(address)


def test_notices_of_workers_are_shown_at_once(capfd, tmp_path):
    gate = tmp_path / "shown"
    code = (
        "import pathlib, sys, time\nprint('Note: waits', file=sys.stderr, flush=True)\n"
        f"while not pathlib.Path({str(gate)!r}).exists():\n    time.sleep(0.02)"
    )
    shown = []

    def watch():
        while not shown:
            time.sleep(0.05)
            shown.extend(capfd.readouterr().err.splitlines())
        gate.touch()

    watching = threading.Thread(target=watch)
    watching.start()
    assert launching.run_workers([worker(code)], "") == 0
    watching.join()
    assert shown == ["Note: waits"]


def test_a_port_refused_inside_jax_is_named(capfd):
    said = "E1118 01:48:26 add_port.cc:83] Failed to add port to server: No address added for '[::]:23453'"
    code = f"import os, sys; print({said!r}, file=sys.stderr, flush=True); os.kill(os.getpid(), 11)"
    assert launching.run_workers([worker(code)], "") == watchdog.EXIT_CODE
    assert "process 0 cannot listen on [::]:23453" in capfd.readouterr().err


def test_processes_of_this_machine_try_another_port(taken, monkeypatch, capfd):
    """The first port that is taken for free is in use when process 0 comes to listen on it."""
    free = launching.free_port()
    ports = [int(taken.rpartition(":")[2]), free]
    monkeypatch.setattr(launching, "free_port", lambda: ports.pop(0))
    monkeypatch.setattr(launching, "_SECONDS_TO_END", 0.5)

    def command(job, peers):
        if peers.index > 0:
            return worker("")
        said = f"print('listens on', {peers.coordinator!r})"
        return worker(
            f"import sys\nfrom srflvm import joining\ntry:\n    joining.check_port({peers.coordinator!r})\n"
            f"except joining.PortTakenError:\n    sys.exit({launching.PORT_TAKEN})\n{said}"
        )

    monkeypatch.setattr(fit_command, "_command", command)
    job = fit_command.Job("rows.npy", "model.srflvm", {})
    assert fit_command._run_here(job, 2, fit_command.Peers()) == 0
    assert capfd.readouterr() == (f"listens on 127.0.0.1:{free}\n", "")


@pytest.mark.skipif(not hasattr(os, "SCHED_BATCH"), reason="the system has no batch work")
def test_a_thread_and_those_it_starts_do_not_break_in():
    found = []

    def start_another():
        parallel._do_not_preempt()
        inner = threading.Thread(target=lambda: found.append(os.sched_getscheduler(0)))
        inner.start()
        inner.join()

    outer = threading.Thread(target=start_another)
    outer.start()
    outer.join()
    assert found == [os.SCHED_BATCH]
    assert os.sched_getscheduler(0) == os.SCHED_OTHER


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not tell what threads wait for")
def test_threads_that_wait_for_messages_come_last():
    """One that waits in epoll, as gloo's does, and one that waits for a lock."""
    code = """
import os, select, threading, time
from srflvm import parallel
lock, epoll = threading.Lock(), select.epoll()
lock.acquire()
waiting = [threading.Thread(target=wait, daemon=True) for wait in (epoll.poll, lock.acquire)]
for thread in waiting:
    thread.start()
time.sleep(0.5)
parallel._let_messages_wait()
print(*(os.getpriority(os.PRIO_PROCESS, thread.native_id) for thread in waiting), os.nice(0))
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["19", "0", "0"]


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="the system does not pin processes")
def test_workers_share_the_cores(capfd):
    cores = os.sched_getaffinity(0)
    n_workers = min(len(cores), 2)
    code = "import os; print(*sorted(os.sched_getaffinity(0)))"
    assert launching.run_workers([worker(code)] * n_workers, "") == 0
    lines = capfd.readouterr().out.splitlines()
    assert sorted(int(core) for line in lines for core in line.split()) == sorted(cores)
    assert os.sched_getaffinity(0) == cores


@pytest.fixture
def watched(monkeypatch):
    """The hub of two watchdogs and the connection of the other one; verdicts are noted, not carried out."""
    monkeypatch.setattr(watchdog, "_SECONDS_BETWEEN_BEATS", 0.02)
    monkeypatch.setattr(watchdog, "_SECONDS_OF_SILENCE", 0.5)
    # beats that follow each other so fast are work themselves
    monkeypatch.setattr(watchdog, "_SHARE_OF_A_CORE", 0.3)
    verdicts = []

    def end(self, verdict):
        verdicts.append(verdict)
        self._is_over.set()

    monkeypatch.setattr(watchdog.Watchdog, "_end", end)
    hub = watchdog.Watchdog(0, 2, peer_timeout=1.0, token="secret")
    listener, addresses = watchdog.open_listener("127.0.0.1:1")
    stranger = watchdog._Peer(1, socket.create_connection(listener.getsockname()[:2]))
    stranger.send(token="guessed", index=1)
    host, _, port = addresses[0].rpartition(":")
    other = watchdog._Peer(1, socket.create_connection((host, int(port))))
    other.send(token="secret", index=1)
    hub.start(listener, addresses)
    yield hub, other, verdicts
    hub.stop()
    other.connection.close()
    stranger.connection.close()


def wait_for(verdicts, seconds=5.0):
    until = time.monotonic() + seconds
    while not verdicts and time.monotonic() < until:
        time.sleep(0.02)
    return verdicts[0] if verdicts else None


def beat_until(stop, other, rising, waiting):
    count = 0
    while not stop.wait(0.05):
        count += rising
        other.send(count=count, doing=f"sweep {count}", waiting=waiting)


def verdict_while_beating(hub, other, verdicts, seconds, *, rising=False, waiting=True, meanwhile=time.sleep):
    """What the hub says within some seconds in which the other process beats and this one does something."""
    stop = threading.Event()
    beating = threading.Thread(target=beat_until, args=(stop, other, rising, waiting))
    beating.start()
    meanwhile(seconds)
    stop.set()
    beating.join()
    return verdicts[0] if verdicts else None


def test_a_closed_connection_is_a_lost_process(watched):
    _, other, verdicts = watched
    other.connection.close()
    assert "process 1 was lost" in wait_for(verdicts)


def test_silence_is_noticed(watched):
    _, _, verdicts = watched
    assert "nothing was heard of it" in wait_for(verdicts)


@pytest.mark.parametrize("rising", [True, False])
def test_only_lack_of_progress_is_stuck(watched, rising):
    hub, other, verdicts = watched
    hub.enter("")
    hub.set_waiting(True)
    verdict = verdict_while_beating(hub, other, verdicts, 2.0, rising=rising)
    if rising:
        assert verdict is None
    else:
        assert "(process 0: beginning, process 1: sweep 0)" in verdict


def test_a_process_that_works_by_itself_gets_longer(watched, monkeypatch):
    hub, other, verdicts = watched
    hub.enter("")
    hub.set_waiting(True)
    assert verdict_while_beating(hub, other, verdicts, 2.0, waiting=False) is None
    monkeypatch.setattr(watchdog, "_PATIENCE_WITH_OWN_WORK", 2.0)
    assert "is stuck" in verdict_while_beating(hub, other, verdicts, 1.0, waiting=False)


def test_whoever_comes_to_wait_has_got_on(watched):
    """The time that work of its own took is not counted as waiting."""
    hub, other, verdicts = watched
    hub.enter("")
    assert verdict_while_beating(hub, other, verdicts, 1.5) is None
    hub.set_waiting(True)
    assert verdict_while_beating(hub, other, verdicts, 0.5) is None
    assert "is stuck" in verdict_while_beating(hub, other, verdicts, 1.0)


def test_a_process_that_computes_is_not_stuck(watched):
    hub, other, verdicts = watched
    hub.enter("")
    hub.set_waiting(True)

    def compute(seconds):
        until, matrix = time.monotonic() + seconds, np.ones((200, 200))
        while time.monotonic() < until:
            matrix @ matrix

    assert verdict_while_beating(hub, other, verdicts, 2.0, meanwhile=compute) is None


def test_a_goodbye_is_no_loss(watched):
    _, other, verdicts = watched
    other.send(bye=True)
    time.sleep(0.1)
    other.connection.close()
    assert wait_for(verdicts, 1.0) is None


def test_a_failure_is_told(watched):
    _, other, verdicts = watched
    other.send(failed="MemoryError: too much")
    assert wait_for(verdicts) == "process 1 failed (MemoryError: too much)"
