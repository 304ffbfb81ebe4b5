"""Tables that are written to a file and read again, whatever numbers and names they hold."""

import tempfile
from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from srflvm.data.sources import ArraySource
from srflvm.data.tables.formats import open_table, write_filled, write_table
from srflvm.data.tables.frame import Entries, Frame, as_objects
from srflvm.data.tables.table import ReadOptions, Table
from srflvm.data.tables.text import _can_be_entry

# A byte order mark at the beginning of a file is not part of its first name.
ANY_TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\ufeff"), max_size=8)
# Texts that look like numbers, or like several fields or lines.
AWKWARD_TEXTS = st.text("12.,;|\t\"'\r\n =+-_aNé", max_size=8) | st.text("12;|,\t", max_size=3)
TEXTS = ANY_TEXTS | AWKWARD_TEXTS
NAMES = TEXTS.map(str.strip).filter(bool)
ENDINGS = st.sampled_from([".csv", ".csv.gz", ".tsv", ".tsv.gz"])


@st.composite
def tables(draw, dtypes=(np.float64, np.float32)):
    dtype = np.dtype(draw(st.sampled_from(dtypes)))
    shape = draw(st.tuples(st.integers(1, 5), st.integers(1, 4)))
    numbers = st.floats(width=8 * dtype.itemsize)
    values = draw(hnp.arrays(dtype, shape, elements=numbers | st.integers(-3, 3).map(float)))
    id_name, *columns = draw(st.lists(NAMES, min_size=shape[1] + 1, max_size=shape[1] + 1, unique=True))
    ids = draw(st.lists(TEXTS, min_size=shape[0], max_size=shape[0]) | st.none())
    return Table(ArraySource(values), columns, ids, id_name)


def write_and_open(table, ending, options, **filled):
    """Write a table to a new file, with the entries of `filled` in the place of missing ones, and open it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"t{ending}"
        (write_filled if filled else write_table)(path, table, **filled)
        return open_table(path, options)


def options_for(table, **more):
    return ReadOptions(header=True, id_column=None if table.ids is None else table.id_name, **more)


def assert_same(found, table):
    """Compare numbers in their precision: those of single precision are written with their own digits."""
    np.testing.assert_array_equal(found.values.astype(table.values.dtype), table.values)
    assert (found.columns, found.ids) == (table.columns, table.ids)


@settings(deadline=None)
@given(tables(), ENDINGS)
def test_text_tables_come_back_with_their_names(table, ending):
    found = write_and_open(table, ending, options_for(table))
    assert_same(found, table)
    assert found.id_name == (table.id_name if table.ids else "id")


@settings(deadline=None)
@given(tables(), ENDINGS)
def test_text_tables_without_names_come_back_without(table, ending):
    table = Table(table.rows)
    assert_same(write_and_open(table, ending, ReadOptions(header=False)), table)


@settings(deadline=None)
@given(tables(dtypes=[np.float64]), ENDINGS, ENDINGS, st.floats(allow_nan=False))
def test_filled_text_tables_differ_in_missing_entries_only(table, ending, other, number):
    kept = write_and_open(table, ending, options_for(table, keep=True))
    missing = np.isnan(table.values)
    found = write_and_open(kept, other, options_for(table), filled=np.full(missing.shape, number))
    assert_same(found, table.with_values(np.where(missing, number, table.values)))


LEVELS = NAMES.filter(lambda text: not _can_be_entry(text) and text.lower() not in ("true", "false", "+"))


@settings(deadline=None)
@given(
    st.lists(st.tuples(LEVELS, LEVELS | st.none(), st.integers(-3, 3)), min_size=1, max_size=5),
    st.lists(NAMES, min_size=3, max_size=3, unique=True),
    ENDINGS,
)
def test_texts_come_back(rows, names, ending):
    first, second, numbers = zip(*rows, strict=True)
    parts = (Entries.of(first), Entries(as_objects(second), "string"), Entries.of(numbers))
    table = Table(Frame(tuple(names), parts), names)
    options = ReadOptions(header=True, frames="all", mixed=frozenset(names))
    found = write_and_open(table, ending, options)
    assert found.columns == names
    assert found.frame[names[0]].tolist() == list(first)
    assert found.frame[names[2]].tolist() == list(numbers)
    if any(second):
        assert found.frame[names[1]].tolist() == list(second)


def test_names_with_other_delimiters_are_quoted_if_they_would_be_taken_for_fields(tmp_path):
    table = Table.of(np.array([[5.0], [6.0]]), ["v;w"])
    write_table(tmp_path / "plain.csv", table)
    assert (tmp_path / "plain.csv").read_text() == "v;w\n5\n6\n"
    write_table(tmp_path / "quoted.csv", Table(table.rows, table.columns, ["1;2", "3;4"]))
    assert (tmp_path / "quoted.csv").read_text() == 'id,"v;w"\n"1;2",5\n"3;4",6\n'
