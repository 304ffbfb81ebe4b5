"""What `srflvm datasets` does: list the data that the library can make or load."""

from __future__ import annotations

import inspect
from typing import Any

from srflvm import datasets
from srflvm.commands.speaking import Speaker


def run(speaker: Speaker) -> None:
    """Print the functions of `srflvm.datasets` with the first lines of their docstrings."""
    found = {name: _first_line(getattr(datasets, name)) for name in datasets.__all__ if _is_loader(name)}
    width = max(map(len, found))
    lines = [f"{name:<{width}}  {line}" for name, line in found.items()]
    speaker.result("\n".join(["In Python, from srflvm.datasets:", *lines]), found, always=True)


def _is_loader(name: str) -> bool:
    return inspect.isfunction(getattr(datasets, name))


def _first_line(function: Any) -> str:
    return (inspect.getdoc(function) or "").partition("\n")[0]
