"""Documentation: its Python runs, its commands exist, and its links lead somewhere.

Fits are made up, unless the environment variable SRFLVM_FULL_EXAMPLES is set: `make examples`.
"""

import importlib.util
import os
import re

import jax
import matplotlib.pyplot as plt
import pandas as pd
import pytest
import sklearn.datasets
import typer
from helpers.documentation import PAGES, ROOT, blocks, fit_at_once, python_blocks, run
from sklearn.base import clone

from srflvm import SRFLVM
from srflvm.cli import app
from srflvm.data.reading import automatic_likelihoods, read_source
from srflvm.data.sources import is_frame
from srflvm.likelihoods.columns import choose

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
        monkeypatch.setattr(SRFLVM, name, fit_any_at_once)


def fit_any_at_once(model, Y, y=None, *, mask=None, sizes=None):
    """Set made-up numbers for frames, too: a twin gets their codes and the likelihoods of their columns."""
    twin = clone(model)
    if is_frame(Y):
        source = read_source(twin, Y, mask, reset=True)
        automatic = automatic_likelihoods(twin, source)
        choice = choose(model.likelihood, source.n_columns, twin.feature_names_in_, automatic)
        twin.set_params(likelihood={tuple(columns.tolist()): single for single, columns in choice})
        Y = pd.DataFrame(source.read(0, source.n_rows), columns=twin.feature_names_in_)
    fit_at_once(twin, Y, mask=mask, sizes=sizes)
    vars(model).update({name: value for name, value in vars(twin).items() if name not in model.get_params()})
    return model


@pytest.mark.parametrize("page", [page for page in PAGES if python_blocks(page)], ids=name_of)
def test_python_runs(page, quick_fits):
    with jax.enable_x64(False):
        run(page, {"__name__": "page"})


def test_what_is_not_run_says_why():
    for page in PAGES:
        for block in blocks(page):
            assert not block.title or re.match(r"Not run: needs .", block.title), (name_of(page), block.line)


def command_lines():
    """Yield the calls of the command in the documentation, without comments, continued lines joined."""
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
    """Return the ids of the headings of a page, as MkDocs and code hosts make them."""
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


MAPS = [ROOT / "CONTRIBUTING.md", ROOT / "docs" / "architecture.md", ROOT / "docs" / "theory.md"]
_FOLDERS = [ROOT, ROOT / "src" / "srflvm", ROOT / "src"]
_CODE = re.compile(r"(?<!`)`([A-Za-z_./]+)`(?!`)")


def exists(name):
    """Return whether a name in code is that of a file, or of a module and perhaps a member of it."""
    if "/" in name or name.endswith((".py", ".md", ".yml", ".txt")):
        return any((folder / name).exists() for folder in _FOLDERS)
    module, _, member = f"srflvm.{name.removeprefix('srflvm.')}".rpartition(".")
    try:
        found = importlib.import_module(module)
        return hasattr(found, member) or importlib.util.find_spec(f"{module}.{member}") is not None
    except ModuleNotFoundError:
        return False


@pytest.mark.parametrize("page", MAPS, ids=name_of)
def test_files_and_modules_of_the_map_exist(page):
    names = {name for name in _CODE.findall(page.read_text(encoding="utf-8")) if re.search(r"\w[./]", name)}
    others = {"srflvm.commands"}
    names = {name for name in names if not name[0].isupper() or "/" in name or name.endswith(".md")}
    absent = {name for name in names - others if not name.endswith(".npz") and not exists(name)}
    assert not absent


README, RESULTS = ROOT / "README.md", ROOT / "docs" / "results"
_NUMBER = re.compile(r"(?<![\w.])\d+\.\d+(?![\w.]*\d)")


def measured():
    """Return the rows of the table of figures in README."""
    table = README.read_text(encoding="utf-8").split("## Measured")[1].split("\n## ")[0]
    rows = [line.strip("|").split("|") for line in table.splitlines() if line.startswith("|")]
    assert [cell.strip() for cell in rows[0]] == ["data", "what", "here", "for comparison", "page"]
    return [[cell.strip() for cell in row] for row in rows[2:]]


