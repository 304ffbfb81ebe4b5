"""Worker process of `srflvm fit`, started as `python -m srflvm.cli.worker JSON`.

The JSON holds a job and a connection.
"""

from __future__ import annotations

import json
import os
import sys
import threading

from srflvm import parallel
from srflvm.cli.fit import Connection, Job, fit_job
from srflvm.exceptions import EXPECTED
from srflvm.parallel import launcher
from srflvm.parallel.joining import PortTakenError


def _work(job: Job, connection: Connection) -> None:
    """Fit as one of several processes. One that was interrupted has saved, and has not failed."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    parallel.start(
        connection.coordinator,
        connection.n_processes,
        connection.index,
        peer_timeout=connection.timeout,
        connect_timeout=connection.connect_timeout,
    )
    fit_job(job)


def _end_with_parent() -> None:
    """End this process when its standard input ends, for then the process that started it is gone."""
    sys.stdin.read()
    os._exit(1)


def _main(text: str) -> None:
    """Work, and print errors in one line."""
    job, connection = json.loads(text)
    try:
        _work(Job(**job), Connection(**connection))
    except EXPECTED as error:
        print(f"Error: {' '.join(str(error).split()) or type(error).__name__}", file=sys.stderr, flush=True)
        sys.exit(launcher.PORT_TAKEN if isinstance(error, PortTakenError) else 1)


if __name__ == "__main__":
    _main(sys.argv[1])
