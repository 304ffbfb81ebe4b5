"""Command `srflvm plot`: draw a picture of a model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from srflvm.cli import options
from srflvm.cli.output import Output
from srflvm.data.tables.formats import check_input, read_labels
from srflvm.storage.atomic import check_target, whole_file

# Names on the command line, the functions that draw them, and the options that these take.
_KINDS: dict[str, tuple[str, tuple[str, ...]]] = {
    "embedding": ("embedding", ("labels", "dims")),
    "history": ("history", ()),
    "kernel": ("kernel", ()),
    "spectral-density": ("spectral_density", ()),
    "grid": ("decoded_grid", ("image_shape", "dims")),
    "uncertainty": ("uncertainty_map", ("dims",)),
    "magnification": ("magnification", ("dims",)),
    "relevance": ("relevance", ()),
}
_ENDINGS = (".png", ".pdf", ".svg")


def plot(
    model: options.Model,
    target: options.Target,
    kind: Annotated[str, typer.Option(help=f"{', '.join(_KINDS)}.")] = "embedding",
    labels: options.Labels = None,
    label_column: options.LabelColumn = None,
    dims: options.Dims = None,
    image_shape: options.ImageShape = None,
    force: options.Force = False,
    quiet: options.Quiet = False,
    as_json: options.Json = False,
) -> None:
    """Draw a picture of a fitted model: .png, .pdf or .svg."""
    if kind not in _KINDS:
        raise ValueError(f"--kind {kind!r} is not known. Choose one of {', '.join(_KINDS)}.")
    if target.suffix.lower() not in _ENDINGS:
        raise ValueError(f"{target} does not end in the name of a picture: {', '.join(_ENDINGS)}.")
    name, taken = _KINDS[kind]
    given: dict[str, Any] = {
        "labels": labels,
        "dims": options.two_numbers(dims, "--dims", ","),
        "image_shape": options.two_numbers(image_shape, "--image-shape", "x"),
    }
    given = {option: value for option, value in given.items() if value is not None}
    for option in given:
        if option not in taken:
            raise ValueError(f"--{option.replace('_', '-')} does not go with --kind {kind}.")
    check_target(target, force=force)
    if labels is not None:
        check_input(labels)
    fitted = options.load_model(model)
    if labels is not None:
        given["labels"] = read_labels(labels, len(fitted.embedding_), label_column)
    output = Output(quiet, as_json)
    with output.show_warnings():
        _draw(name, fitted, given, target)
    output.result(f"{target}: {kind} of {model}", {"output": str(target), "kind": kind})


def _draw(name: str, model: Any, given: dict[str, Any], target: Path) -> None:
    from srflvm import plot
    from srflvm.plot import require_matplotlib

    require_matplotlib()
    from matplotlib.figure import Figure

    figure = Figure((6.4, 5.6), layout="constrained")
    getattr(plot, name)(model, ax=figure.add_subplot(), **given)
    with whole_file(target) as temporary:
        figure.savefig(temporary, dpi=200)
