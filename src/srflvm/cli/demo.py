"""Command `srflvm demo`: fit handwritten digits; write the model, a picture and a report."""

from __future__ import annotations

import platform
import tempfile
import textwrap
import time
import warnings
from dataclasses import dataclass
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from srflvm._version import __version__
from srflvm.cli import options

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from rich.console import Console

    from srflvm._typing import FloatArray

_MODEL_FILE, _FIGURE_FILE, _REPORT_FILE = "model.srflvm", "digits.png", "report.md"
_FEWEST_ROWS = 20
_IMAGE_SHAPE = (8, 8)

_GREY = "#666666"
_LIBRARIES = ("jax", "numpy", "scipy", "scikit-learn", "matplotlib")


def demo(
    folder: Annotated[
        Path, typer.Option("--output", "-o", help="Directory for the files, created if need be.")
    ] = Path("demo-output"),
    seed: options.Seed = 0,
    max_iter: Annotated[int | None, typer.Option(min=1, help="Most sweeps; fewer for a quick look.")] = None,
    rows: Annotated[int | None, typer.Option(help="Use the first rows only, for a quick look.")] = None,
) -> None:
    """Fit the bundled handwritten digits; write the model, a picture and a report."""
    _run(folder, seed, max_iter, rows)


@dataclass(frozen=True)
class _Result:
    """Fitted model, its accuracy and time, and the directory of the files."""

    model: Any
    accuracy: float
    pca_accuracy: float
    seconds: float
    random_state: int
    folder: Path

    @property
    def elbo_per_entry(self) -> float:
        return self.model.elbo_ / (len(self.model.embedding_) * self.model.n_features_in_)


def _run(folder: Path, random_state: int, max_iter: int | None, n_rows: int | None) -> None:
    """Fit the digits in two dimensions, compare with PCA, and write or replace the files."""
    from rich.console import Console

    from srflvm.plot import require_matplotlib

    require_matplotlib()
    Y, digits = _digits(n_rows)
    _make_directory(folder)

    from sklearn.decomposition import PCA

    from srflvm.estimator import SRFLVM

    console = Console()
    model: Any = SRFLVM(n_components=2, random_state=random_state)
    if max_iter is not None:
        model.set_params(max_iter=max_iter)
    seconds = _fit(model, Y, console)
    result = _Result(
        model=model,
        accuracy=_nearest_neighbour_accuracy(model.embedding_, digits),
        pca_accuracy=_nearest_neighbour_accuracy(PCA(2, random_state=0).fit_transform(Y), digits),
        seconds=seconds,
        random_state=random_state,
        folder=folder,
    )
    _write_files(result, Y, digits)
    _print_result(result, console)


def _digits(n_rows: int | None) -> tuple[FloatArray, np.ndarray]:
    import numpy as np
    from sklearn.datasets import load_digits

    images, digits = (np.asarray(array) for array in load_digits(return_X_y=True))
    if n_rows is not None and not _FEWEST_ROWS <= n_rows <= len(images):
        raise ValueError(
            f"The number of rows must be between {_FEWEST_ROWS} and {len(images)}, not {n_rows}."
        )
    return images[:n_rows] / 16.0, digits[:n_rows]


