"""Measurements in a file, from which a long command that was stopped goes on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

Cells = dict[str, dict[str, Any]]


class Cache:
    """Measurements of one command, in benchmarks/.cache."""

    def __init__(self, name: str):
        self.path = Path(__file__).resolve().parent / ".cache" / f"{name}.json"

    def read(self) -> Cells:
        """Read all measurements."""
        return json.loads(self.path.read_text()) if self.path.exists() else {}

    def add(self, key: str, cell: dict[str, Any]) -> None:
        """Add a measurement to the file, which another run may have changed since it was read."""
        self.path.parent.mkdir(exist_ok=True)
        self.path.write_text(json.dumps({**self.read(), key: cell}, indent=1, ensure_ascii=False))
