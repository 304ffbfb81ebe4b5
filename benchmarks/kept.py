"""Measurements kept in a file, so that a long command that was stopped goes on where it was."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

Cells = dict[str, dict[str, Any]]


class Kept:
    """The cells of one command, in benchmarks/.cache."""

    def __init__(self, name: str):
        self.path = Path(__file__).resolve().parent / ".cache" / f"{name}.json"

    def read(self) -> Cells:
        return json.loads(self.path.read_text()) if self.path.exists() else {}

    def keep(self, key: str, cell: dict[str, Any]) -> None:
        """Add a cell to the file, which another run may have changed since it was read."""
        self.path.parent.mkdir(exist_ok=True)
        self.path.write_text(json.dumps({**self.read(), key: cell}, indent=1, ensure_ascii=False))
