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
        text_table(tmp_path, "id,gene,a\nr1,0|1,1\nr2,1|1,2\n", frames="none")
    with pytest.raises(DataError, match="has 2 fields in line 3 and 3 before"):
        text_table(tmp_path, "a;b;c\n1;2;3\n1;2\n")


@pytest.mark.parametrize(
    ("text", "row"),
    [
        ("a;b\n1,5;2\n", [1.5, 2.0]),
        ("a;b\n1.234,5;2\n3;4\n", [1234.5, 2.0]),
        ("a;b\n-1.234.567;,5\n3;4\n", [-1234567.0, 0.5]),
        ("a\tb\n1\t2,5e-3\n", [1.0, 2.5e-3]),
        ("1,5;2,5\n3,5;4,5\n", [1.5, 2.5]),
        ('a,b\n1,"2,5"\n', [1.0, 2.5]),
        ("a;b\n1,234;2\n", [1.234, 2.0]),
        ("a;b\n1.234;0.5\n", [1.234, 0.5]),
        ("a;b\n1.5;2\n", [1.5, 2.0]),
        ("kind;a\n1,5 mm;1.5\nx;2\n", [np.nan, 1.5]),
    ],
)
def test_decimal_signs_are_told_by_the_numbers(tmp_path, text, row):
    table = text_table(tmp_path, text, frames="all")
    found = [np.nan if part.has_texts else part.floats()[0] for part in table.rows.parts]
    np.testing.assert_array_equal(found[-2:] if table.ids is None else [np.nan, *found], row)


@pytest.mark.parametrize(
    ("decimal", "row"), [(".", [1234.0, 1234567.5]), (",", [1.234, np.nan]), (None, [np.nan, np.nan])]
)
def test_a_decimal_sign_can_be_told(tmp_path, decimal, row):
    text = 'a,b\n"1,234",2\n3,"1,234,567.5"\n'
    if decimal != ".":
        with pytest.raises(DataError, match="--decimal"):
            text_table(tmp_path, text if decimal else text.replace(",567.5", ""), decimal=decimal)
        return
    values = text_table(tmp_path, text, decimal=decimal).values
    assert [values[0, 0], values[1, 1]] == row


def test_points_that_may_be_decimals_or_thousands_are_refused(tmp_path):
    with pytest.raises(DataError, match=r"'1\.234', whose point may separate thousands or decimals"):
        text_table(tmp_path, "a;b\n1.234;0,5\n")


def test_files_with_decimal_commas_are_filled_with_decimal_commas(tmp_path):
    table = text_table(tmp_path, "a;b\n1,50;\n3;4,5\n", keep=True)
    write_filled(tmp_path / "f.csv", table, np.array([[1.5, 2.25], [3.0, 4.5]]))
    assert (tmp_path / "f.csv").read_text() == "a;b\n1,50;2,25\n3;4,5\n"
    write_filled(tmp_path / "f.tsv", table, np.array([[1.5, 2.25], [3.0, 4.5]]))
    assert (tmp_path / "f.tsv").read_text() == "a\tb\n1,50\t2,25\n3\t4,5\n"


def test_a_delimiter_can_be_told(tmp_path):
    table = text_table(tmp_path, "a b:c\n1:2\n", delimiter=":")
    assert (table.columns, table.values.tolist()) == (["a b", "c"], [[1.0, 2.0]])
    assert table.notes[0] == "fields: separated by ':'"


def entries(table):
    """Return the entries of a frame by column, NaN and None as None."""
    return {
        name: [None if value is None or value != value else value for value in table.frame[name].tolist()]
        for name in table.frame
    }


def test_texts_truth_values_and_numbers_are_columns_of_a_frame(tmp_path):
    text = "kind,n,is,old\na,1,TRUE,yes\n b ,?,FALSE,no\na,3,-,\nNA,4,FALSE,yes\n"
    table = text_table(tmp_path, text)
    assert entries(table) == {
        "kind": ["a", "b", "a", None],
        "n": [1.0, None, 3.0, 4.0],
        "is": [1.0, 0.0, None, 0.0],
        "old": ["yes", "no", None, "yes"],
    }
    assert [part.form for part in table.frame.parts] == ["string", "float64", "bool", "string"]
    assert table.notes[-1] == "missing entries: also written as '-', '?'"
    assert table.count_observed().tolist() == [4, 3, 2, 3]
    with pytest.raises(DataError, match="Column 'kind' has other entries than numbers"):
        table.values  # noqa: B018


