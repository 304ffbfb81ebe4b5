"""Watchdogs of two processes, one of which is a plain connection."""

import socket
import threading
import time

import numpy as np
import pytest

from srflvm.parallel import watchdog


@pytest.fixture
def watched(monkeypatch):
    """Yield the hub of two watchdogs, the connection of the other one, and a list of verdicts."""
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
    listener, addresses = watchdog.Watchdog.listen("127.0.0.1:1")
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
    """Return the verdict of the hub while the other process beats and this one does something."""
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
