"""Arguments and options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from srflvm.data.tables.table import ReadOptions

_READING, _MODEL = "Reading the table", "The model"


def _parse_components(text: str | int) -> int | str:
    """Parse a number of components: a whole number, or auto."""
    if str(text).lower() == "auto":
        return "auto"
    if not str(text).isdecimal() or int(text) < 1:
        raise typer.BadParameter(f"{text!r} is neither a whole number of 1 or more nor auto.")
    return int(text)


Model = Annotated[Path, typer.Argument(help="A file that srflvm fit wrote.", show_default=False)]
Data = Annotated[
    Path,
    typer.Argument(
        help="Rows by columns: .csv, .tsv (also .gz), .parquet, .npy, .npz, .zarr or .h5ad.",
        show_default=False,
    ),
]
Target = Annotated[Path, typer.Option("--output", "-o", help="File to write; its name tells the format.")]
IdColumn = Annotated[
    str | None,
    typer.Option(
        help="Column of row ids; else the first, if it has no name or its texts all differ.",
        rich_help_panel=_READING,
    ),
]
LeaveOut = Annotated[
    list[str] | None,
    typer.Option(
        metavar="COLUMN", help="A column that is not data; may be repeated.", rich_help_panel=_READING
    ),
]
Header = Annotated[
    bool | None,
    typer.Option(
        "--header/--no-header",
        help="Whether a text file begins with column names; else this is detected.",
        show_default=False,
        rich_help_panel=_READING,
    ),
]
Delimiter = Annotated[
    str | None,
    typer.Option(
        metavar="CHARACTER",
        help="What separates the fields of a text file, or the word tab; else this is detected.",
        rich_help_panel=_READING,
    ),
]
Decimal = Annotated[
    str | None,
    typer.Option(
        metavar=". or ,",
        help="What begins the decimals in a text file; else this is detected.",
        rich_help_panel=_READING,
    ),
]
Missing = Annotated[
    list[str] | None,
    typer.Option(
        metavar="TEXT",
        help="A further text for missing entries of a text file; may be repeated.",
        rich_help_panel=_READING,
    ),
]
Layer = Annotated[str | None, typer.Option(help="Layer of a .h5ad file; else X.", rich_help_panel=_READING)]
Likelihood = Annotated[
    str,
    typer.Option(
        help="Distribution of the entries: auto (by what each column holds), gaussian, student-t, bernoulli, "
        "binomial:TRIALS, poisson, negative-binomial, ordinal, categorical or multinomial.",
        rich_help_panel=_MODEL,
    ),
]
Column = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=LIKELIHOOD", help="Likelihood of one column; may be repeated.", rich_help_panel=_MODEL
    ),
]
UnknownLevels = Annotated[
    str | None,
    typer.Option(
        metavar="error|missing",
        help="What to do with levels that the model has not seen; else as it was fitted.",
        show_default=False,
        rich_help_panel=_READING,
    ),
]
Frequencies = Annotated[
    int | None, typer.Option(min=1, help="Number of frequencies.", rich_help_panel=_MODEL)
]
MaxIter = Annotated[int | None, typer.Option(min=1, help="Most sweeps.", rich_help_panel=_MODEL)]
Components = Annotated[
    Any,
    typer.Option(
        parser=_parse_components, metavar="N|auto", help="Latent dimensions.", rich_help_panel=_MODEL
    ),
]
Seed = Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Seed of the random numbers.")]
Labels = Annotated[
    Path | None, typer.Option(help="A label for each row: a table, or a .npy array.", show_default=False)
]
LabelColumn = Annotated[str | None, typer.Option(help="Which column of --labels, if there are several.")]
Dims = Annotated[str | None, typer.Option(metavar="I,J", help="The two latent dimensions shown, from 0.")]
ImageShape = Annotated[str | None, typer.Option(metavar="HxW", help="The rows are images of this shape.")]
EscapeFormulas = Annotated[
    bool,
    typer.Option(
        "--escape-formulas",
        help="In text files, put ' before names that begin with = + - @, so that no spreadsheet runs them.",
    ),
]
Force = Annotated[bool, typer.Option("--force", help="Replace files that exist already.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but warnings and errors.")]
Json = Annotated[bool, typer.Option("--json", help="Print one line of JSON; all else to standard error.")]


def two_numbers(text: str | None, option: str, separator: str) -> tuple[int, int] | None:
    """Parse two whole numbers, such as 0,1 or 28x28."""
    if text is None:
        return None
    parts = text.lower().split(separator)
    if len(parts) != 2 or not all(part.strip().isdigit() for part in parts):
        raise typer.BadParameter(f"{option} {text!r} is not of the form {separator.join('01')}.")
    return int(parts[0]), int(parts[1])


def read_options(
    id_column: str | None,
    leave_out: list[str] | None,
    header: bool | None,
    layer: str | None,
    delimiter: str | None,
    decimal: str | None,
    missing: list[str] | None,
    **more: Any,
) -> ReadOptions:
    """Return the options of a command for reading a table."""
    from srflvm.data.tables.table import ReadOptions

    if delimiter is not None:
        delimiter = {"tab": "\t", "\\t": "\t"}.get(delimiter.lower(), delimiter)
        if len(delimiter) != 1 or delimiter in '\r\n"':
            raise ValueError(f"--delimiter {delimiter!r} is not one character, nor the word tab.")
    if decimal not in (None, ".", ","):
        raise ValueError(f"--decimal {decimal!r} is neither a point nor a comma.")
    if decimal is not None and decimal == delimiter:
        raise ValueError(f"--delimiter and --decimal are both {decimal!r}. Give different ones.")
    return ReadOptions(
        id_column,
        tuple(leave_out or ()),
        header,
        layer,
        delimiter=delimiter,
        decimal=decimal,
        marks=frozenset(text.strip() for text in missing or ()),
        **more,
    )


def check_unknown_levels(choice: str | None) -> str | None:
    """Refuse a value of --unknown-levels that there is not."""
    if choice not in (None, "error", "missing"):
        raise ValueError(f"--unknown-levels {choice!r} is neither error nor missing.")
    return choice


def load_model(path: Path) -> Any:
    """Load a fitted model; refuse a file that does not exist before the library is imported."""
    if not path.exists():
        raise FileNotFoundError(f"There is no model file {path}. Check the name and the directory.")
    from srflvm import load

    return load(path)
