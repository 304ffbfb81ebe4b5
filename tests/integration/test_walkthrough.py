"""Shell script `walkthrough.sh`, run as a user would, and the files that it writes."""

import csv
import os
import subprocess
import sys
from pathlib import Path

import numpy as np

SCRIPT = Path(__file__).parent / "walkthrough.sh"
N_ROWS, N_COLUMNS = 40, 5
NAMES = [f"gene {number}" for number in range(N_COLUMNS)]


def write(path, rows):
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(rows)


def read(path):
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.reader(file))


def texts_of_numbers(rng, n_rows):
    """Write numbers as people do: zeros at the end, exponents, blanks, more digits than a double has."""
    angle = np.linspace(0.0, 5.0, n_rows)
    values = np.sin(angle[:, None] + np.arange(N_COLUMNS)) + 0.1 * rng.standard_normal((n_rows, N_COLUMNS))
    styles = ["{:.3f}0", "{:+.6e}", " {:.4f}", "{:.20f}"]
    return [[rng.choice(styles).format(value) for value in row] for row in values]


def walk(path):
    """Run the script in a folder and return its output."""
    rng = np.random.RandomState(0)
    rows = texts_of_numbers(rng, N_ROWS)
    for number in rng.permutation(N_ROWS * N_COLUMNS)[:20]:
        rows[number // N_COLUMNS][number % N_COLUMNS] = rng.choice(["", "NA"])
    named = [[f"Zelle {n}", *row, f"site {n % 3}"] for n, row in enumerate(rows)]
    write(path / "holes.csv", [["cell", *NAMES, "site"], *named])
    backwards = [[f"neu {n}", *row[::-1]] for n, row in enumerate(texts_of_numbers(rng, 7))]
    write(path / "new.csv", [["cell", *NAMES[::-1]], *backwards])
    write(path / "labels.csv", [["kind"], *([f"kind {n % 4}"] for n in range(N_ROWS))])
    (path / "srflvm").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m srflvm.cli "$@"\n')
    (path / "srflvm").chmod(0o755)
    environment = os.environ | {"PATH": f"{path}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run([SCRIPT, path], env=environment, capture_output=True, text=True, timeout=170)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_user_walks_from_a_table_with_holes_to_a_page(tmp_path):
    check_what_was_taken_for_what(walk(tmp_path))
    check_observed_fields_ids_and_names(tmp_path)
    check_standard_deviations(tmp_path)
    check_places_of_new_rows(tmp_path)
    check_files(tmp_path)


def check_what_was_taken_for_what(said):
    for text in (
        f"{N_ROWS} rows, {N_COLUMNS} columns",
        "row ids: column 1 ('cell')",
        "left out: 'site'",
        "missing: 10.0% of the entries",
        "continuous",
        "taken by name",
        "'gene 0', 'gene 1'",
    ):
        assert text in said


def check_observed_fields_ids_and_names(folder):
    holes, filled = read(folder / "holes.csv"), read(folder / "filled.csv")
    assert filled[0] == holes[0]
    changed = [
        (old, new)
        for old_row, new_row in zip(holes, filled, strict=True)
        for old, new in zip(old_row, new_row, strict=True)
        if old != new
    ]
    assert len(changed) == 20
    assert {old for old, _ in changed} == {"", "NA"}
    assert all(np.isfinite(float(new)) for _, new in changed)


def check_standard_deviations(folder):
    holes, spreads = read(folder / "holes.csv"), read(folder / "spreads.csv")
    assert spreads[0] == ["cell", *NAMES]
    for old, new in zip(holes[1:], spreads[1:], strict=True):
        assert new[0] == old[0]
        assert [float(text) > 0.0 for text in new[1:]] == [text in ("", "NA") for text in old[1:-1]]


def check_places_of_new_rows(folder):
    places = read(folder / "places.csv")
    assert places[0] == ["cell", "srflvm0", "srflvm1", "srflvm0_std", "srflvm1_std"]
    assert [row[0] for row in places[1:]] == [f"neu {n}" for n in range(7)]


def check_files(folder):
    assert (folder / "map.png").read_bytes().startswith(b"\x89PNG")
    assert "<html" in (folder / "page.html").read_text()
    made = {"model.srflvm", "places.csv", "filled.csv", "spreads.csv", "map.png", "page.html"}
    given = {"holes.csv", "new.csv", "labels.csv", "srflvm"}
    assert {path.name for path in folder.iterdir()} == made | given
