"""Pages of the documentation, the Python on them, and fits that are short enough to run it all in a test."""

import importlib.util
import re
import textwrap
import warnings
from pathlib import Path
from typing import NamedTuple

import numpy as np
from model_files import made_up
from sklearn.exceptions import ConvergenceWarning

from srflvm import _likelihood_choice as choosing
from srflvm._inputs import read_data
from srflvm.posing import kind_of_fit

ROOT = Path(__file__).resolve().parents[1]
PAGES = [
    ROOT / "README.md",
    *sorted(path for path in (ROOT / "docs").rglob("*.md") if "results" not in path.parts),
]

_BLOCK = re.compile(
    r"(?:^<!-- needs: (?P<needs>[^\n]*) -->\n)?"
    r"^(?P<indent> *)```(?P<language>\w*)(?: title=\"(?P<title>[^\"]*)\")?\n(?P<code>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)

SHORT = {"max_iter": 1, "n_frequencies": 5, "n_mixture": 3}


class Block(NamedTuple):
    """Code of a page with the line it begins at; `needs` are modules, without which it is left out."""

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
    """Execute the blocks of a page one after the other; errors tell the line of the page."""
    for block in python_blocks(page):
        if block.runs:
            padded = "\n" * (block.line - 1) + block.code
            exec(compile(padded, str(page.relative_to(ROOT)), "exec"), namespace)


def fit_shortly(fit):
    """A fit that makes one sweep with few frequencies. Fits by sites, which take long to compile, are made up:
    all that is asked of the model afterwards runs as it is."""

    def short_fit(model, Y, y=None, *, mask=None, sizes=None):
        if _is_by_sites(model, Y):
            values = read_data(model, Y, mask, reset=True)
            twin = made_up(Y if mask is None else values, **model.get_params() | SHORT)
            names = {name: value for name, value in vars(twin).items() if name not in model.get_params()}
            vars(model).update(names)
            return model
        wanted = model.get_params()
        model.set_params(**SHORT)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)
                return fit(model, Y, mask=mask, sizes=sizes)
        finally:
            model.set_params(**wanted)

    return short_fit


def _is_by_sites(model, Y):
    if isinstance(Y, str):
        return False
    choice = choosing.choose(model.likelihood, np.shape(Y)[1], getattr(Y, "columns", None))
    return kind_of_fit(model, choice, holes=False) == "sites"


def _is_there(name):
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False
