"""Pages of the documentation, the Python on them, and a substitute for a fit."""

import importlib.util
import re
import textwrap
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import scipy.sparse as sp
from sklearn.base import clone

from helpers.model_files import made_up
from srflvm import Progress
from srflvm.data.reading import read_data

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    ROOT / "README.md",
    *sorted(path for path in (ROOT / "docs").rglob("*.md") if "results" not in path.parts),
]

_BLOCK = re.compile(
    r"(?:^<!-- needs: (?P<needs>[^\n]*) -->\n)?"
    r"^(?P<indent> *)```(?P<language>\w*)(?: title=\"(?P<title>[^\"]*)\")?\n(?P<code>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)


class Block(NamedTuple):
    """Code of a page with the line it begins at; it does not run without the modules of `needs`."""

    language: str
    code: str
    line: int
    title: str
    needs: tuple[str, ...]

    @property
    def runs(self):
        return not self.title.startswith("Not run") and all(_is_there(name) for name in self.needs)


def blocks(page):
    text = page.read_text(encoding="utf-8")
    for found in _BLOCK.finditer(text):
        line = text.count("\n", 0, found.start("code")) + 1
        needs = tuple(name.strip() for name in (found["needs"] or "").split(",") if name.strip())
        yield Block(found["language"], textwrap.dedent(found["code"]), line, found["title"] or "", needs)


def python_blocks(page):
    return [block for block in blocks(page) if block.language == "python"]


def run(page, namespace):
    """Execute the blocks of a page one after the other; errors have the line of the page."""
    for block in python_blocks(page):
        if block.runs:
            padded = "\n" * (block.line - 1) + block.code
            exec(compile(padded, str(page.relative_to(ROOT)), "exec"), namespace)


def fit_at_once(model, Y, y=None, *, mask=None, sizes=None):
    """Set fitted attributes to made-up numbers, because fits take long to compile.

    All methods of the fitted model run as they are.
    """
    values = read_data(clone(model), _in_memory(Y), mask, reset=True)
    table = pd.DataFrame(values, columns=Y.columns) if hasattr(Y, "columns") else values
    n_components = 2 if model.n_components == "auto" else model.n_components
    fixed = {"n_components": n_components, "n_frequencies": 5, "n_mixture": 3, "inference": "sites"}
    twin = made_up(table, **model.get_params() | fixed)
    vars(model).update({name: value for name, value in vars(twin).items() if name not in model.get_params()})
    for callback in model.callbacks or ():
        callback(Progress("fit", 1, 1, model.elbo_, values.size, 0.1))
    return model


def _in_memory(Y):
    if isinstance(Y, str):
        return np.load(Y)
    return Y.toarray() if sp.issparse(Y) else Y


def _is_there(name):
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False
