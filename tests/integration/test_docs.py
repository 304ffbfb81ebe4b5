"""Documentation: its Python runs, its commands exist, and its links lead somewhere.

Fits are made up, unless the environment variable SRFLVM_FULL_EXAMPLES is set: `make examples`.
"""

import importlib.util
import os
import re

import jax
import matplotlib.pyplot as plt
import pytest
import sklearn.datasets
import typer
from helpers.documentation import PAGES, ROOT, blocks, fit_at_once, python_blocks, run

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


RESULTS = ROOT / "docs" / "results"
_NUMBER = re.compile(r"(?<![\w.])\d+\.\d+(?![\w.]*\d)")


def measured():
    """Return the rows of the table of figures in README."""
    table = (ROOT / "README.md").read_text(encoding="utf-8").split("## Measured")[1].split("## Limits")[0]
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


def test_neighbours_against_t_sne_are_the_same_figures_everywhere():
    rows = measured()[:3]
    comparison = (ROOT / "docs" / "comparison.md").read_text(encoding="utf-8")
    for name, (_, _, here, beside, page) in zip(("digits", "MNIST-1000", "CIFAR-2000"), rows, strict=True):
        assert "results/embedding.md" in page
        found = rows_of("embedding.md")[name]
        tsne = beside.removeprefix("t-SNE ")
        assert is_rounded(here, found[0].split(" / ")[0]), name
        assert is_rounded(tsne, found[1]), name
        assert f"{tsne} against {here}" in " ".join(comparison.split()), name


@pytest.mark.parametrize(("start", "first"), [("photographs", 0), ("faces", 3)])
def test_no_imputer_that_does_better_is_left_out(start, first):
    (row,) = [row for row in measured() if row[0].startswith(start)]
    methods = {"soft-impute": "SoftImpute", "chained-ridge": "chained ridge", "bayesian-pca": "Bayesian PCA"}
    errors = {name: cells[first : first + 3] for name, cells in rows_of("imputation.md").items()}
    assert all(map(is_rounded, row[2].split("; "), errors["SRFLVMImputer"]))
    for share in range(3):
        rivals = {name: float(cells[share]) for name, cells in errors.items() if name in methods}
        best = min(rivals, key=lambda name: rivals[name])
        assert methods[best] in row[3], share
        quoted = row[3].split(methods[best])[1].split(",")[0].split("; ")[share].split()[-1]
        assert is_rounded(quoted, errors[best][share]), (best, share)


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
    for name in ("README.md", "docs/comparison.md"):
        said = " ".join((ROOT / name).read_text(encoding="utf-8").split())
        assert "openTSNE" in said, name
        assert "t-SNE has no map for new rows" not in said, name
