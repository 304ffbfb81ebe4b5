"""One row for every finished fit, so that an interrupted run goes on."""

from __future__ import annotations

import datetime
import hashlib
import json
import sqlite3
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from srflvm.bench.tasks import Task


@dataclass(frozen=True)
class Outcome:
    """Scores and seconds of a fit, or the last line of what went wrong."""

    scores: tuple[float, ...] = ()
    seconds: float = float("nan")
    failure: str = ""
    date: str = ""


class Store:
    """An SQLite file of outcomes, and a folder of arrays beside it. A row appears whole or not at all."""

    def __init__(self, path: Path) -> None:
        self._arrays = path.parent / f"{path.stem}-arrays"
        path.parent.mkdir(parents=True, exist_ok=True)
        self._connection = _opened(path)

    def get(self, task: Task) -> Outcome | None:
        """The outcome of a task, or None if it has not been run."""
        query = "SELECT scores, seconds, failure, date FROM fits WHERE task = ?"
        row = self._connection.execute(query, (task.key,)).fetchone()
        if row is None:
            return None
        seconds = float("nan") if row[1] is None else row[1]
        return Outcome(tuple(json.loads(row[0])), seconds, row[2], row[3])

    def put(self, task: Task, outcome: Outcome) -> None:
        """Keep an outcome, in place of an earlier one."""
        values = (task.key, json.dumps(outcome.scores), outcome.seconds, outcome.failure, _now())
        with self._connection:
            self._connection.execute("INSERT OR REPLACE INTO fits VALUES (?, ?, ?, ?, ?)", values)

    def array_file(self, task: Task) -> Path:
        """Where the arrays of a task are, if it has any."""
        return self._arrays / f"{hashlib.sha256(task.key.encode()).hexdigest()[:16]}.npz"

    def arrays(self, task: Task) -> dict[str, Any]:
        """The arrays of a task; nothing if it has not been run, or failed."""
        path, outcome = self.array_file(task), self.get(task)
        if outcome is None or outcome.failure or not path.exists():
            return {}
        with np.load(path) as file:
            return dict(file)

    def close(self) -> None:
        self._connection.close()


def _opened(path: Path) -> sqlite3.Connection:
    try:
        connection = sqlite3.connect(path)
        with connection:
            connection.execute(
                "CREATE TABLE IF NOT EXISTS fits "
                "(task TEXT PRIMARY KEY, scores TEXT, seconds REAL, failure TEXT, date TEXT)"
            )
    except sqlite3.Error as error:
        raise OSError(
            f"{path} cannot be used as a file of finished fits ({error}): give another one by --store."
        ) from error
    return connection


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
