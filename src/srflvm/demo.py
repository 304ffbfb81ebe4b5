"""The demonstration: fit scikit-learn's handwritten digits; write the model, a picture and a report."""

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
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console
from rich.table import Table
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import KFold, cross_val_score
from sklearn.neighbors import KNeighborsClassifier

from srflvm import plot
from srflvm._types import FloatArray
from srflvm._version import __version__
from srflvm.estimator import SRFLVM
from srflvm.fit_bar import FitBar

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MODEL_FILE, FIGURE_FILE, REPORT_FILE = "model.srflvm", "digits.png", "report.md"
FEWEST_ROWS = 20
IMAGE_SHAPE = (8, 8)

_GREY = "#666666"
_LIBRARIES = ("jax", "numpy", "scipy", "scikit-learn", "matplotlib")


@dataclass(frozen=True)
class DemoResult:
    """What the demonstration found, and the directory of its files."""

    model: Any
    accuracy: float
    pca_accuracy: float
    seconds: float
    random_state: int
    output_dir: Path

    @property
    def elbo_per_entry(self) -> float:
        return self.model.elbo_ / (len(self.model.embedding_) * self.model.n_features_in_)


def run_demo(
    output_dir: str | Path = "demo-output",
    random_state: int = 0,
    max_iter: int | None = None,
    n_rows: int | None = None,
    console: Console | None = None,
) -> DemoResult:
    """Fit the digits in two dimensions, compare with PCA, and write the model, a picture and a report.

    Parameters
    ----------
    output_dir : str or path, default="demo-output"
        Created if need be; files of an earlier run are replaced.
    random_state : int, default=0
        Seed of the fit.
    max_iter : int, default=None
        Most sweeps; None means the estimator's default.
    n_rows : int, default=None
        Use the first rows only; None means all.
    console : rich.console.Console, default=None
        Where to print; None means standard output.
    """
    console = console or Console()
    plot.require_matplotlib()
    Y, digits = _digits(n_rows)
    directory = _writable_directory(output_dir)
    model: Any = SRFLVM(n_components=2, random_state=random_state)
    if max_iter is not None:
        model.set_params(max_iter=max_iter)
    seconds = _fit(model, Y, console)
    result = DemoResult(
        model=model,
        accuracy=_nearest_neighbour_accuracy(model.embedding_, digits),
        pca_accuracy=_nearest_neighbour_accuracy(PCA(2, random_state=0).fit_transform(Y), digits),
        seconds=seconds,
        random_state=random_state,
        output_dir=directory,
    )
    _write_files(result, Y, digits)
    _print_result(result, console)
    return result


def _digits(n_rows: int | None) -> tuple[FloatArray, np.ndarray]:
    images, digits = (np.asarray(array) for array in load_digits(return_X_y=True))
    if n_rows is not None and not FEWEST_ROWS <= n_rows <= len(images):
        raise ValueError(f"The number of rows must be between {FEWEST_ROWS} and {len(images)}, not {n_rows}.")
    return images[:n_rows] / 16.0, digits[:n_rows]


def _writable_directory(path: str | Path) -> Path:
    """Make the directory and try to write there, before time is spent on a fit."""
    directory = Path(path)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory):
            pass
    except OSError as error:
        raise OSError(f"Cannot write files to {directory}: {error.strerror}.") from error
    return directory


def _fit(model: Any, Y: FloatArray, console: Console) -> float:
    """Fit with a progress bar and return the seconds it took; warnings become plain lines."""
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
    folds = KFold(5, shuffle=True, random_state=0)
    return float(cross_val_score(KNeighborsClassifier(1), Z, digits, cv=folds).mean())


def _write_files(result: DemoResult, Y: FloatArray, digits: np.ndarray) -> None:
    directory = result.output_dir
    result.model.save(directory / MODEL_FILE)
    _draw(result, Y, digits).savefig(directory / FIGURE_FILE, dpi=200)
    (directory / REPORT_FILE).write_text(_report(result), encoding="utf-8")


def _draw(result: DemoResult, Y: FloatArray, digits: np.ndarray) -> Figure:
    """The picture: the embedding, decoded images over the same plane, the bound, ten rows decoded."""
    from matplotlib.figure import Figure

    model, figure = result.model, Figure((12.8, 4.8))
    edges = {"bottom": 0.105, "top": 0.88}
    planes = figure.add_gridspec(1, 2, left=0.045, right=0.645, wspace=0.06, **edges)
    side = figure.add_gridspec(2, 1, left=0.705, right=0.985, hspace=0.36, height_ratios=[1.7, 1], **edges)
    left, middle, upper, lower = (figure.add_subplot(spec) for spec in (*planes, *side))
    ink = {"vmin": 0.0, "vmax": 1.0, "interpolation": "bilinear"}
    plot.embedding(model, digits, ax=left)
    plot.decoded_grid(model, IMAGE_SHAPE, ax=middle, **ink)
    plot.elbo_curve(model, ax=upper)
    plot.reconstructions(model, Y[:10], IMAGE_SHAPE, ax=lower, **ink)
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


def _rows(result: DemoResult) -> list[tuple[str, str]]:
    """What is reported, in words."""
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


def _next_steps(result: DemoResult) -> str:
    return f"""\
from sklearn.datasets import load_digits
from srflvm import load

model = load({str(result.output_dir / MODEL_FILE)!r})
Z, Z_std = model.transform(load_digits().data[:5] / 16, return_std=True)
images = model.decode(Z).mean.reshape(-1, 8, 8)
"""


def _report(result: DemoResult) -> str:
    table = "\n".join(f"| {name} | {value} |" for name, value in _rows(result))
    versions = ", ".join(f"{name} {version(name)}" for name in _LIBRARIES)
    return f"""\
# Handwritten digits in two dimensions

![The embedding, decoded digits and the bound]({FIGURE_FILE})

| | |
|---|---|
{table}

The accuracy is that of the nearest neighbour's digit, over five shuffled folds of the embedded rows.
Neither embedding was told the digits.

Seed {result.random_state}, {datetime.now().astimezone():%Y-%m-%d %H:%M %Z}, srflvm {__version__},
Python {platform.python_version()}, {versions}, {platform.system()} {platform.machine()}.

The model is in `{MODEL_FILE}`:

```python
{_next_steps(result)}```
"""


def _print_result(result: DemoResult, console: Console) -> None:
    table = Table(title="Handwritten digits in two dimensions", show_header=False)
    table.add_column(style="bold")
    for row in _rows(result):
        table.add_row(*row)
    console.print(table)
    files = "".join(f"  {result.output_dir / name}\n" for name in (FIGURE_FILE, REPORT_FILE, MODEL_FILE))
    code = textwrap.indent(_next_steps(result), "  ")
    text = f"Written:\n{files}\nNext, in Python:\n\n{code}\nMore in README.md."
    console.print(text, markup=False, highlight=False, soft_wrap=True)
