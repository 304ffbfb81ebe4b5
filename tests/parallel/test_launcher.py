"""Processes on this machine: what they say, and how they end together."""

import os
import signal
import socket
import sys
import threading
import time

import pytest

from srflvm.cli import fit as fit_command
from srflvm.parallel import launcher, watchdog


def worker(code):
    return [sys.executable, "-c", code]


def test_workers_that_end_well(capfd):
    code = "import sys; print('said'); print('[Gloo] talk'); print('warned', file=sys.stderr)"
    assert launcher.run_workers([worker(code)], "advice") == 0
    said, warned = capfd.readouterr()
    assert (said, warned) == ("said\n", "warned\n")


def test_a_killed_worker_ends_the_others(capfd):
    victim = worker(f"import os; os.kill(os.getpid(), {int(signal.SIGKILL)})")
    patient = worker("import sys; print('Error: lost a peer', file=sys.stderr); sys.exit(75)")
    assert launcher.run_workers([patient, victim], "Resume.") == watchdog.EXIT_CODE
    (line,) = capfd.readouterr().err.splitlines()
    assert line == "Error: process 1 was killed by SIGKILL. Resume."


def test_a_worker_that_hangs_is_killed(capfd, monkeypatch):
    monkeypatch.setattr(launcher, "_SECONDS_TO_END", 0.2)
    failing = worker("import sys; print('Error: bad data', file=sys.stderr); sys.exit(1)")
    hanging = worker("import time; time.sleep(60)")
    began = time.monotonic()
    assert launcher.run_workers([hanging, failing], "Resume.") == 1
    assert time.monotonic() - began < 20
    assert capfd.readouterr().err == "Error: bad data\n"


def test_a_defect_shows_its_traceback(capfd):
    assert launcher.run_workers([worker("1 / 0")], "Resume.") == 1
    assert "ZeroDivisionError" in capfd.readouterr().err


def test_an_abort_by_the_runtime_is_explained(capfd):
    said = f"F1116 05:17:53.529181 25853 client.h:80] {launcher._ENDED_BY_JAX}"
    code = f"import os, sys; print({said!r}, file=sys.stderr, flush=True); os.abort()"
    assert launcher.run_workers([worker(code)], "Resume.") == watchdog.EXIT_CODE
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

    monkeypatch.setattr(launcher.time, "sleep", press_once)
    assert launcher.run_workers([worker(code)], "") == launcher.INTERRUPTED
    assert ended.exists()


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
    assert launcher.run_workers([worker(code)], "") == 0
    watching.join()
    assert shown == ["Note: waits"]


def test_a_port_refused_inside_jax_is_named(capfd):
    said = "E1118 01:48:26 add_port.cc:83] Failed to add port to server: No address added for '[::]:23453'"
    code = f"import os, sys; print({said!r}, file=sys.stderr, flush=True); os.kill(os.getpid(), 11)"
    assert launcher.run_workers([worker(code)], "") == watchdog.EXIT_CODE
    assert "process 0 cannot listen on [::]:23453" in capfd.readouterr().err


def test_processes_of_this_machine_try_another_port(monkeypatch, capfd):
    """Process 0 comes to listen on a port that was free, and in the meantime it is in use."""
    free = launcher.free_port()

    def command(job, connection):
        if connection.index > 0:
            return worker("")
        return worker(
            "import sys\nfrom srflvm.parallel import joining\n"
            f"try:\n    joining._check_port({connection.coordinator!r})\n"
            f"except joining.PortTakenError:\n    sys.exit({launcher.PORT_TAKEN})\n"
            f"print('listens on', {connection.coordinator!r})"
        )

    monkeypatch.setattr(fit_command, "_command", command)
    monkeypatch.setattr(launcher, "_SECONDS_TO_END", 0.5)
    job = fit_command.Job("rows.npy", "model.srflvm", {})
    with socket.create_server(("127.0.0.1", 0)) as other_program:
        ports = [other_program.getsockname()[1], free]
        monkeypatch.setattr(launcher, "free_port", lambda: ports.pop(0))
        assert fit_command._run_here(job, 2, fit_command.Connection()) == 0
    assert capfd.readouterr() == (f"listens on 127.0.0.1:{free}\n", "")


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="the system does not pin processes")
def test_workers_share_the_cores(capfd):
    cores = os.sched_getaffinity(0)
    n_workers = min(len(cores), 2)
    code = "import os; print(*sorted(os.sched_getaffinity(0)))"
    assert launcher.run_workers([worker(code)] * n_workers, "") == 0
    lines = capfd.readouterr().out.splitlines()
    assert sorted(int(core) for line in lines for core in line.split()) == sorted(cores)
    assert os.sched_getaffinity(0) == cores
