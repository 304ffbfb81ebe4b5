"""Pictures of the experiments."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from srflvm.plot import require_matplotlib
from srflvm_bench.report import Report
from srflvm_bench.store import Store
from srflvm_bench.tasks import Task

_IMAGE_SHAPES = {"mnist": (28, 28), "brendan": (28, 20), "digits": (8, 8), "cifar-10": (20, 20)}


def draw(
    experiment: str, report: Report, tasks: Sequence[Task], store: Store, folder: Path, suffix: str
) -> list[Path]:
    """Draw the pictures of an experiment and return their files. Single fits are those of the first seed."""
    tasks = [task for task in tasks if task.seed == 0]
    drawn = {
        "table3": lambda: {"": _draw_neighbours(report)},
        "weights": lambda: {"": _draw_kernels(tasks, store)},
        "reconstructions": lambda: {"": _draw_reconstructions(tasks, store)},
        "manifold": lambda: {
            "": _draw_kernels(_of_one_size(tasks), store),
            "-seconds": _draw_seconds(tasks, store),
        },
    }.get(experiment, lambda: {"": draw_beside_paper(report)})()
    return [_save(figure, folder / f"{experiment}{part}{suffix}.png") for part, figure in drawn.items()]


def _of_one_size(tasks: Sequence[Task]) -> list[Task]:
    """Return the fits to curves of the size that all likelihoods have."""
    sizes = {task.data for task in tasks if task.system in ("N-OURS", "B-OURS")}
    size = next(iter(sizes), "").split()[-1:]
    return [task for task in tasks if not size or task.data.endswith(size[0])]


def draw_beside_paper(report: Report) -> Any:
    """Draw a panel for each column of a table: our value of every system (filled) and the paper's (hollow).

    Values that are better when lower are on a logarithmic axis.
    """
    names = list(report.rows)
    figure, axes = _subplots(1, len(report.columns), (2.0, 0.8 + 0.22 * len(names)))
    for column, (title, axis) in enumerate(zip(report.columns, axes[0], strict=True)):
        cells = [cells[column] for cells in report.rows.values()]
        paper = [float(cell.paper.split()[0]) if cell.paper else np.nan for cell in cells]
        axis.plot([cell.value for cell in cells], range(len(names)), "o", color="C0", label="here")
        if report.is_beside_the_paper:
            axis.plot(paper, range(len(names)), "o", color="C1", fillstyle="none", label="paper")
        axis.set_title(title, fontsize=9)
        axis.set(yticks=range(len(names)))
        if report.lower_is_better:
            axis.set_xscale("log")
            _plain_numbers(axis.xaxis)
        axis.set_yticklabels(names if column == 0 else [], fontsize=8)
        axis.tick_params(axis="x", which="both", labelsize=7)
        axis.grid(axis="y", alpha=0.3)
        axis.set_ylim(len(names) - 0.5, -0.5)  # the first on top, and all panels alike
    if report.is_beside_the_paper:
        axes[0, 0].legend(fontsize=7)
    return figure


def _plain_numbers(ruler: Any, dense_below: float = 10.0) -> None:
    """Put plain numbers on a logarithmic axis (`xaxis` or `yaxis`), as many as a narrow panel has room for.

    The numbers are 1, 2 and 5 times powers of ten if the largest is less than `dense_below` times the
    smallest.
    """
    from matplotlib.ticker import LogLocator, NullLocator, StrMethodFormatter

    low, high = ruler.get_view_interval()
    subs = (1.0, 2.0, 5.0) if high < dense_below * low else (1.0, 3.0) if high < 200 * low else (1.0,)
    ruler.set_major_locator(LogLocator(subs=subs, numticks=5))
    ruler.set_major_formatter(StrMethodFormatter("{x:g}"))
    ruler.set_minor_locator(NullLocator())


def _draw_neighbours(report: Report) -> Any:
    """Draw accuracy against k, ours and the paper's (dashed), one panel for each data set."""
    names = tuple(dict.fromkeys(row.split(", ")[0] for row in report.rows))
    figure, axes = _subplots(1, len(names), (4.0, 4.2))
    for name, axis in zip(names, axes[0], strict=True):
        own = {row: cells for row, cells in report.rows.items() if row.startswith(f"{name}, ")}
        for number, (row, cells) in enumerate(own.items()):
            colour = f"C{number % 10}"
            axis.plot(range(2, 11), [cell.value for cell in cells], color=colour, label=row.split(", ")[1])
            if cells[0].paper:
                paper = [float(cell.paper) for cell in cells]
                axis.plot(range(2, 11), paper, color=colour, linestyle="--")
        axis.set(title=name, xlabel="neighbours")
    axes[0, 0].set_ylabel("accuracy")
    if report.is_beside_the_paper:
        axes[0, 0].plot([], [], color="grey", linestyle="--", label="the paper's")
    labelled = axes[0, 0].get_legend_handles_labels()
    figure.legend(*labelled, loc="outside lower center", ncols=len(labelled[0]), frameon=False, fontsize=8)
    return figure


