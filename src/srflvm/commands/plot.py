"""What `srflvm plot` does: a picture of a model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from srflvm import plot
from srflvm.commands.speaking import Speaker
from srflvm.persistence import load
from srflvm.tables.labels import read_labels
from srflvm.whole_files import check_target, whole_file

# Names on the command line, the functions that draw them, and the options that these take.
KINDS: dict[str, tuple[str, tuple[str, ...]]] = {
    "embedding": ("embedding", ("labels", "dims")),
    "history": ("history", ()),
    "kernel": ("kernel", ()),
    "spectral-density": ("spectral_density", ()),
    "grid": ("decoded_grid", ("image_shape", "dims")),
    "uncertainty": ("uncertainty_map", ("dims",)),
    "magnification": ("magnification", ("dims",)),
    "relevance": ("relevance", ()),
}
ENDINGS = (".png", ".pdf", ".svg")


def run(
    model_file: Path,
    kind: str,
    output: Path,
    speaker: Speaker,
    *,
    labels: Path | None,
    label_column: str | None,
    dims: tuple[int, int] | None,
    image_shape: tuple[int, int] | None,
    force: bool,
) -> None:
    """Draw and write."""
    if kind not in KINDS:
        raise ValueError(f"--kind {kind!r} is not known. Choose one of {', '.join(KINDS)}.")
    if output.suffix.lower() not in ENDINGS:
        raise ValueError(f"{output} does not end in the name of a picture: {', '.join(ENDINGS)}.")
    check_target(output, force=force)
    plot.require_matplotlib()
    name, takes = KINDS[kind]
    options: dict[str, Any] = {"labels": labels, "dims": dims, "image_shape": image_shape}
    options = {option: value for option, value in options.items() if value is not None}
    for option in options:
        if option not in takes:
            raise ValueError(f"--{option.replace('_', '-')} does not go with --kind {kind}.")
    model: Any = load(model_file)
    if labels is not None:
        options["labels"] = read_labels(labels, len(model.embedding_), label_column)
    with speaker.hearing_warnings():
        _draw(getattr(plot, name), model, options, output)
    speaker.result(f"{output}: {kind} of {model_file}", {"output": str(output), "kind": kind})


def _draw(function: Any, model: Any, options: dict[str, Any], output: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure((6.4, 5.6), layout="constrained")
    function(model, ax=figure.add_subplot(), **options)
    with whole_file(output) as temporary:
        figure.savefig(temporary, dpi=200)