def test_filled_texts_are_written_as_the_file_has_them(tmp_path):
    text = "kind,n,is,old\na,1.0,TRUE,yes\n b ,?,FALSE,no\na,3,-,\nNA,4,FALSE,yes\n"
    table = text_table(tmp_path, text, keep=True)
    kind, n, true, old = table.frame.parts
    parts = {
        0: kind.filled(kind.is_missing(), ["=b"]),
        1: n.filled(n.is_missing(), [0.5]),
        2: true.filled(true.is_missing(), [True]),
        3: old.filled(old.is_missing(), ["no"]),
    }
    write_filled(tmp_path / "f.csv", table, table.frame.with_parts(parts))
    expected = "kind,n,is,old\na,1.0,TRUE,yes\n b ,0.5,FALSE,no\na,3,TRUE,no\n{}=b,4,FALSE,yes\n"
    assert (tmp_path / "f.csv").read_text() == expected.format("")
    write_filled(tmp_path / "f.csv", table, table.frame.with_parts(parts), escape_formulas=True)
    assert (tmp_path / "f.csv").read_text() == expected.format("'")
    write_filled(tmp_path / "f.parquet", table, table.frame.with_parts(parts))
    assert pq.read_table(tmp_path / "f.parquet").to_pydict() == {
        "kind": ["a", "b", "a", "=b"],
        "n": [1.0, 0.5, 3.0, 4.0],
        "is": [True, False, True, False],
        "old": ["yes", "no", "no", "yes"],
    }


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        (["+", "-", "?"], ["+", "-", None]),
        (["a", "none", "None"], ["a", "none", None]),
        (["a", ".", "--"], ["a", None, None]),
        (["a", "#N/A", "<NA>"], ["a", None, None]),
        (["a", "gone", " gone "], ["a", None, None]),
    ],
)
def test_ways_to_say_missing_among_texts(tmp_path, fields, found):
    lines = "".join(f"{n},{field}\n" for n, field in enumerate(fields))
    table = text_table(tmp_path, f"a,b\n{lines}", marks=frozenset(["gone"]))
    assert entries(table)["b"] == found


def test_further_texts_for_missing_entries_may_be_numbers(tmp_path):
    table = text_table(tmp_path, "a,b\n1,-999\n-999,2\n", marks=frozenset(["-999"]))
    np.testing.assert_array_equal(table.values, [[1.0, np.nan], [np.nan, 2.0]])


def test_texts_far_below_numbers_make_a_column_of_texts(tmp_path):
    numbers = "".join(f"{n},0{n % 3}\n" for n in range(60))
    table = text_table(tmp_path, f"a,b\n{numbers}60,x\n")
    assert entries(table)["b"] == [f"0{n % 3}" for n in range(60)] + ["x"]
    (warning,) = table.warnings
    assert "'x' in line 62, column 'b', among numbers: all are taken as levels" in warning
    many = "".join(f"{n},{n}\n" for n in range(60))
    with pytest.raises(DataError, match=r"--missing 'not known'\. .* --column b=categorical"):
        text_table(tmp_path, f"a,b\n{many}60,not known\n")
    table = text_table(tmp_path, f"a,b\n{many}60,not known\n", mixed=frozenset(["b"]))
    assert entries(table)["b"][59:] == ["59", "not known"]


@pytest.mark.parametrize(
    ("text", "how", "ids", "columns"),
    [
        ("kind,a\nx,1\ny,2\nx,3\n", {}, None, ["kind", "a"]),
        ("kind,a\nx,1\ny,2\nz,3\n", {}, ["x", "y", "z"], ["a"]),
        ("kind,a\nx,1\ny,2\nNA,3\n", {}, None, ["kind", "a"]),
        ("kind,a\nx,1\ny,2\nz,3\n", {"mixed": frozenset(["kind"])}, None, ["kind", "a"]),
        ("kind,a\nx,1\ny,2\nx,3\n", {"id_column": "kind"}, ["x", "y", "x"], ["a"]),
        ("kind,a\nx,1\ny,2\nx,3\n", {"known": ("a",)}, ["x", "y", "x"], ["a"]),
        (
            "kind,a\nx,1\ny,2\nz,3\n",
            {"known": ("kind", "a"), "levels": (frozenset("xyz"), None)},
            None,
            ["kind", "a"],
        ),
        ("kind\nx\ny\nz\n", {}, None, ["kind"]),
        ("x,1\ny,2\nx,3\n", {}, None, None),
        (",a\nx,1\ny,2\nx,3\n", {}, ["x", "y", "x"], ["a"]),
    ],
)
def test_a_first_column_is_row_ids_only_if_it_names_rows(tmp_path, text, how, ids, columns):
    table = text_table(tmp_path, text, **how)
    assert (table.ids, table.columns) == (ids, columns)