def _draw_kernels(tasks: Sequence[Task], store: Store) -> Any:
    """Draw for every likelihood a row of pairs, latents above the kernel matrix: the truth, then the fits.

    Latents are mapped affinely to the truth; rows are in the order of the curve, which colours them.
    """
    found = [(task, arrays) for task in tasks if (arrays := store.arrays(task))]
    data = tuple(dict.fromkeys(task.data for task, _ in found))
    widest = max((sum(task.data == name for task, _ in found) for name in data), default=1)
    figure, axes = _subplots(2 * max(len(data), 1), widest + 1, (2.2, 2.2))
    for axis in axes.flat:
        axis.set(xticks=[], yticks=[])
        axis.set_visible(False)
    for row, name in enumerate(data):
        shown = [(task, arrays) for task, arrays in found if task.data == name]
        likelihood = name.split()[1].replace("_", " ")
        _draw_pair(axes[2 * row : 2 * row + 2, 0], f"{likelihood}: truth", shown[0][1]["X"], shown[0][1]["K"])
        for column, (task, arrays) in enumerate(shown, start=1):
            title = task.settings.get("inference", task.system).replace("_", " ")
            _draw_pair(axes[2 * row : 2 * row + 2, column], title, arrays["fitted"], arrays["kernel"])
    return figure


def _draw_pair(axes: Any, title: str, latents: Any, kernel: Any) -> None:
    """Draw latents and the kernel matrix below them."""
    for axis in axes:
        axis.set_visible(True)
    axes[0].scatter(*latents.T, c=np.arange(len(latents)), cmap="viridis", s=3)
    axes[0].set_title(title, fontsize=8)
    axes[1].imshow(kernel, cmap="viridis", vmin=0.0, vmax=1.0)


def _draw_seconds(tasks: Sequence[Task], store: Store) -> Any:
    """Draw the seconds of a fit of Gaussian data against rows and against columns, on logarithmic axes."""
    timed = [
        (task.system, [int(n) for n in task.data.split()[2].split("x")], outcome.seconds)
        for task in tasks
        if "gaussian" in task.data and (outcome := store.get(task)) is not None and not outcome.failure
    ]
    figure, axes = _subplots(1, 2, (4.5, 3.5))
    for place, (axis, name) in enumerate(zip(axes[0], ("rows", "columns"), strict=True)):
        others = [size[1 - place] for _, size, _ in timed]
        common = max(set(others), key=others.count, default=0)
        for system in dict.fromkeys(system for system, _, _ in timed):
            curve = sorted(
                (size[place], seconds)
                for own, size, seconds in timed
                if (own, size[1 - place]) == (system, common)
            )
            if len(curve) > 1:
                axis.loglog(*zip(*curve, strict=True), marker="o", label=system)
        axis.set(xlabel=name, ylabel="seconds of a fit")
        if axis.lines:
            sizes = sorted({size for line in axis.lines for size in np.asarray(line.get_xdata())})
            axis.set_xticks(sizes, [str(size) for size in sizes])
            axis.set_xticks([], minor=True)
            _plain_numbers(axis.yaxis, dense_below=100.0)
            axis.legend(fontsize=8)
    return figure


def _draw_reconstructions(tasks: Sequence[Task], store: Store) -> Any:
    """Draw for every data set three rows of images: the truth, the observed entries, the filled images."""
    titles = {"truth": "truth", "holes": "observed", "filled": "filled"}  # by names of stored arrays
    shown = [(task, arrays) for task in tasks if (arrays := store.arrays(task))]
    width = max((len(arrays["truth"]) for _, arrays in shown), default=1)
    figure, axes = _subplots(3 * max(len(shown), 1), width, (1.1, 1.1))
    for axis in axes.flat:
        axis.set_axis_off()
    for block, (task, arrays) in enumerate(shown):
        shape = _IMAGE_SHAPES[task.data]
        for row, (name, title) in enumerate(titles.items()):
            for column, image in enumerate(arrays[name]):
                axis = axes[3 * block + row, column]
                axis.imshow(image.reshape(shape), cmap=_greys(), vmin=0.0, vmax=1.0)
            axes[3 * block + row, 0].set_title(f"{task.data}, {title}", fontsize=7, loc="left")
    return figure


def _greys() -> Any:
    """Return a colour map of grey values, with missing ones in orange."""
    import matplotlib

    return matplotlib.colormaps["gray"].with_extremes(bad="#E69F00")


def _subplots(n_rows: int, n_columns: int, size: tuple[float, float]) -> Any:
    """Make a figure with panels of the given size."""
    require_matplotlib()
    import matplotlib.pyplot as plt

    return plt.subplots(
        n_rows,
        n_columns,
        figsize=(size[0] * n_columns, size[1] * n_rows),
        squeeze=False,
        layout="constrained",
    )


def _save(figure: Any, path: Path) -> Path:
    """Write a figure to a file, close it, and return the file."""
    import matplotlib.pyplot as plt

    figure.savefig(path, dpi=120)
    plt.close(figure)
    return path