def _make_directory(directory: Path) -> None:
    """Make the directory and try to write there, before time is spent on a fit."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory):
            pass
    except OSError as error:
        raise OSError(f"Cannot write files to {directory}: {error.strerror}.") from error


def _fit(model: Any, Y: FloatArray, console: Console) -> float:
    """Fit with a progress bar and return the seconds it took; warnings become plain lines."""
    from sklearn.exceptions import ConvergenceWarning

    from srflvm.cli.progress_bar import FitBar

    started = time.perf_counter()
    with warnings.catch_warnings(record=True) as caught, FitBar(console) as bar:
        warnings.simplefilter("always", ConvergenceWarning)
        model.set_params(callbacks=[bar]).fit(Y)
    model.set_params(callbacks=None)
    seconds = time.perf_counter() - started
    for warning in caught:
        line = f"{warning.category.__name__}: {warning.message}"
        console.print(line, style="yellow", markup=False, highlight=False, soft_wrap=True)
    if model.interrupted_:
        console.print("Interrupted: going on with the best state so far.", style="yellow")
    return seconds


def _nearest_neighbour_accuracy(Z: FloatArray, digits: np.ndarray) -> float:
    from sklearn.model_selection import KFold, cross_val_score
    from sklearn.neighbors import KNeighborsClassifier

    folds = KFold(5, shuffle=True, random_state=0)
    return float(cross_val_score(KNeighborsClassifier(1), Z, digits, cv=folds).mean())


def _write_files(result: _Result, Y: FloatArray, digits: np.ndarray) -> None:
    directory = result.folder
    result.model.save(directory / _MODEL_FILE)
    _draw(result, Y, digits).savefig(directory / _FIGURE_FILE, dpi=200)
    (directory / _REPORT_FILE).write_text(_report(result), encoding="utf-8")


def _draw(result: _Result, Y: FloatArray, digits: np.ndarray) -> Figure:
    """Draw the embedding, decoded images over the same plane, the bound, and ten rows decoded."""
    from matplotlib.figure import Figure

    from srflvm import plot

    model, figure = result.model, Figure((12.8, 4.8))
    edges = {"bottom": 0.105, "top": 0.88}
    planes = figure.add_gridspec(1, 2, left=0.045, right=0.645, wspace=0.06, **edges)
    side = figure.add_gridspec(2, 1, left=0.705, right=0.985, hspace=0.36, height_ratios=[1.7, 1], **edges)
    left, middle, upper, lower = (figure.add_subplot(spec) for spec in (*planes, *side))
    ink = {"vmin": 0.0, "vmax": 1.0, "interpolation": "bilinear"}
    plot.embedding(model, digits, ax=left)
    plot.decoded_grid(model, _IMAGE_SHAPE, ax=middle, **ink)
    plot.elbo_curve(model, ax=upper)
    plot.reconstructions(model, Y[:10], _IMAGE_SHAPE, ax=lower, **ink)
    _align(left, middle)
    accuracies = f"nearest-neighbour accuracy {result.accuracy:.2f} (PCA: {result.pca_accuracy:.2f})"
    _title(left, f"{len(Y)} digits in two dimensions", accuracies)
    _title(middle, "Decoded over the same plane", "blank where the model could only guess")
    bound = f"{result.elbo_per_entry:.3f} nats per entry after {model.n_iter_} sweeps"
    _title(upper, "Evidence lower bound", bound)
    lower.set_anchor("S")
    return figure


def _align(left: Axes, right: Axes) -> None:
    """Give two views of the plane the same limits, and labels to the left one only."""
    for ax in (left, right):
        ax.set_anchor("NW")
        ax.tick_params(length=0, labelcolor=_GREY)
        ax.spines[:].set_color("#cccccc")
    left.update_datalim(right.dataLim.corners())
    left.autoscale_view()
    right.set(xlim=left.get_xlim(), ylim=left.get_ylim(), ylabel="")
    right.tick_params(labelleft=False)


def _title(ax: Axes, title: str, note: str) -> None:
    ax.set_title(title, loc="left", weight="bold", size=12, pad=22)
    ax.annotate(note, (0, 1), (0, 7), "axes fraction", "offset points", size=10, color=_GREY)


def _rows(result: _Result) -> list[tuple[str, str]]:
    """Return names and values for the report."""
    import numpy as np

    model = result.model
    starts = ", ".join(f"{name} {bound:,.0f}" for name, bound in model.start_elbos_.items())
    state = "interrupted" if model.interrupted_ else "converged" if model.converged_ else "still rising"
    return [
        ("data", f"{len(model.embedding_)} handwritten digits of {model.n_features_in_} pixels in [0, 1]"),
        ("evidence lower bound", f"{model.elbo_:,.0f} nats, {result.elbo_per_entry:.4f} per entry"),
        ("start", f"{model.start_} won ({starts})"),
        ("sweeps", f"{model.n_iter_}, {state}"),
        ("noise (standard deviation)", f"{np.sqrt(model.noise_variance_):.3f}"),
        ("1-NN accuracy, PCA to 2", f"{result.pca_accuracy:.3f}"),
        ("1-NN accuracy, SRFLVM to 2", f"{result.accuracy:.3f}"),
        ("time of the fit", f"{result.seconds:.1f} s"),
    ]


def _next_steps(result: _Result) -> str:
    return f"""\
from sklearn.datasets import load_digits
from srflvm import load

model = load({str(result.folder / _MODEL_FILE)!r})
Z, Z_std = model.transform(load_digits().data[:5] / 16, return_std=True)
images = model.decode(Z).mean.reshape(-1, 8, 8)
"""


def _report(result: _Result) -> str:
    table = "\n".join(f"| {name} | {value} |" for name, value in _rows(result))
    versions = ", ".join(f"{name} {version(name)}" for name in _LIBRARIES)
    return f"""\
# Handwritten digits in two dimensions

![The embedding, decoded digits and the bound]({_FIGURE_FILE})

| | |
|---|---|
{table}

The accuracy is that of the nearest neighbour's digit, over five shuffled folds of the embedded rows.
Neither embedding was told the digits.

Seed {result.random_state}, {datetime.now().astimezone():%Y-%m-%d %H:%M %Z}, srflvm {__version__},
Python {platform.python_version()}, {versions}, {platform.system()} {platform.machine()}.

The model is in `{_MODEL_FILE}`:

```python
{_next_steps(result)}```
"""


def _print_result(result: _Result, console: Console) -> None:
    from rich.table import Table

    table = Table(title="Handwritten digits in two dimensions", show_header=False)
    table.add_column(style="bold")
    for row in _rows(result):
        table.add_row(*row)
    console.print(table)
    files = "".join(f"  {result.folder / name}\n" for name in (_FIGURE_FILE, _REPORT_FILE, _MODEL_FILE))
    code = textwrap.indent(_next_steps(result), "  ")
    text = f"Written:\n{files}\nNext, in Python:\n\n{code}\nMore in README.md."
    console.print(text, markup=False, highlight=False, soft_wrap=True)
