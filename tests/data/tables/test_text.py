import gzip

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy import sparse

from srflvm import DataError
from srflvm.data.sources import ArraySource
from srflvm.data.tables.formats import open_table, write_filled, write_table
from srflvm.data.tables.table import ReadOptions, Table

VALUES = np.array([[1.0, np.nan, 0.1 + 0.2], [1e-300, -2.5, 3.0], [np.pi, 1e300, np.nan]])
COLUMNS, IDS = ["a", "b, c", "ü"], ["first", "zwei", "3rd"]


def text_table(folder, text, name="t.csv", **how):
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return open_table(path, ReadOptions(**how))


def kept(path, table, filled):
    write_filled(path, table, filled)
    return path


@pytest.mark.parametrize("ending", ["csv", "csv.gz", "tsv", "tsv.gz", "parquet", "npz", "zarr"])
def test_numbers_and_names_come_back_bit_for_bit(tmp_path, ending):
    path = tmp_path / f"t.{ending}"
    write_table(path, Table(ArraySource(VALUES), COLUMNS, IDS, "name"))
    table = open_table(path)
    np.testing.assert_array_equal(table.values, VALUES)
    assert (list(table.columns), list(table.ids)) == (COLUMNS, IDS)
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("ending", ["csv", "npy", "npz", "zarr"])
def test_tables_without_names_stay_without(tmp_path, ending):
    path = tmp_path / f"t.{ending}"
    write_table(path, Table.of(VALUES))
    table = open_table(path)
    np.testing.assert_array_equal(table.values, VALUES)
    assert (table.columns, table.ids) == (None, None)


def test_the_same_table_gives_the_same_gzipped_bytes(tmp_path):
    for name in ("a.csv.gz", "b.csv.gz"):
        write_table(tmp_path / name, Table.of(VALUES, COLUMNS))
    assert (tmp_path / "a.csv.gz").read_bytes() == (tmp_path / "b.csv.gz").read_bytes()
    assert gzip.decompress((tmp_path / "a.csv.gz").read_bytes()).startswith(b'a,"b, c",')


def test_single_precision_is_written_with_its_own_digits(tmp_path):
    write_table(tmp_path / "t.csv", Table.of(np.array([[0.1, 2.0]], np.float32)))
    assert (tmp_path / "t.csv").read_text() == "0.1,2\n"


@pytest.mark.parametrize(
    ("text", "columns", "ids"),
    [
        ("a,b\n1,2\n3,4\n", ["a", "b"], None),
        ("1,2\n3,4\n", None, None),
        ("x,1,2.5\ny,3,4\n", None, ["x", "y"]),
        ("name,1,2\nx,1,2\ny,3,4\n", ["1", "2"], ["x", "y"]),
        (",a,b\n0,1,2\n1,3,4\n", ["a", "b"], ["0", "1"]),
        (",0,1\n0,1,2\n1,3,4\n", ["0", "1"], ["0", "1"]),
        ("a,b\nx,1,2\ny,3,4\n", ["a", "b"], ["x", "y"]),
        ("\ufeffa,b\r\n1,2\r\n\r\n3,4\r\n", ["a", "b"], None),
        ("a\n1\n3\n", ["a"], None),
        ("0,1,2\n1,2,3\n3,4,5\n", ["0", "1", "2"], None),
        ("2020_1,2020_2\n1,2\n3,4\n", ["2020_1", "2020_2"], None),
    ],
)
def test_what_is_taken_for_names(tmp_path, text, columns, ids):
    table = text_table(tmp_path, text)
    assert (table.columns, table.ids) == (columns, ids)
    assert table.values[:, 0].tolist() == [1.0, 3.0]


PLAIN = "name,a,b\nx,1,2.5\ny,3,\n"
TEXTS = {
    "semicolons": PLAIN.replace(",", ";"),
    "tabs": PLAIN.replace(",", "\t"),
    "vertical bars": PLAIN.replace(",", "|"),
}


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz", "t.tsv"])
@pytest.mark.parametrize("separator", TEXTS)
def test_other_separators_are_told_by_the_lines(tmp_path, separator, name):
    path = tmp_path / name
    encoded = TEXTS[separator].encode()
    path.write_bytes(gzip.compress(encoded) if name.endswith("gz") else encoded)
    table = open_table(path, ReadOptions(keep=True))
    assert (table.columns, table.ids, table.id_name) == (["a", "b"], ["x", "y"], "name")
    np.testing.assert_array_equal(table.values, [[1.0, 2.5], [3.0, np.nan]])
    if (separator, name) != ("tabs", "t.tsv"):
        assert table.notes[0] == f"fields: separated by {separator}"
    write_filled(tmp_path / "f.csv", table, np.array([[1.0, 2.5], [3.0, 7.0]]))
    assert (tmp_path / "f.csv").read_text() == "name,a,b\nx,1,2.5\ny,3,7\n"


