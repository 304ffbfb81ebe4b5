"""Runner of fits: each in a process of its own, with a budget of seconds."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from srflvm_bench.store import Outcome, Store
from srflvm_bench.tasks import Task


def run(
    tasks: Sequence[Task],
    store: Store,
    *,
    budget: float,
    total: float = float("inf"),
    retry: bool = False,
    with_arrays: bool = False,
    console: Console | None = None,
) -> None:
    """Run the tasks that are not in the store.

    After `total` seconds no further fit is begun, and a fit that this limit cuts short is not recorded.
    `retry` repeats failures. `with_arrays` also repeats fits of which the store has scores and no arrays;
    should they fail, the scores are kept.
    """
    ends = time.monotonic() + total
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        bar = progress.add_task("fits", total=len(tasks))
        for task in tasks:
            progress.update(bar, description=f"{task.data}, {task.system}, seed {task.seed}")
            known = store.get(task)
            left = min(budget, ends - time.monotonic())
            is_due = known is None or (
                retry if known.failure else with_arrays and not store.array_file(task).exists()
            )
            if is_due and left >= 1.0:
                outcome = fit(task, left, store.array_file(task))
                if outcome.failure and left < budget and time.monotonic() >= ends:
                    continue
                if known is None or known.failure or not outcome.failure:
                    store.put(task, outcome)
                progress.console.print(_describe(task, outcome), markup=False)
            progress.advance(bar)


def fit(task: Task, budget: float, array_file: Path) -> Outcome:
    """Run one task and return its outcome, which may be a failure."""
    # -P: a file such as queue.py in the working folder must not replace a module of that name
    module = [sys.executable, "-P", "-m", "srflvm_bench.worker"]
    command = [*module, json.dumps(asdict(task)), str(array_file)]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        out, err = process.communicate(timeout=budget)
    except subprocess.TimeoutExpired:
        _end(process)
        return Outcome(failure=f"over the budget of {budget:.0f} s")
    except BaseException:
        _end(process)
        raise
    if process.returncode < 0:
        return Outcome(failure=f"killed by {signal.Signals(-process.returncode).name}")
    if process.returncode:
        return Outcome(failure=_last_line(err) or f"ended with code {process.returncode}")
    return _parse(out)


def _parse(out: str) -> Outcome:
    """Read the outcome from the last line that a worker has printed."""
    try:
        result = json.loads(_last_line(out))
        return Outcome(tuple(result["scores"]), float(result["seconds"]), note=result["note"])
    except (ValueError, KeyError, TypeError):
        return Outcome(failure=f"no result, but: {_last_line(out)[:200]}")


def _end(process: subprocess.Popen[str]) -> None:
    """End the process and all processes that it has started, which are in a group of their own."""
    if sys.platform == "win32":
        process.kill()
    else:
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else ""


def _describe(task: Task, outcome: Outcome) -> str:
    """Return a line about a finished task."""
    name = f"{task.data}, {task.system}, seed {task.seed}" + (f", {task.share:.0%}" if task.share else "")
    if outcome.failure:
        return f"{name}: failed: {outcome.failure}"
    return f"{name}: {', '.join(f'{score:.4f}' for score in outcome.scores)}, {outcome.seconds:.1f} s"
