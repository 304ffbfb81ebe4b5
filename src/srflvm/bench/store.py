"""One row for every finished fit, so that an interrupted run goes on."""

from __future__ import annotations

import datetime
import hashlib
import json
import sqlite3
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from srflvm.bench.machine import machine
from srflvm.bench.tasks import Task


@dataclass(frozen=True)
class Outcome:
    """Scores and seconds of a fit and what it says of itself, or the last line of what went wrong; when and
    on what machine, with which versions."""

    scores: tuple[float, ...] = ()
    seconds: float = float("nan")
    failure: str = ""
    note: str = ""
    date: str = ""
    machine: str = ""


_FIELDS = tuple(field.name for field in fields(Outcome))
_VALUES = f"VALUES ({', '.join('?' * (1 + len(_FIELDS)))})"
_BETTER = (
    f"ON CONFLICT (task) DO UPDATE SET {', '.join(f'{name} = excluded.{name}' for name in _FIELDS)} "
    "WHERE fits.failure <> '' AND excluded.failure = ''"
)


class Store:
    """An SQLite file of outcomes, and a folder of arrays beside it. A row appears whole or not at all."""

    def __init__(self, path: Path) -> None:
        self._arrays = path.parent / f"{path.stem}-arrays"
        path.parent.mkdir(parents=True, exist_ok=True)
        self._connection = _opened(path)

    def get(self, task: Task) -> Outcome | None:
        """The outcome of a task, or None if it has not been run."""
        query = f"SELECT {', '.join(_FIELDS)} FROM fits WHERE task = ?"
        row = self._connection.execute(query, (task.key,)).fetchone()
        if row is None:
            return None
        seconds = float("nan") if row[1] is None else row[1]
        return Outcome(tuple(json.loads(row[0])), seconds, *row[2:])

    def put(self, task: Task, outcome: Outcome) -> None:
        """Keep an outcome, in place of an earlier one."""
        made = _without_nan(replace(outcome, date=_now(), machine=machine()))
        with self._connection:
            self._connection.execute(f"INSERT OR REPLACE INTO fits {_VALUES}", _row(task.key, made))

    def written(self, tasks: Iterable[Task]) -> str:
        """The outcomes of tasks as text, a line of JSON each."""
        lines = []
        for task in tasks:
            outcome = self.get(task)
            if outcome is not None:
                lines.append({"task": json.loads(task.key), **_without_nan(outcome)})
        return "".join(json.dumps(line, sort_keys=True) + "\n" for line in lines)

    def take_in(self, text: str) -> int:
        """Add outcomes that were written as text and are not here, or are failures here and none there; how
        many they are. They have no arrays."""
        rows = []
        for number, line in enumerate(text.splitlines(), start=1):
            try:
                known = json.loads(line)
                rows.append(_row(json.dumps(known["task"], sort_keys=True), known))
            except (ValueError, KeyError, TypeError) as error:
                raise ValueError(f"Line {number} is not the outcome of a fit ({error!r}).") from error
        with self._connection:
            added = self._connection.executemany(f"INSERT INTO fits {_VALUES} {_BETTER}", rows)
        return added.rowcount

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
            columns = ", ".join(f"{name} {'REAL' if name == 'seconds' else 'TEXT'}" for name in _FIELDS)
            connection.execute(f"CREATE TABLE IF NOT EXISTS fits (task TEXT PRIMARY KEY, {columns})")
            connection.execute(f"SELECT {', '.join(_FIELDS)} FROM fits LIMIT 1")
    except sqlite3.Error as error:
        raise OSError(
            f"{path} cannot be used as a file of finished fits ({error}): give another one by --store."
        ) from error
    return connection


def _row(key: str, outcome: dict[str, Any]) -> tuple[Any, ...]:
    return (key, json.dumps(outcome["scores"]), *(outcome[name] for name in _FIELDS[1:]))


def _without_nan(outcome: Outcome) -> dict[str, Any]:
    """The fields of an outcome; JSON has no NaN."""
    fields = asdict(outcome)
    return {**fields, "seconds": None} if outcome.failure else fields


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
