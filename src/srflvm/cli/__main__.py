"""Run the command line as `python -m srflvm.cli`."""

from srflvm.cli import app

app()
