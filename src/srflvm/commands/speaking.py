"""What commands say: notes, warnings, and a result for people or for programs."""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Speaker:
    """Notes go to standard output, or to standard error if that is for a line of JSON; `quiet` leaves them
    out. Warnings always go to standard error, each once."""

    quiet: bool = False
    as_json: bool = False
    _warned: set[str] = field(default_factory=set, init=False)

    def note(self, text: str) -> None:
        if not self.quiet:
            print(text, file=sys.stderr if self.as_json else sys.stdout, flush=True)

    def warn(self, text: str) -> None:
        line = f"Warning: {' '.join(text.split())}"
        if line not in self._warned:
            self._warned.add(line)
            print(line, file=sys.stderr, flush=True)

    def result(self, text: str, facts: Mapping[str, Any], *, always: bool = False) -> None:
        """The last line: JSON, or a text, which `quiet` leaves out unless it is what was asked for."""
        if self.as_json:
            print(json.dumps(facts), flush=True)
        elif always or not self.quiet:
            print(text, flush=True)

    @contextmanager
    def hearing_warnings(self) -> Iterator[None]:
        """Warnings become lines."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", UserWarning)
            yield
        for warning in caught:
            self.warn(str(warning.message))
