"""One of several processes, as far as it can be tried in one."""

import os
import subprocess
import sys
import threading

import pytest

from srflvm.parallel import peers


@pytest.mark.skipif(not hasattr(os, "SCHED_BATCH"), reason="the system has no batch work")
def test_a_thread_and_those_it_starts_do_not_break_in():
    found = []

    def start_another():
        peers._do_not_preempt()
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
    """Start a thread that waits in epoll, as gloo's does, and one that waits for a lock."""
    code = """
import os, select, threading, time
from srflvm.parallel import peers
lock, epoll = threading.Lock(), select.epoll()
lock.acquire()
waiting = [threading.Thread(target=wait, daemon=True) for wait in (epoll.poll, lock.acquire)]
for thread in waiting:
    thread.start()
time.sleep(0.5)
peers._let_messages_wait()
print(*(os.getpriority(os.PRIO_PROCESS, thread.native_id) for thread in waiting), os.nice(0))
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["19", "0", "0"]