def rows_of(page):
    """Return the rows of the table of a results page, by their first column."""
    lines = (RESULTS / page).read_text(encoding="utf-8").splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]
    return {row[0]: row[1:] for row in rows}


def is_rounded(quoted, exact):
    """Return whether a number is another one with fewer digits; halves may be rounded either way."""
    return abs(float(quoted) - float(exact)) <= 0.5 * 10.0 ** -len(quoted.partition(".")[2]) + 1e-9


@pytest.mark.parametrize("row", measured(), ids=lambda row: f"{row[0]}: {row[1]}")
def test_figures_are_those_of_the_page_that_is_named(row):
    _, _, here, comparison, page = row
    (link,) = _LINK.finditer(page)
    known = _NUMBER.findall((ROOT / link["path"]).read_text(encoding="utf-8"))
    for figure in _NUMBER.findall(f"{here} {comparison}"):
        assert any(is_rounded(figure, number) for number in known), (figure, link["path"])


def test_neighbours_against_t_sne_are_means_of_all_seeds():
    for name, (_, _, here, beside, page) in zip(("digits", "MNIST-1000"), measured(), strict=False):
        assert "results/embedding.md" in page
        found = rows_of("embedding.md")[name]
        assert is_rounded(here, found[0].split(" / ")[0]), name
        assert is_rounded(beside.removeprefix("t-SNE "), found[1]), name


@pytest.mark.skipif(not (RESULTS / "tables.md").exists(), reason="needs the results of benchmarks/tables.py")
def test_no_imputer_that_does_better_is_left_out():
    (row,) = [row for row in measured() if row[0].startswith("twenty tables")]
    lines = (RESULTS / "tables.md").read_text(encoding="utf-8").splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if "| mcar30 |" in line]
    errors = {system: error for _, system, error, *_ in cells}
    assert is_rounded(row[2], errors.pop("SRFLVMImputer"))
    system, quoted = row[3].split()
    assert system == min(errors, key=lambda name: float(errors[name]))
    assert is_rounded(quoted, errors[system])


def test_readme_is_short():
    text = README.read_text(encoding="utf-8")
    assert len(re.findall(r"\S*\w\S*", text)) <= 700
    assert len(measured()) <= 5


def test_figures_of_readme_are_on_no_other_page():
    """Every page but those of the results, which are written by commands."""
    figures = {figure for row in measured() for figure in _NUMBER.findall(f"{row[2]} {row[3]}")}
    for page in PAGES:
        if page != README:
            found = set(_NUMBER.findall(page.read_text(encoding="utf-8")))
            assert not {figure for figure in figures & found if len(figure) > 4}, name_of(page)


def test_comparison_figures_are_those_of_the_results():
    text = " ".join((ROOT / "docs" / "comparison.md").read_text(encoding="utf-8").split())
    known = [
        n
        for name in ("embedding", "against", "table1")
        for n in _NUMBER.findall((RESULTS / f"{name}.md").read_text(encoding="utf-8"))
    ]
    for figure in _NUMBER.findall(text):
        assert any(is_rounded(figure, number) for number in known), figure


def test_the_paper_is_cited():
    texts = {
        name: (ROOT / name).read_text(encoding="utf-8")
        for name in ("README.md", "docs/index.md", "docs/theory.md", "docs/how-to/paper.md")
    }
    for name, text in {**texts, "SRFLVM": SRFLVM.__doc__}.items():
        said = " ".join(text.split())
        assert "arXiv:2410.17700" in said, name
        for author in ("Li", "Lin", "Liu", "Zhang", "Olmos", "Djurić"):
            assert f" {author}" in said, (name, author)


def test_new_rows_of_t_sne_are_not_denied():
    said = " ".join((ROOT / "docs" / "comparison.md").read_text(encoding="utf-8").split())
    assert "openTSNE" in said
    assert "t-SNE has no map for new rows" not in said