@pytest.mark.parametrize(
    ("text", "columns", "first"),
    [
        ("a,b\n1,2\n", ["a", "b"], [1.0, 2.0]),
        ("a\n1\n", ["a"], [1.0]),
        ("1.5\n2.5\n", None, [1.5]),
        ("1;2\n", None, [1.0, 2.0]),
        ('"x;1","y;2"\n1,2\n', ["x;1", "y;2"], [1.0, 2.0]),
        ('"x,1";"y,2"\n1;2\n', ["x,1", "y,2"], [1.0, 2.0]),
        ('a;"b\nc;d"\n1;2\n', ["a", "b\nc;d"], [1.0, 2.0]),
        ("size, cm;mass, kg\n1;2\n3;4\n", ["size, cm", "mass, kg"], [1.0, 2.0]),
        ("a;b\nr1;1;2\nr2;3;4\n", ["a", "b"], [1.0, 2.0]),
    ],
)
def test_separators_in_names_texts_and_single_columns(tmp_path, text, columns, first):
    table = text_table(tmp_path, text)
    assert (table.columns, table.values[0].tolist()) == (columns, first)


def test_errors_are_those_of_the_separator_that_is_meant(tmp_path):
    with pytest.raises(DataError, match=r"'0\|1' in line 2, column 'gene'"):
        text_table(tmp_path, "id,gene,a\nr1,0|1,1\nr2,1|1,2\n")
    with pytest.raises(DataError, match="has 2 fields in line 3 and 3 before"):
        text_table(tmp_path, "a;b;c\n1;2;3\n1;2\n")


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("a;b\n1,5;2\n", "'1,5' in line 2, column 'a'"),
        ("a;b\n1;2\n3;1.234,5\n", "'1.234,5' in line 3, column 'b'"),
        ("a\tb\n1\t2,5e-3\n", "'2,5e-3' in line 2, column 'b'"),
        ("1,5;2,5\n3,5;4,5\n", "'1,5' in line 1, column 1"),
        ('a,b\n1,"2,5"\n', "'2,5' in line 2, column 'b'"),
    ],
)
def test_decimal_commas_are_named_with_a_remedy(tmp_path, text, place):
    with pytest.raises(DataError, match=rf"{place}, a number with a comma\. Write .* decimal=','"):
        text_table(tmp_path, text)


def test_a_header_can_be_told(tmp_path):
    assert text_table(tmp_path, "1,2\n3,4\n", header=True).columns == ["1", "2"]
    assert text_table(tmp_path, "x,0,1\ny,3,4\n", header=False).ids == ["x", "y"]


def test_ids_and_columns_to_leave_out_can_be_named(tmp_path):
    text = "city,a,key,b\nRome,1,7,2\nOslo,3,8,4\n"
    table = text_table(tmp_path, text, id_column="key", leave_out=("city",))
    assert (table.columns, table.ids, table.id_name) == (["a", "b"], ["7", "8"], "key")
    assert table.notes == ("column names: the first line", "row ids: column 3 ('key')", "left out: 'city'")


@pytest.mark.parametrize("hole", ["", " ", "NA", "nan", "-NaN", "null", "N/A", "None"])
def test_ways_to_say_missing(tmp_path, hole):
    table = text_table(tmp_path, f"a,b,c\n1,{hole},\n3,4,5\n")
    assert np.isnan(table.values[0, 1])


def test_filled_text_changes_holes_only(tmp_path):
    text = 'k;,"a ""x""",note,b\n"r,1",1.50,yes,\n r2 ,NA, no,+4.000e0\n'
    table = text_table(tmp_path, text, leave_out=("note",), keep=True)
    filled = np.where(np.isnan(table.values), [[0.0, 0.25], [7.0, 0.0]], table.values)
    path = kept(tmp_path / "f.csv", table, filled)
    assert path.read_text() == 'k;,"a ""x""",note,b\n"r,1",1.50,yes,0.25\n r2 ,7, no,+4.000e0\n'


