"""What `srflvm fit` does, in this process or in workers.

Run as a program it is one worker: it takes the job as JSON.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from srflvm import launching
from srflvm.commands.speaking import Speaker
from srflvm.exceptions import EXPECTED
from srflvm.joining import PortTakenError
from srflvm.tables import Reading, ending, open_table
from srflvm.whole_files import check_target, whole_file

# A port that was free may be taken until process 0 listens on it.
_MOST_PORTS_TRIED = 5


@dataclass(frozen=True)
class Peers:
    """Where process 0 is, how many processes there are and which one this is; None asks the environment."""

    coordinator: str | None = None
    n_processes: int | None = None
    index: int | None = None
    timeout: float = 300.0
    connect_timeout: float = 60.0


@dataclass(frozen=True)
class Job:
    """A fit: the data, the file for the model, the parameters of the estimator, the likelihood of all columns
    and those of some, how to read and how to speak. All of it can be written as JSON."""

    data: str
    output: str
    parameters: dict[str, Any]
    likelihood: str = "gaussian"
    by_column: list[str] = field(default_factory=list)
    reading: dict[str, Any] = field(default_factory=dict)
    speaking: dict[str, bool] = field(default_factory=dict)

    @property
    def advice(self) -> str:
        folder = self.parameters.get("checkpoint_dir")
        if folder is None:
            return "There is no checkpoint; give --checkpoint-dir to have one."
        return (
            f"The checkpoint in {folder} is kept: run the same command again, with any --processes, to go on."
        )


def run(job: Job, peers: Peers, *, n_processes: int, distributed: bool, force: bool) -> int:
    """Fit in this process, in `n_processes` of this machine, or as a peer of processes that others start:
    those of a job of a cluster (`distributed`), or the given ones. The exit code."""
    given = [value is not None for value in (peers.coordinator, peers.n_processes, peers.index)]
    if (n_processes > 1) + distributed + any(given) > 1:
        raise ValueError("Give only one of --processes, --distributed and --coordinator.")
    if any(given) and not all(given):
        raise ValueError("--coordinator, --process-count and --process-index belong together.")
    ending(Path(job.data))
    check_target(Path(job.output), force=force)
    if n_processes > 1:
        return _run_here(job, n_processes, peers)
    if distributed or any(given):
        return launching.run_workers([_command(job, peers)], job.advice)
    return _fit(job)


def _run_here(job: Job, n_processes: int, limits: Peers) -> int:
    for _ in range(_MOST_PORTS_TRIED - 1):
        code = _run_on_a_free_port(job, n_processes, limits, launching.PORT_TAKEN)
        if code != launching.PORT_TAKEN:
            return code
    return _run_on_a_free_port(job, n_processes, limits, None)


def _run_on_a_free_port(job: Job, n_processes: int, limits: Peers, silent_code: int | None) -> int:
    here = replace(limits, coordinator=f"127.0.0.1:{launching.free_port()}", n_processes=n_processes)
    commands = [_command(job, replace(here, index=index)) for index in range(n_processes)]
    return launching.run_workers(commands, job.advice, silent_code=silent_code)


def _command(job: Job, peers: Peers) -> list[str]:
    # -P: a file such as queue.py in the working folder must not stand for a module of that name
    return [sys.executable, "-P", "-m", "srflvm.commands.fit", json.dumps([asdict(job), asdict(peers)])]


def _fit(job: Job) -> int:
    """Fit, and let the first process save; the exit code."""
    from srflvm import SRFLVM, parallel
    from srflvm.commands import columns, fitting

    speaker = Speaker(**job.speaking)
    table = open_table(Path(job.data), Reading(**job.reading))
    likelihood = columns.choice_for(table, job.likelihood, job.by_column)
    fitting.announce(job.data, table, likelihood, speaker)
    model = SRFLVM(**job.parameters, likelihood=likelihood)
    seconds = fitting.fit_table(model, table, speaker)
    if parallel.is_first():
        with whole_file(Path(job.output)) as temporary:
            model.save(temporary)
        facts = {"model": job.output, **fitting.facts_about(model, table, seconds)}
        speaker.result(
            f"{job.output}: bound per entry {facts['elbo_per_entry']:.4f} after {model.n_iter_} sweeps, "
            f"{seconds:.1f} s",
            facts,
        )
    return launching.INTERRUPTED if model.interrupted_ else 0


def _work(job: Job, peers: Peers) -> None:
    """Be one of several processes. One that was interrupted has saved, and has not failed."""
    from srflvm import parallel

    threading.Thread(target=_end_with_parent, daemon=True).start()
    parallel.start(
        peers.coordinator,
        peers.n_processes,
        peers.index,
        peer_timeout=peers.timeout,
        connect_timeout=peers.connect_timeout,
    )
    _fit(job)


def _end_with_parent() -> None:
    """Standard input ends when whoever started this worker is gone."""
    sys.stdin.read()
    os._exit(1)


def main(text: str) -> None:
    """Be a worker; errors are one line."""
    job, peers = json.loads(text)
    try:
        _work(Job(**job), Peers(**peers))
    except EXPECTED as error:
        print(f"Error: {' '.join(str(error).split()) or type(error).__name__}", file=sys.stderr, flush=True)
        sys.exit(launching.PORT_TAKEN if isinstance(error, PortTakenError) else 1)


if __name__ == "__main__":
    main(sys.argv[1])
