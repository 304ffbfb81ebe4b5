"""Output of commands: notes, warnings, and a result for people or for programs."""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from srflvm.cli.progress_bar import FitBar


@dataclass(frozen=True)
class Output:
    """Printer of lines for people, or of one line of JSON for programs.

    Notes go to standard output, or to standard error if a line of JSON is to come; `quiet` leaves them out.
    Warnings always go to standard error, each once.
    """

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
        """Print the last line: JSON, or a text, which `quiet` leaves out unless `always`."""
        if self.as_json:
            print(json.dumps(facts), flush=True)
        elif always or not self.quiet:
            print(text, flush=True)

    @contextmanager
    def show_warnings(self) -> Iterator[None]:
        """Print warnings of Python as lines."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", UserWarning)
            yield
        for warning in caught:
            self.warn(str(warning.message))

    def progress_bar(self) -> FitBar:
        """Return a callback of `SRFLVM` that shows progress, as a context; only the first process has one."""
        from rich.console import Console

        from srflvm import parallel
        from srflvm.cli.progress_bar import FitBar

        return FitBar(Console(stderr=self.as_json, quiet=self.quiet or not parallel.is_first()))
