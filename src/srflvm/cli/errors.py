"""Errors of commands, in one line each."""

from __future__ import annotations

import sys
from typing import Any

import typer
from typer.core import TyperGroup

from srflvm.exceptions import EXPECTED

# The base class of all complaints about a command line; not every version of typer exports it.
_UsageError: Any = typer.BadParameter.__bases__[0]


class OneLineErrors(TyperGroup):
    """Group of commands whose errors are one line.

    The exit code is 2 for bad usage, 130 for Ctrl-C, and 1 for all other errors.
    """

    def main(self, *args: Any, standalone_mode: bool = True, **options: Any) -> Any:
        if not standalone_mode:
            return super().main(*args, standalone_mode=False, **options)
        try:
            code = super().main(*args, standalone_mode=False, **options)
        except _UsageError as error:
            command = error.ctx.command_path if error.ctx else "srflvm"
            _fail(f"{error.format_message().rstrip('.')}. See {command} --help.", 2)
        except (typer.Abort, KeyboardInterrupt):
            _fail("interrupted.", 130)
        except EXPECTED as error:
            _fail(str(error) or type(error).__name__, 1)
        else:
            sys.exit(code or 0)


def _fail(message: str, code: int) -> None:
    typer.echo(f"Error: {' '.join(message.split())}", err=True)
    sys.exit(code)
