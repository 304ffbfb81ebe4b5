"""Store of finished fits, from which an interrupted run goes on."""

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

from srflvm_bench.machine import machine
from srflvm_bench.tasks import Task, current_key


@dataclass(frozen=True)
class Outcome:
    """Scores and seconds of a fit, or the last line of its error, with the date, machine and versions.

    `note` holds what the system reports about its fit, such as the diagnostics of a chain.
    """

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
    """SQLite file of outcomes, and a folder of arrays beside it. A row appears whole or not at all."""

    def __init__(self, path: Path) -> None:
        self._arrays = path.parent / f"{path.stem}-arrays"
        path.parent.mkdir(parents=True, exist_ok=True)
        self._connection = _connect(path)
        self._adopt_earlier_keys()

    def _adopt_earlier_keys(self) -> None:
        """Rename rows and arrays whose keys an earlier version has written."""
        keys = [key for (key,) in self._connection.execute("SELECT task FROM fits")]
        renamed = [(key, current_key(key)) for key in keys if current_key(key) != key]
        for key, current in renamed:
            before, after = self._array_file(key), self._array_file(current)
            if before.exists() and not after.exists():
                before.replace(after)
        with self._connection:
            update = "UPDATE OR IGNORE fits SET task = ? WHERE task = ?"
            self._connection.executemany(update, [(current, key) for key, current in renamed])

    def get(self, task: Task) -> Outcome | None:
        """Return the outcome of a task, or None if it has not been run."""
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

    def to_jsonl(self, tasks: Iterable[Task]) -> str:
        """Return the outcomes of tasks as text, one line of JSON each."""
        lines = []
        for task in tasks:
            outcome = self.get(task)
            if outcome is not None:
                lines.append({"task": json.loads(task.key), **_without_nan(outcome)})
        return "".join(json.dumps(line, sort_keys=True) + "\n" for line in lines)

    def add_jsonl(self, text: str) -> int:
        """Add outcomes written by `to_jsonl`, and return how many were added.

        An outcome replaces another one only if it is no failure and the other one is. Arrays are not added.
        """
        rows = []
        for number, line in enumerate(text.splitlines(), start=1):
            try:
                known = json.loads(line)
                rows.append(_row(current_key(json.dumps(known["task"], sort_keys=True)), known))
            except (ValueError, KeyError, TypeError) as error:
                raise ValueError(f"Line {number} is not the outcome of a fit ({error!r}).") from error
        with self._connection:
            added = self._connection.executemany(f"INSERT INTO fits {_VALUES} {_BETTER}", rows)
        return added.rowcount

    def array_file(self, task: Task) -> Path:
        """Return the file for the arrays of a task, which may not exist."""
        return self._array_file(task.key)

    def _array_file(self, key: str) -> Path:
        return self._arrays / f"{hashlib.sha256(key.encode()).hexdigest()[:16]}.npz"

    def arrays(self, task: Task) -> dict[str, Any]:
        """Return the arrays of a task, none if it has not been run or has failed."""
        path, outcome = self.array_file(task), self.get(task)
        if outcome is None or outcome.failure or not path.exists():
            return {}
        with np.load(path) as file:
            return dict(file)

    def close(self) -> None:
        """Close the file."""
        self._connection.close()


def _connect(path: Path) -> sqlite3.Connection:
    """Open the file, and create the table of fits if it is new."""
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
    """Return the values of a row of the table."""
    return (key, json.dumps(outcome["scores"]), *(outcome[name] for name in _FIELDS[1:]))


def _without_nan(outcome: Outcome) -> dict[str, Any]:
    """Return the fields of an outcome, with None for the seconds of a failure: JSON has no NaN."""
    fields = asdict(outcome)
    return {**fields, "seconds": None} if outcome.failure else fields


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