def test_filled_parquet_keeps_types_and_other_columns(tmp_path):
    columns = {
        "city": ["Rome", "Oslo"],
        "n": pa.array([1, 2], pa.int64()),
        "x": pa.array([None, 0.5], pa.float32()),
        "m": pa.array([3, None], pa.int16()),
    }
    pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    table = open_table(tmp_path / "t.parquet", ReadOptions(keep=True))
    assert (table.ids, list(table.columns)) == (("Rome", "Oslo"), ["n", "x", "m"])
    filled = np.where(np.isnan(table.values), 9.25, table.values)
    found = pq.read_table(kept(tmp_path / "f.parquet", table, filled))
    assert found.to_pydict() == {"city": ["Rome", "Oslo"], "n": [1, 2], "x": [9.25, 0.5], "m": [3.0, 9.25]}
    assert [str(field.type) for field in found.schema] == ["string", "int64", "float", "double"]


def test_pandas_reads_filled_parquet_with_its_index(tmp_path):
    columns = {
        "n": pd.array([1, None], "Int64"),
        "b": pd.array([None, True], "boolean"),
        "x": np.array([0.5, np.nan], np.float32),
        "k": pd.array([3, 4], "Int64"),
    }
    pd.DataFrame(columns, index=["r0", "r1"]).to_parquet(tmp_path / "t.parquet")
    table = open_table(tmp_path / "t.parquet", ReadOptions(keep=True))
    filled = np.where(np.isnan(table.values), 9.25, table.values)
    found = pd.read_parquet(kept(tmp_path / "f.parquet", table, filled))
    np.testing.assert_array_equal(found.to_numpy(float), filled)
    assert found.index.tolist() == ["r0", "r1"]
    assert [str(kind) for kind in found.dtypes] == ["float64", "float64", "float32", "Int64"]


def test_sparse_matrices_and_parquet_stay_in_their_files(tmp_path):
    sparse.save_npz(tmp_path / "s.npz", sparse.csr_array(np.eye(3)))
    pq.write_table(pa.table({"a": [1.0, 2.0]}), tmp_path / "t.parquet")
    np.save(tmp_path / "t.npy", VALUES)
    for name in ("s.npz", "t.parquet", "t.npy"):
        assert not open_table(tmp_path / name).in_memory
    np.testing.assert_array_equal(open_table(tmp_path / "s.npz").values, np.eye(3))


@pytest.mark.parametrize(
    ("text", "header", "warned"),
    [
        ("1990,1991,1992\n1,2,3\n", None, True),
        (",1990,1991,1992\n7,1,2,3\n", None, True),
        ("city,1990,1991,1992\nx,1,2,3\n", None, True),
        ("1990,1991,1992\n1,2,3\n", False, False),
        ("1990,1991,1992\n1,2,3\n", True, False),
        ("1990,1992,1993\n1,2,3\n", None, False),
        ("-1.5,0.5,1.5\n1,2,3\n", None, False),
        ("0,1,2\n1,2,3\n", None, False),
    ],
)
def test_a_first_line_of_data_that_counts_is_warned_of(tmp_path, text, header, warned):
    table = text_table(tmp_path, text, header=header)
    assert (table.columns is None) == (header is not True and not text.startswith("0"))
    assert [("--header" in line, "--no-header" in line) for line in table.warnings] == [(True, True)] * warned


def test_underscores_are_not_part_of_numbers(tmp_path):
    with pytest.raises(DataError, match="'1_1' in line 2, column 'b', which is not a number"):
        text_table(tmp_path, "a,b\n1,1_1\n3,4\n")


@pytest.mark.parametrize("ending", ["csv", "tsv"])
@pytest.mark.parametrize("name", ["\rfirst", "fir\rst", "first\r\n", "fir\nst", 'a "b"', "a,b\tc"])
def test_names_with_ends_of_lines_and_quotes_come_back(tmp_path, ending, name):
    path = tmp_path / f"t.{ending}"
    write_table(path, Table(ArraySource(VALUES), [f"a{name}", "b", "c"], [name, "zwei", "3rd"], "id"))
    found = open_table(path)
    assert list(found.ids) == [name, "zwei", "3rd"]
    assert list(found.columns) == [f"a{name}".strip(), "b", "c"]
