"""The Python of the documentation runs, its commands exist, and its links lead somewhere.

Fits are made up, unless the environment variable SRFLVM_FULL_EXAMPLES is set: `make examples`.
"""

import os
import re

import jax
import matplotlib.pyplot as plt
import pytest
import sklearn.datasets
import typer
from documentation import PAGES, ROOT, blocks, fit_at_once, python_blocks, run

from srflvm import SRFLVM
from srflvm.cli import app

N_DIGITS = 120
_LINK = re.compile(r"\]\((?!https?:)(?P<path>[^)#\s]*)(?:#(?P<anchor>[^)\s]*))?\)")


def name_of(page):
    return str(page.relative_to(ROOT))


@pytest.fixture
def quick_fits(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    if "SRFLVM_FULL_EXAMPLES" not in os.environ:
        _shorten(monkeypatch)
    yield
    plt.close("all")


def _shorten(monkeypatch):
    digits = sklearn.datasets.load_digits()
    digits.data, digits.target = digits.data[:N_DIGITS], digits.target[:N_DIGITS]
    monkeypatch.setattr(sklearn.datasets, "load_digits", lambda: digits)
    for name in ("fit", "partial_fit"):
        monkeypatch.setattr(SRFLVM, name, fit_at_once)


@pytest.mark.parametrize("page", [page for page in PAGES if python_blocks(page)], ids=name_of)
def test_python_runs(page, quick_fits):
    with jax.enable_x64(False):
        run(page, {"__name__": "page"})


def test_what_is_not_run_says_why():
    for page in PAGES:
        for block in blocks(page):
            assert not block.title or re.match(r"Not run: needs .", block.title), (name_of(page), block.line)


def command_lines():
    """Lines of the documentation that call the command, without comments, continued lines put together."""
    for page in PAGES:
        for block in blocks(page):
            if block.language in ("", "bash"):
                for line in block.code.replace("\\\n", " ").splitlines():
                    for call in re.findall(r"\bsrflvm ([a-z]+(?: .*)?)$", line.split("#")[0].rstrip()):
                        yield name_of(page), call


@pytest.mark.parametrize(("page", "call"), list(command_lines()))
def test_commands_exist(page, call):
    command, *words = call.rstrip("'").split()
    commands = typer.main.get_command(app).commands
    if "inspect" not in commands:
        pytest.skip("this version has few commands")
    options = {option for parameter in commands[command].params for option in parameter.opts}
    used = {word for word in words if re.match(r"--?[a-z]", word)}
    assert used <= options | {"--help"}, page


def anchors(page):
    """Ids of the headings of a page, as MkDocs and code hosts make them."""
    titles = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md"])
def test_links_lead_somewhere(name):
    """`make docs` checks those between the pages."""
    page = ROOT / name
    for link in _LINK.finditer(page.read_text(encoding="utf-8")):
        target = page.parent / link["path"] if link["path"] else page
        assert target.exists(), link.group()
        assert not link["anchor"] or link["anchor"] in anchors(target), link.group()