def test_a_first_line_whose_texts_occur_again_is_data(tmp_path):
    table = text_table(tmp_path, "x,u,1\ny,u,2\nx,v,3\n")
    assert (table.columns, table.shape) == (None, (3, 3))
    assert text_table(tmp_path, "x,u,n\ny,u,2\ny,v,3\n").columns == ["x", "u", "n"]
    assert text_table(tmp_path, "x,u\ny,w\ny,v\n").columns == ["x", "u"]


def test_columns_of_a_model_are_read_as_it_knows_them(tmp_path):
    levels = {"known": ("k", "n", "t"), "levels": (frozenset(["1", "NA", "x"]), None, frozenset())}
    table = text_table(tmp_path, "k,n,t,other\n1,2,true,x\nNA,3,,y\n?,4,false,z\n", frames="all", **levels)
    assert entries(table) == {"k": ["1", "NA", None], "n": [2.0, 3.0, 4.0], "t": [1.0, None, 0.0]}
    assert table.ignored == ("other",)
    with pytest.raises(DataError, match="'high' in line 3, column 'n', which is not a number"):
        text_table(tmp_path, "k,n,t\n1,2,true\nx,high,true\n", frames="all", **levels)


@pytest.mark.parametrize(("frames", "is_frame"), [("none", False), ("texts", False), ("small", True)])
@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_numbers_are_a_frame_if_asked_for(tmp_path, ending, frames, is_frame, monkeypatch):
    path = tmp_path / f"t.{ending}"
    write_table(path, Table.of(np.arange(6.0).reshape(2, 3), ["a", "b", "c"]))
    found = open_table(path, ReadOptions(frames=frames))
    assert (found.frame is not None) == is_frame
    np.testing.assert_array_equal(found.values, [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]])
    monkeypatch.setattr("srflvm.data.tables.table.MOST_CELLS_OF_FRAMES", 5)
    assert open_table(path, ReadOptions(frames=frames)).frame is None


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


@pytest.mark.parametrize(
    ("kinds", "how", "ids", "columns"),
    [
        (["x", "y", "x"], {}, None, ["kind", "a"]),
        (["x", "y", "z"], {}, ("x", "y", "z"), ["a"]),
        (["x", "y", None], {}, None, ["kind", "a"]),
        (["x", "y", "z"], {"mixed": frozenset(["kind"])}, None, ["kind", "a"]),
        (["x", "y", "x"], {"known": ("a",)}, ("x", "y", "x"), ["a"]),
        (["x", "y", "z"], {"known": ("kind", "a")}, None, ["kind", "a"]),
        (["x", "y", "z"], {"leave_out": ("kind",)}, None, ["a"]),
    ],
)
def test_a_first_column_of_parquet_is_row_ids_only_if_it_names_rows(tmp_path, kinds, how, ids, columns):
    pq.write_table(pa.table({"kind": kinds, "a": [1.0, 2.0, 3.0]}), tmp_path / "t.parquet")
    table = open_table(tmp_path / "t.parquet", ReadOptions(**how))
    assert (table.ids, list(table.columns)) == (ids, columns)
    assert (table.frame is not None) == ("kind" in columns)


def test_texts_of_parquet_are_written_as_text(tmp_path):
    columns = {
        "k": ["x", None],
        "n": [1, None],
        "t": [None, True],
        "d": pa.array(["=u", "v"]).dictionary_encode(),
    }
    pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    table = open_table(tmp_path / "t.parquet")
    write_table(tmp_path / "t.csv", table)
    assert (tmp_path / "t.csv").read_text() == "k,n,t,d\nx,1,,=u\n,,true,v\n"
    write_table(tmp_path / "e.csv", table, escape_formulas=True)
    assert (tmp_path / "e.csv").read_text() == "k,n,t,d\nx,1,,'=u\n,,true,v\n"


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
        text_table(tmp_path, "a,b\n1,1_1\n3,4\n", frames="none")


@pytest.mark.parametrize("ending", ["csv", "tsv"])
@pytest.mark.parametrize("name", ["\rfirst", "fir\rst", "first\r\n", "fir\nst", 'a "b"', "a,b\tc"])
def test_names_with_ends_of_lines_and_quotes_come_back(tmp_path, ending, name):
    path = tmp_path / f"t.{ending}"
    write_table(path, Table(ArraySource(VALUES), [f"a{name}", "b", "c"], [name, "zwei", "3rd"], "id"))
    found = open_table(path)
    assert list(found.ids) == [name, "zwei", "3rd"]
    assert list(found.columns) == [f"a{name}".strip(), "b", "c"]
