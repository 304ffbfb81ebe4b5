import datetime
import decimal
import json
import sys

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from srflvm.data.schema import Column, Schema, level_frame
from srflvm.data.sources import is_frame
from srflvm.data.tables.frame import Frame
from srflvm.exceptions import DataError, ModelFileError
from srflvm.likelihoods import Categorical, NegativeBinomial, Ordinal

NAN = float("nan")


def of_pandas(**columns):
    return pd.DataFrame({name: pd.Series(values) for name, values in columns.items()})


def of_polars(**columns):
    return pl.DataFrame(columns, strict=False)


def of_arrow(**columns):
    return pa.table(columns)


MAKERS = {"pandas": of_pandas, "polars": of_polars, "pyarrow": of_arrow}


@pytest.fixture(params=MAKERS)
def make(request):
    return MAKERS[request.param]


def entries(frame, name):
    """Return the entries of a column as Python objects, None where missing."""
    part = frame[name]
    if isinstance(frame, pd.DataFrame):
        return [None if pd.isna(value) else value for value in part.tolist()]
    values = part.to_list() if isinstance(frame, pl.DataFrame) else part.to_pylist()
    return [None if value is None or value != value else value for value in values]


def dtypes(frame):
    if isinstance(frame, pa.Table):
        return [str(field.type) for field in frame.schema]
    return [str(dtype) for dtype in frame.dtypes]


def only(frame, given=None):
    (column,) = Schema.of(frame, given).columns
    return column


def codes(frame, given=None):
    return Schema.of(frame, given).encode(frame)[:, 0]


# ---- what columns are ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "kind", "levels", "fills_levels"),
    [
        ([0.5, 1.5, 2.5, None], "continuous", None, False),
        ([1.0, 1.0, 1.0, None], "continuous", None, False),
        ([7, 7, 7], "continuous", None, True),
        ([0, 1, 1, 0], "binary", (0, 1), True),
        ([2, 1, 2], "binary", (1, 2), True),
        ([-3.5, 8.25, None, 8.25], "binary", (-3.5, 8.25), False),
        ([1.0, 2.0, None, 3.0], "ordinal", (1.0, 2.0, 3.0), False),
        ([3, 1, 2, 1], "ordinal", (1, 2, 3), True),
        (list(range(5, 15)), "ordinal", tuple(range(5, 15)), True),
        (list(range(5, 16)), "continuous", None, True),
        ([1, 2, 4], "continuous", None, True),
        ([1.0, 1.5, 2.0], "continuous", None, False),
        ([True, False, True], "binary", (False, True), True),
        ([True, None, True], "binary", (False, True), True),
        (["b", "a", None, "b"], "binary", ("a", "b"), True),
        (["b", "a", "c", None], "categorical", ("a", "b", "c"), True),
        (["a", "a", None], "categorical", ("a",), True),
    ],
)
def test_the_rule_in_every_library(make, values, kind, levels, fills_levels):
    column = only(make(x=values))
    likelihood = {"continuous": "gaussian", "binary": "bernoulli"}.get(kind, kind)
    assert (column.kind, column.likelihood, column.levels) == (kind, likelihood, levels)
    assert [type(level) for level in column.levels or ()] == [type(level) for level in levels or ()]
    assert column.name == "x"
    assert column.fills_levels == fills_levels


@pytest.mark.parametrize(
    ("values", "kind", "levels"),
    [
        (pd.array([3, None, 1, 2], dtype="Int64"), "ordinal", (1, 2, 3)),
        (pd.array([1, None, 0], dtype="UInt8"), "binary", (0, 1)),
        (pd.array([1.5, None, 0.5, 3.0], dtype="Float64"), "continuous", None),
        (pd.array([True, None], dtype="boolean"), "binary", (False, True)),
        (pd.array(["b", None, "a"], dtype="string[python]"), "binary", ("a", "b")),
        (pd.array(["b", None, "a"], dtype="string[pyarrow]"), "binary", ("a", "b")),
        (pd.array(["b", None, "a"], dtype=pd.StringDtype(na_value=np.nan)), "binary", ("a", "b")),
        (pd.array(["b", None, "a"], dtype=pd.ArrowDtype(pa.string())), "binary", ("a", "b")),
        (pd.array([3, None, 1, 2], dtype=pd.ArrowDtype(pa.int8())), "ordinal", (1, 2, 3)),
        (pd.array([True, None], dtype=pd.ArrowDtype(pa.bool_())), "binary", (False, True)),
        (
            pd.array(["b", None, "a"], dtype=pd.ArrowDtype(pa.dictionary(pa.int8(), pa.string()))),
            "binary",
            ("b", "a"),
        ),
        (pd.array([1.5, NAN, 0.5, 3.0], dtype="Sparse[float]"), "continuous", None),
        (np.array([1, None, 2, 3], object), "ordinal", (1, 2, 3)),
        (np.array([True, None, False, NAN, pd.NaT], object), "binary", (False, True)),
        (np.array([True, 0.5, None, 2], object), "continuous", None),
        (np.array([decimal.Decimal("1.5"), None, decimal.Decimal(2)], object), "binary", (1.5, 2.0)),
        (np.array(["b", pd.NA, np.nan, "a"], object), "binary", ("a", "b")),
        (pd.Categorical(["b", "a", None, "c"]), "categorical", ("a", "b", "c")),
        (pd.Categorical(["b", "a"], categories=["c", "b", "a"]), "binary", ("b", "a")),
        (pd.Categorical([3, 1, 2], categories=[3, 2, 1]), "categorical", (3, 2, 1)),
        (
            pd.Categorical(["hi", "lo", "mid"], categories=["lo", "no", "mid", "hi"], ordered=True),
            "ordinal",
            ("lo", "mid", "hi"),
        ),
        (pd.Categorical(["hi", "lo"], categories=["lo", "mid", "hi"], ordered=True), "binary", ("lo", "hi")),
        (pd.Categorical(["lo"], categories=["lo", "mid", "hi"], ordered=True), "categorical", ("lo",)),
        (pd.cut([0.5, 1.5, 2.5], [0, 1, 2, 3]), "ordinal", ("(0, 1]", "(1, 2]", "(2, 3]")),
    ],
)
def test_types_of_pandas(values, kind, levels):
    column = only(pd.DataFrame({"x": pd.Series(values)}))
    assert (column.kind, column.levels) == (kind, levels)
    assert [type(level) for level in column.levels or ()] == [type(level) for level in levels or ()]


@pytest.mark.parametrize(
    ("series", "kind", "levels"),
    [
        (
            pl.Series(["hi", None, "lo", "mid"], dtype=pl.Enum(["lo", "mid", "no", "hi"])),
            "ordinal",
            "lo mid hi",
        ),
        (pl.Series(["hi", None, "lo"], dtype=pl.Enum(["lo", "mid", "hi"])), "binary", "lo hi"),
        (pl.Series(["hi", None, "lo", "mid"], dtype=pl.Categorical), "categorical", "hi lo mid"),
        (
            pl.Series(["hi", "lo", "mid"], dtype=pl.Categorical(pl.Categories("own"))),
            "categorical",
            "hi lo mid",
        ),
    ],
)
def test_categories_of_polars(series, kind, levels):
    column = only(pl.DataFrame({"x": series}))
    assert (column.kind, column.levels) == (kind, tuple(levels.split()))


def test_null_and_nan_of_polars_are_missing():
    frame = pl.DataFrame({"x": [0.5, None, NAN, 2.5, 1.0]})
    assert np.isnan(codes(frame)).tolist() == [False, True, True, False, False]


@pytest.mark.parametrize("ordered", [False, True])
def test_dictionaries_of_arrow(ordered):
    one = pa.DictionaryArray.from_arrays([0, None, 1], ["lo", "hi", "no"], ordered=ordered)
    other = pa.DictionaryArray.from_arrays([0, 1, 2], ["mid", None, "lo"], ordered=ordered)
    table = pa.table({"x": pa.chunked_array([one, other])})
    column = only(table)
    assert column.kind == ("ordinal" if ordered else "categorical")
    assert column.levels == ("lo", "hi", "mid")
    np.testing.assert_array_equal(codes(table), [0, NAN, 1, 2, NAN, 0])


def test_nan_in_a_dictionary_of_arrow_is_missing():
    table = pa.table({"x": pa.DictionaryArray.from_arrays([0, 1, 2], [2.5, NAN, 1.5])})
    assert only(table).levels == (2.5, 1.5)
    np.testing.assert_array_equal(codes(table), [0, NAN, 1])


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.string_view()], ids=str)
def test_texts_of_arrow(kind):
    table = pa.table({"x": pa.chunked_array([["b", None], ["a", "b"]], type=kind)})
    np.testing.assert_array_equal(codes(table), [1, NAN, 0, 1])


def test_decimals_are_numbers():
    values = [decimal.Decimal("1.25"), None, decimal.Decimal("3.50"), decimal.Decimal("2.00")]
    for frame in (
        pl.DataFrame({"x": pl.Series(values, dtype=pl.Decimal(8, 2))}),
        pa.table({"x": pa.array(values, pa.decimal128(8, 2))}),
        pd.DataFrame({"x": pd.array(values, dtype=pd.ArrowDtype(pa.decimal128(8, 2)))}),
    ):
        schema = Schema.of(frame)
        np.testing.assert_array_equal(schema.encode(frame)[:, 0], [1.25, NAN, 3.5, 2.0])
        filled = schema.decode(np.full((4, 1), 2.7501), frame)
        assert entries(filled, "x") == [values[0], decimal.Decimal("2.75"), *values[2:]]
        assert dtypes(filled) == dtypes(frame)
        assert dtypes(schema.decode(np.ones((2, 1)))) == dtypes(frame)


def test_large_integers_do_not_overflow():
    largest = 2**64 - 1
    for frame in (
        pd.DataFrame({"x": np.array([largest, 3, 12], np.uint64)}),
        pl.DataFrame({"x": pl.Series([largest, 3, 12], dtype=pl.UInt64)}),
        pa.table({"x": pa.array([largest, 3, 12], pa.uint64())}),
    ):
        schema = Schema.of(frame)
        np.testing.assert_array_equal(schema.encode(frame)[:, 0], [float(largest), 3, 12])
        new = entries(schema.decode(np.array([[1e30], [-5.0], [2.6]])), "x")
        assert new == [2**64 - 2**11, 0, 3]


# ---- what is given ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "choice", "kind", "likelihood", "levels", "encoded"),
    [
        ([0, 1, 0], "gaussian", "continuous", "gaussian", None, [0, 1, 0]),
        ([0, 1, 0], "continuous", "continuous", "gaussian", None, [0, 1, 0]),
        ([0, 1, 5], "Poisson", "continuous", "poisson", None, [0, 1, 5]),
        ([0, 1, 2], "Negative-Binomial", "continuous", "negative_binomial", None, [0, 1, 2]),
        ([0, 1, 2], NegativeBinomial(), "continuous", "negative_binomial", None, [0, 1, 2]),
        ([0, 1, 2], "student-t", "continuous", "student_t", None, [0, 1, 2]),
        ([0, 1, 2], "binomial", "continuous", "binomial", None, [0, 1, 2]),
        ([True, False], "poisson", "continuous", "poisson", None, [1, 0]),
        ([4, 9, 4], "bernoulli", "binary", "bernoulli", (4, 9), [0, 1, 0]),
        ([4, 9, 4], "binary", "binary", "bernoulli", (4, 9), [0, 1, 0]),
        ([0, 0, 0], "bernoulli", "binary", "bernoulli", (0, 1), [0, 0, 0]),
        ([1.0, 1.0], "bernoulli", "binary", "bernoulli", (0.0, 1.0), [1, 1]),
        ([1, 7, 3], "ordinal", "ordinal", "ordinal", (1, 3, 7), [0, 2, 1]),
        (["b", "c", "a"], "ordinal", "ordinal", "ordinal", ("a", "b", "c"), [1, 2, 0]),
        ([1, 7, 3], "categorical", "categorical", "categorical", (1, 3, 7), [0, 2, 1]),
        ([1, 7, 3], Ordinal(), "ordinal", "ordinal", (1, 3, 7), [0, 2, 1]),
        ([1, 4, 3], Ordinal(n_levels=5), "ordinal", "ordinal", None, [1, 4, 3]),
        ([1, 4, 3], Ordinal(levels=((1, 2, 3, 4),)), "ordinal", "ordinal", None, [1, 4, 3]),
        ([0, 2, 0], Categorical(n_categories=(4,)), "categorical", "categorical", None, [0, 2, 0]),
        (["b", "a"], Categorical(n_categories=(4,)), "categorical", "categorical", ("a", "b"), [1, 0]),
    ],
)
def test_what_is_given_decides(make, values, choice, kind, likelihood, levels, encoded):
    frame = make(x=values)
    column = only(frame, {"x": choice})
    assert (column.kind, column.likelihood, column.levels) == (kind, likelihood, levels)
    np.testing.assert_array_equal(codes(frame, {"x": choice}), encoded)


def test_a_categorical_column_of_floats_is_filled_by_levels(make):
    frame = make(x=[1.0, 7.0, None, 3.0])
    schema = Schema.of(frame, {"x": "categorical"})
    assert schema.columns[0].fills_levels
    assert entries(schema.decode(np.full((4, 1), 2.0), frame), "x") == [1.0, 7.0, 7.0, 3.0]


def test_columns_are_given_by_name_by_index_and_together(make):
    frame = make(a=[1, 2], b=[1, 2], c=[1, 2], d=[1, 2])
    schema = Schema.of(frame, {"a": "poisson", np.int64(1): "gaussian", ("c", 3): "categorical"})
    found = [column.likelihood for column in schema.columns]
    assert found == ["poisson", "gaussian", "categorical", "categorical"]


def test_a_name_may_itself_be_a_tuple():
    frame = pd.DataFrame([[1, 2], [2, 3]], columns=pd.MultiIndex.from_tuples([("a", 0), ("a", 1)]))
    schema = Schema.of(frame, {("a", 1): "poisson"})
    assert [column.likelihood for column in schema.columns] == ["bernoulli", "poisson"]


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ({"agee": "gaussian"}, r"column 'agee', which the frame does not have \(there is 'age'\)"),
        ({2: "gaussian"}, "its index from 0 to 1"),
        ({1.5: "gaussian"}, "give a column's name"),
        ({"age": "normal"}, "likelihood='normal' is not known"),
        ({"age": None}, "likelihood=None is not known"),
        ({"age": "gaussian", 0: "poisson"}, r"Two likelihoods are given for column 0 \('age'\)"),
    ],
)
def test_what_is_given_must_exist(make, choice, message):
    with pytest.raises(ValueError, match=message):
        Schema.of(make(age=[1, 2], size=[3, 4]), choice)


@pytest.mark.parametrize(
    ("values", "choice", "message"),
    [
        (["a", "b"], "gaussian", r"Column 0 \('x'\) holds text: 'a' at row 0 is not a number"),
        ([None, "b"], "poisson", r"'b' at row 1"),
        ([1, 2, 3], "bernoulli", r"3 different values, 1, 2, 3, but 'bernoulli' needs exactly two"),
        (["a", "a"], "bernoulli", "1 different values, 'a', but 'bernoulli' needs exactly two"),
        ([4, 4], "ordinal", "'ordinal' needs at least two"),
    ],
)
def test_what_is_given_must_suit_the_column(make, values, choice, message):
    with pytest.raises(DataError, match=message):
        Schema.of(make(x=values), {"x": choice})


# ---- what is refused -------------------------------------------------------------------------------

DAY = datetime.date(2020, 1, 1)


@pytest.mark.parametrize(
    "frame",
    [
        of_polars(x=[DAY, None]),
        of_arrow(x=[DAY, None]),
        of_pandas(x=[DAY, None]),
        of_pandas(x=pd.to_datetime(["2020-01-01", None])),
        of_pandas(x=pd.to_datetime(["2020-01-01", None]).tz_localize("UTC")),
        of_pandas(x=pd.to_timedelta([1, 2])),
        of_pandas(x=pd.period_range("2020", periods=2)),
        of_pandas(x=pd.Categorical(pd.to_datetime(["2020-01-01", "2020-01-02"]))),
        of_pandas(x=pd.array([DAY, None], dtype=pd.ArrowDtype(pa.date32()))),
        of_polars(x=[datetime.timedelta(1)]),
        of_polars(x=[datetime.time(1)]),
        of_arrow(x=[datetime.datetime(2020, 1, 1)]),
    ],
)
def test_dates_and_times_are_refused(frame):
    with pytest.raises(DataError, match=r"Column 0 \('x'\) holds dates or times. Turn them into numbers"):
        Schema.of(frame)


@pytest.mark.parametrize(
    ("frame", "dtype"),
    [
        (of_pandas(x=[[1], [2]]), "list"),
        (of_pandas(x=[1, {}]), "dict"),
        (of_pandas(x=[(1,), (2,)]), "tuple"),
        (of_pandas(x=[b"a", b"b"]), "bytes"),
        (of_pandas(x=[1j, 2.0]), "complex128"),
        (of_pandas(x=np.array([1j, None], object)), "complex"),
        (of_pandas(x=pd.interval_range(0, 2)), "interval"),
        (of_polars(x=[[1], [2]]), "List"),
        (of_polars(x=[{"a": 1}]), "Struct"),
        (of_polars(x=[b"a"]), "Binary"),
        (pl.DataFrame({"x": pl.Series([object()], dtype=pl.Object)}), "Object"),
        (of_arrow(x=[[1], [2]]), "list"),
        (of_arrow(x=[{"a": 1}]), "struct"),
        (of_arrow(x=[b"a"]), "binary"),
    ],
)
def test_nested_and_other_types_are_refused(frame, dtype):
    with pytest.raises(DataError, match=rf"Column 0 \('x'\) holds values of type {dtype}.*drop the column"):
        Schema.of(frame)


def test_texts_among_numbers_are_refused():
    frame = pd.DataFrame({"a": [1, 2, 3], "x": [1.5, "unknown", 2]})
    with pytest.raises(DataError, match=r"Column 1 \('x'\) has numbers and texts: 'unknown' at row 1"):
        Schema.of(frame)
    with pytest.raises(DataError, match="numbers and texts: 'a' at row 1"):
        Schema.of(pd.DataFrame({"x": pd.Categorical([1, "a"])}))
    with pytest.raises(DataError, match="numbers and texts"):
        Schema.of(frame, {"x": "categorical"})


def test_unused_categories_of_another_type_do_no_harm():
    frame = pd.DataFrame({"x": pd.Categorical([1, 2, None], categories=[1, "a", 2])})
    assert only(frame).levels == (1, 2)


@pytest.mark.parametrize(
    ("values", "n_levels"),
    [
        ([f"id {i}" for i in range(11)], 11),
        ([f"id {i}" for i in range(11)] + [None] * 200, 11),
        ([f"id {i % 51}" for i in range(500)], 51),
        ([f"id {i % 15}" for i in range(25)], 15),
    ],
    ids=["one each", "one each, mostly missing", "more than 50", "more than half"],
)
def test_identifiers_are_refused(make, values, n_levels):
    frame = make(y=list(range(len(values))), x=values)
    with pytest.raises(DataError, match=rf"Column 1 \('x'\) has {n_levels} different texts.*drop.*\['x'\]"):
        Schema.of(frame)
    assert Schema.of(frame, {"x": "categorical"}).columns[1].likelihood == "categorical"


@pytest.mark.parametrize(
    "values",
    [[f"id {i}" for i in range(10)], [f"id {i % 50}" for i in range(100)], ["a", "b", "c", "d"]],
    ids=["ten", "fifty", "few rows"],
)
def test_few_levels_are_no_identifiers(make, values):
    assert only(make(x=values)).kind == "categorical"


def test_categories_may_be_identifiers_too():
    values = [f"id {i}" for i in range(60)]
    for frame in (
        pd.DataFrame({"x": pd.Categorical(values)}),
        of_polars(x=pl.Series(values, dtype=pl.Enum(values))),
    ):
        with pytest.raises(DataError, match="identifier"):
            Schema.of(frame)
    # categories that do not occur are not counted
    assert only(pd.DataFrame({"x": pd.Categorical(["id 1", "id 2"], categories=values)})).kind == "binary"


def test_texts_that_are_numbers_get_a_hint(make):
    values = [*(str(0.5 * i) for i in range(20)), "?"]
    with pytest.raises(DataError, match="Most of them are numbers: turn the column into numbers"):
        Schema.of(make(x=values))


@pytest.mark.parametrize(
    "frame",
    [
        of_pandas(a=[1, 2], x=[NAN, NAN]),
        of_pandas(a=[1, 2], x=[None, None]),
        of_pandas(a=[1, 2], x=pd.array([None, None], dtype="string")),
        of_pandas(a=[1, 2], x=pd.Categorical([None, None], categories=["a"])),
        of_polars(a=[1, 2], x=[None, None]),
        of_polars(a=[1, 2], x=pl.Series([None, None], dtype=pl.String)),
        of_polars(a=[1, 2], x=[NAN, None]),
        of_arrow(a=[1, 2], x=[None, None]),
        of_arrow(a=[1, 2], x=pa.array([None, None], pa.string())),
    ],
)
def test_columns_without_an_entry_are_refused(frame):
    with pytest.raises(DataError, match=r"Column 1 \('x'\) has no observed entry. Drop it, .*drop"):
        Schema.of(frame)


def test_infinity_is_refused(make):
    with pytest.raises(DataError, match=r"Column 0 \('x'\) holds infinity at row 2; 1 of its entries"):
        Schema.of(make(x=[0.5, None, float("inf")]))


def test_names_must_differ():
    pandas = pd.DataFrame([[1, 2, 3]], columns=["a", "b", "a"])
    arrow = pa.table([[1], [2], [3]], names=["a", "b", "a"])
    for frame in (pandas, arrow):
        with pytest.raises(DataError, match="Several columns have the name 'a'"):
            Schema.of(frame)
        # repeated names of other columns do no harm later
        assert Schema.of(of_pandas(b=[2, 3])).encode(frame).tolist() == [[0.0]]
        with pytest.raises(DataError, match="Several columns"):
            Schema.of(of_pandas(a=[1, 2])).encode(frame)


def test_a_frame_needs_columns(make):
    with pytest.raises(DataError, match="no columns"):
        Schema.of(make())


def test_only_frames_are_taken(make):
    schema = Schema.of(make(x=[1, 2]))
    for wrong in (np.zeros((2, 2)), [[1]], {"x": [1]}, None):
        assert not is_frame(wrong)
        with pytest.raises(
            TypeError, match="Expected a pandas DataFrame, a polars DataFrame or a pyarrow Table"
        ):
            schema.encode(wrong)
    assert is_frame(make(x=[1]))


def test_a_frame_is_of_one_library_only():
    frames = {name: make(x=[1.0]) for name, make in MAKERS.items()}
    frames["file"] = Frame.of_numbers(["x"], np.ones((1, 1)))
    for name, frame in frames.items():
        assert is_frame(frame)
        assert [library for library in frames if is_frame(frame, library)] == [name]
        assert Schema.of(frame).library == name


def test_libraries_that_are_not_imported_have_no_frames(monkeypatch):
    frame = of_polars(x=[1])
    for name in MAKERS:
        monkeypatch.delitem(sys.modules, name)
    assert not is_frame(frame)


# ---- encoding --------------------------------------------------------------------------------------


@pytest.mark.parametrize("other", MAKERS)
def test_frames_of_other_libraries_and_orders(make, other):
    schema = Schema.of(
        make(number=[0.5, 2.5, 1.0], text=["b", "a", "c"], grade=[1, 2, 3], flag=[True, False, True])
    )
    frame = MAKERS[other](
        flag=[None, True], extra=["z", "z"], text=["c", None], number=[None, 7.5], grade=[None, 3]
    )
    np.testing.assert_array_equal(schema.encode(frame), [[NAN, 2, NAN, NAN], [7.5, NAN, 2, 1]])


def test_missing_columns_are_listed(make):
    schema = Schema.of(make(age=[1, 2], size=[3, 4], name=["a", "b"]))
    with pytest.raises(DataError, match=r"no column 'age', 'name' \(there is 'Age'\).*2 of 3 are missing"):
        schema.encode(make(Age=[1], size=[3]))


def test_unknown_levels(make):
    schema = Schema.of(make(text=["b", "a", "c"], grade=[1, 2, 3]))
    frame = make(text=["b", None, "d"], grade=[1, 2, 2])
    message = r"Column 0 \('text'\) has the level 'd' at row 2, .*'a', 'b', 'c'.*unknown_levels='missing'"
    with pytest.raises(DataError, match=message):
        schema.encode(frame)
    found = schema.encode(frame, unknown_levels="missing")
    np.testing.assert_array_equal(found, [[1, 0], [NAN, 1], [NAN, 1]])
    with pytest.raises(DataError, match=r"Column 0 \('grade'\) has the level 9 at row 0"):
        schema.encode(make(grade=[9], text=["a"]))
    with pytest.raises(ValueError, match="unknown_levels='drop' is not known"):
        schema.encode(frame, unknown_levels="drop")


def test_numbers_and_texts_are_different_levels(make):
    texts, numbers = Schema.of(make(x=["1", "2"])), Schema.of(make(x=[1, 2]))
    with pytest.raises(DataError, match="has the level 1 at row 0"):
        texts.encode(make(x=[1, 2]))
    with pytest.raises(DataError, match="has the level '1' at row 0"):
        numbers.encode(make(x=["1", "2"]))
    assert np.isnan(texts.encode(make(x=[1, 2]), unknown_levels="missing")).all()


@pytest.mark.parametrize("trained", [[0, 1], [0.0, 1.0], [False, True], pd.Categorical([0, 1])])
@pytest.mark.parametrize(
    "values",
    [
        [1, 0],
        [1.0, 0.0, None],
        [True, False],
        np.array([True, 0, None], object),
        pd.Categorical([1, 0]),
        pd.Categorical([True, False]),
        pd.array([1, 0, None], dtype="Int8"),
    ],
)
def test_equal_numbers_are_one_level(trained, values):
    schema = Schema.of(of_pandas(x=trained))
    found = schema.encode(of_pandas(x=values))[:, 0]
    np.testing.assert_array_equal(found, [1, 0, NAN][: len(values)])


def test_a_column_without_an_entry_has_any_type():
    schema = Schema.of(of_pandas(x=["a", "b"], y=[0.5, 1.5]))
    for frame in (
        of_pandas(x=[NAN], y=[None]),
        of_pandas(x=pd.array([None], dtype="Int64"), y=pd.array([None], dtype="string")),
        of_polars(x=[None], y=[None]),
        of_arrow(x=[None], y=[None]),
    ):
        assert np.isnan(schema.encode(frame)).tolist() == [[True, True]]


def test_texts_in_a_continuous_column_are_refused(make):
    schema = Schema.of(make(a=[1.5, 2.5, 4.5]))
    with pytest.raises(DataError, match=r"Column 1 \('a'\) holds text: 'x' at row 1 is not a number"):
        schema.encode(make(b=[1, 2], a=[None, "x"]))


def test_categories_of_numbers_are_numbers_for_a_continuous_column():
    schema = Schema.of(of_pandas(a=[1.5, 2.5, 4.5]))
    found = schema.encode(of_pandas(a=pd.Categorical([2.5, None, 7], categories=[7, 2.5])))
    np.testing.assert_array_equal(found[:, 0], [2.5, NAN, 7])


def test_no_rows(make):
    schema = Schema.of(make(a=[1.5, 2.5, 4.5], b=["x", "y", "z"]))
    empty = make(a=[1.5], b=["x"])[:0]
    assert schema.encode(empty).shape == (0, 2)
    assert schema.decode(np.empty((0, 2)), empty).shape == (0, 2)


# ---- decoding --------------------------------------------------------------------------------------


def mixed(make, **more):
    return make(
        number=[0.1, None, 0.3, 1e300],
        single=[0.0, 1.0, None, 1.0],
        grade=[1.0, 5.0, None, 3.0],
        text=["b", None, "a", "c"],
        flag=[True, None, False, True],
        **more,
    )


GIVEN = {"grade": "ordinal"}


def test_only_missing_entries_are_filled(make):
    frame = mixed(make, extra=[None, "free", "text", ""])
    schema = Schema.of(mixed(make), GIVEN)
    values = np.array([[9, 9, 9, 9, 9], [0.25, 9, 9, 1.8, 0.4], [9, 0.75, 1.5, 9, 9], [9, 9, 9, 9, 9]], float)
    filled = schema.decode(values, frame)
    assert entries(filled, "number") == [0.1, 0.25, 0.3, 1e300]
    assert entries(filled, "single") == [0.0, 1.0, 0.75, 1.0]
    assert entries(filled, "grade") == [1.0, 5.0, 4.0, 3.0]  # half of the way from 3 to 5
    assert entries(filled, "text") == ["b", "c", "a", "c"]
    assert entries(filled, "flag") == [True, False, False, True]
    assert entries(filled, "extra") == [None, "free", "text", ""]
    assert dtypes(filled) == dtypes(frame)
    assert type(filled) is type(frame)
    assert entries(frame, "number") == [0.1, None, 0.3, 1e300]


def test_order_and_other_columns_are_those_of_the_frame(make):
    schema = Schema.of(make(a=[1.5, 2.5, 4.0], b=["x", "y", "z"]))
    frame = make(z=[None, 1], b=[None, "x"], a=[None, 0.5])
    filled = schema.decode(np.array([[3.0, 1.0], [0.0, 0.0]]), frame)
    assert list(getattr(filled, "column_names", filled.columns)) == ["z", "b", "a"]
    assert entries(filled, "a") == [3.0, 0.5]
    assert entries(filled, "b") == ["y", "x"]
    assert entries(filled, "z") == [None, 1]


@pytest.mark.parametrize(
    ("values", "fill", "expected"),
    [
        (pd.array([3, None, 1, 2], dtype="Int64"), 1.2, 2),
        (pd.array([30, None, 1, 7], dtype="Int64"), 11.6, 12),
        (pd.array([30, None, 1, 7], dtype="UInt8"), -3.7, 0),
        (pd.array([30, None, 1, 7], dtype="Int8"), 1000.0, 127),
        (pd.array([1.5, None, 0.5, 3.0], dtype="Float64"), 0.25, 0.25),
        (pd.array([1.5, None, 0.5, 3.0], dtype="Float32"), 0.1, np.float32(0.1)),
        (np.array([1.5, NAN, 0.5, 3.0], np.float32), 0.1, np.float32(0.1)),
        (np.array([1.5, NAN, 0.5, 3.0], np.float16), 0.1, np.float16(0.1)),
        (pd.array([True, None], dtype="boolean"), 0.6, True),
        (pd.array(["b", None, "a"], dtype="string[python]"), 0.6, "b"),
        (pd.array(["b", None, "a"], dtype="string[pyarrow]"), 0.6, "b"),
        (pd.array(["b", None, "a"], dtype=pd.StringDtype(na_value=np.nan)), 0.6, "b"),
        (pd.array(["b", None, "a"], dtype=pd.ArrowDtype(pa.string())), 0.6, "b"),
        (pd.array([3, None, 1, 2], dtype=pd.ArrowDtype(pa.int8())), 1.2, 2),
        (pd.array([True, None], dtype=pd.ArrowDtype(pa.bool_())), 0.2, False),
        (pd.array([0.5, None, 7.5], dtype=pd.ArrowDtype(pa.float32())), 0.5, 4.0),
        (
            pd.array(["b", None, "a"], dtype=pd.ArrowDtype(pa.dictionary(pa.int8(), pa.string()))),
            0.6,
            "a",
        ),
        (pd.array([1.5, NAN, 0.5, 3.0], dtype="Sparse[float]"), 0.25, 0.25),
        (np.array([1, None, 2, 30], object), 1.6, 2),
        (np.array([1.5, None, 2, 30], object), 1.6, 1.6),
        (np.array([True, None, False], object), 0.6, True),
        (np.array(["b", pd.NA, "a"], object), 0.6, "b"),
        (pd.Categorical(["b", None, "c"], categories=["c", "a", "b"]), 0.6, "b"),
        (pd.Categorical([3, None, 1, 2], categories=[3, 2, 1], ordered=True), 0.6, 2),
        (pd.Categorical([0.5, None, 7.5]), 0.6, 7.5),
        (pd.cut([0.5, NAN, 2.5], [0, 1, 2, 3]), 0.6, pd.Interval(2, 3)),
    ],
)
def test_types_of_pandas_are_kept(values, fill, expected):
    frame = pd.DataFrame({"x": pd.Series(values)}).set_axis([f"row {i}" for i in range(len(values))])
    schema = Schema.of(frame)
    filled = schema.decode(np.full((len(values), 1), fill), frame)
    assert filled["x"].dtype == frame["x"].dtype
    assert filled["x"].iloc[1] == expected
    if frame["x"].dtype == object:
        assert type(filled["x"].iloc[1]) is type(expected)
    pd.testing.assert_frame_equal(filled.drop("row 1"), frame.drop("row 1"))


@pytest.mark.parametrize(
    ("series", "fill", "expected"),
    [
        (pl.Series([3, None, 1, 2], dtype=pl.Int8), 1.2, 2),
        (pl.Series([30, None, 1, 2], dtype=pl.UInt8), -4.0, 0),
        (pl.Series([30, None, 1, 2], dtype=pl.Int128), 4.4, 4),
        (pl.Series([1.5, NAN, 0.5, 3.0], dtype=pl.Float32), 0.5, 0.5),
        (pl.Series(["b", None, "a"], dtype=pl.Categorical), 0.6, "b"),
        (pl.Series(["b", None, "a"], dtype=pl.Categorical(pl.Categories("own"))), 0.6, "b"),
        (pl.Series(["b", None, "a"], dtype=pl.Enum(["c", "b", "a"])), 0.6, "a"),
    ],
)
def test_types_of_polars_are_kept(series, fill, expected):
    frame = pl.DataFrame({"x": series})
    filled = Schema.of(frame).decode(np.full((len(series), 1), fill), frame)
    assert filled["x"].dtype == series.dtype
    assert filled["x"].to_list() == [series[0], expected, *series[2:]]


@pytest.mark.parametrize(
    ("values", "kind", "fill", "expected"),
    [
        ([3, None, 1, 2], pa.int8(), 1.2, 2),
        ([30, None, 1, 2], pa.uint16(), -4.0, 0),
        ([1.5, NAN, 0.5, 3.0], pa.float32(), 0.5, 0.5),
        ([1.5, None, 0.5, 3.0], pa.float16(), 0.5, 0.5),
        (["b", None, "a"], pa.large_string(), 0.6, "b"),
        (["b", None, "a"], pa.string_view(), 0.6, "b"),
        (["b", None, "a"], pa.dictionary(pa.int8(), pa.large_string(), True), 0.6, "a"),
        ([5, None, 9], pa.dictionary(pa.int16(), pa.int32()), 0.6, 9),
    ],
)
def test_types_of_arrow_are_kept(values, kind, fill, expected):
    field = pa.field("x", kind, metadata={"unit": "m"})
    table = pa.table([pa.array(values, kind)], schema=pa.schema([field], metadata={"from": "test"}))
    filled = Schema.of(table).decode(np.full((len(values), 1), fill), table)
    assert filled.schema.equals(table.schema, check_metadata=True)
    assert filled["x"].to_pylist() == [values[0], expected, *values[2:]]


def test_the_index_and_attributes_of_pandas_are_kept():
    frame = pd.DataFrame({"x": [1.5, NAN, 2.5, 4.0], "y": ["a", "b", None, "a"]}, index=[7, 7, 5, 7])
    frame.attrs["source"] = "survey"
    filled = Schema.of(frame).decode(np.ones((4, 2)), frame)
    assert filled.index.tolist() == [7, 7, 5, 7]
    assert filled.attrs == {"source": "survey"}
    assert filled["x"].tolist() == [1.5, 1.0, 2.5, 4.0]
    assert filled["y"].tolist() == ["a", "b", "b", "a"]


def test_integers_that_became_floats_are_filled_by_integers():
    schema = Schema.of(of_pandas(binary=[0, 1, 0], count=[3, 17, 40]))
    frame = of_pandas(binary=[NAN, 1.0], count=[NAN, 3.0])
    filled = schema.decode(np.array([[0.9, 7.4], [0, 0]]), frame)
    assert filled.to_dict("list") == {"binary": [1.0, 1.0], "count": [7.0, 3.0]}
    assert dtypes(filled) == ["float64", "float64"]


def test_floats_that_became_integers_stay_integers():
    schema = Schema.of(of_pandas(binary=[0.0, 1.0], size=[0.5, 1.5], free=[0.5, 2.5]), {"free": "gaussian"})
    missing = pd.array([None, 1], dtype="Int64")
    frame = of_pandas(binary=missing, size=pd.array([None, 1.5], dtype="Float64"), free=missing)
    filled = schema.decode(np.array([[0.9, 0.5, 2.7], [0, 0, 0]]), frame)
    assert filled.to_dict("list") == {"binary": [1, 1], "size": [1.0, 1.5], "free": [3, 1]}
    assert dtypes(filled) == dtypes(frame)


def test_levels_that_the_categories_lack_are_added(make):
    schema = Schema.of(make(x=["a", "b", "c"]))
    for frame, kind in (
        (of_pandas(x=pd.Categorical(["a", None])), "category"),
        (of_polars(x=pl.Series(["a", None], dtype=pl.Enum(["a"]))), "Enum(categories=['a', 'c'])"),
        (of_polars(x=pl.Series(["a", None], dtype=pl.Categorical)), "Categorical"),
        (of_arrow(x=pa.array(["a", None]).dictionary_encode()), None),
    ):
        filled = schema.decode(np.full((2, 1), 2.0), frame)
        assert entries(filled, "x") == ["a", "c"]
        assert dtypes(filled) == ([kind] if kind else dtypes(frame))


def test_intervals_cannot_be_added_by_their_texts():
    schema = Schema.of(of_pandas(x=pd.cut([0.5, 1.5, 2.5], [0, 1, 2, 3])))
    frame = of_pandas(x=pd.cut([0.5, NAN], [0, 1]))
    with pytest.raises(DataError, match=r"Column 0 \('x'\) has no category '\(2, 3\]'"):
        schema.decode(np.full((2, 1), 2.0), frame)


def test_numbers_in_categories_are_filled_by_the_nearest_category():
    frame = of_pandas(x=pd.Categorical([1.5, 4.0, None, 9.0]))
    schema = Schema.of(frame, {"x": "gaussian"})
    np.testing.assert_array_equal(schema.encode(frame)[:, 0], [1.5, 4.0, NAN, 9.0])
    filled = schema.decode(np.full((4, 1), 3.0), frame)
    assert filled["x"].tolist() == [1.5, 4.0, 4.0, 9.0]
    assert schema.decode(np.full((1, 1), 3.2))["x"].tolist() == [3.0]


@pytest.mark.parametrize(
    "frame",
    [
        of_pandas(x=[NAN, NAN], y=[None, None]),
        of_pandas(x=pd.array([None, None], dtype="Int64"), y=pd.array([None, None], dtype="string")),
        of_polars(x=[None, None], y=[None, None]),
        of_arrow(x=[None, None], y=[None, None]),
        of_polars(x=pl.Series([None, None], dtype=pl.Float64), y=pl.Series([None, None], dtype=pl.String)),
        of_arrow(x=pa.array([None, None], pa.float64()), y=pa.array([None, None], pa.string())),
    ],
)
def test_a_column_without_an_entry_takes_the_type_of_the_training_column(frame):
    make = MAKERS[type(frame).__module__.partition(".")[0]]
    schema = Schema.of(make(x=["a", "b"], y=[0.5, 1.5]), {"y": "gaussian"})
    filled = schema.decode(np.array([[0, 0.25], [1, 2.5]]), frame)
    assert entries(filled, "x") == ["a", "b"]
    assert entries(filled, "y") == [0.25, 2.5]


def test_a_type_that_cannot_hold_levels_is_refused(make):
    schema = Schema.of(make(x=["a", "b"]))
    frame = make(x=[1.0, None])
    with pytest.raises(DataError, match=r"Column 0 \('x'\) is of type .*, which cannot hold"):
        schema.decode(np.zeros((2, 1)), frame)


def test_unknown_levels_stay_where_they_were_observed(make):
    schema = Schema.of(make(x=["a", "b"]))
    frame = make(x=["z", None])
    values = schema.encode(frame, unknown_levels="missing")
    assert np.isnan(values).all()
    assert entries(schema.decode(np.zeros((2, 1)), frame), "x") == ["z", "a"]


def test_nan_leaves_entries_missing(make):
    frame = mixed(make)
    schema = Schema.of(frame, GIVEN)
    filled = schema.decode(np.full((4, 5), NAN), frame)
    for name in ("number", "single", "grade", "text", "flag"):
        assert entries(filled, name) == entries(frame, name)


def test_shapes_are_compared(make):
    frame = make(a=[1.5, 2.5], b=[1, 2])
    schema = Schema.of(frame)
    with pytest.raises(ValueError, match=r"values have shape \(2, 3\), but there are 2 columns"):
        schema.decode(np.zeros((2, 3)), frame)
    with pytest.raises(ValueError, match="values have 3 rows, but the frame has 2"):
        schema.decode(np.zeros((3, 2)), frame)
    with pytest.raises(ValueError, match="NaN"):
        schema.decode(np.full((1, 2), NAN))


def test_ends_of_intervals_stand_in_the_place_of_numbers_alone(make):
    frame = make(
        number=[0.5, None, 4.0],
        rating=[1.0, 5.0, None],
        text=["a", None, "c"],
        flag=[True, None, False],
    )
    schema = Schema.of(frame, {"rating": "ordinal", "number": "gaussian"})
    low = schema.decode_end(np.full((3, 4), -0.25), frame, upper=False)
    high = schema.decode_end(np.full((3, 4), 7.25), frame, upper=True)
    assert [entries(end, "number")[1] for end in (low, high)] == [-0.25, 7.25]
    assert [entries(end, "rating")[2] for end in (low, high)] == [1.0, 5.0]
    assert entries(low, "text") == entries(high, "text") == ["a", None, "c"]
    assert entries(low, "flag") == entries(high, "flag") == [True, None, False]


def test_ends_of_whole_numbers_are_rounded_outwards():
    frame = of_pandas(visits=pd.array([3, 40, None, 11], dtype="Int64"))
    schema = Schema.of(frame)
    ends = [schema.decode_end(np.full((4, 1), 7.4), frame, upper=upper) for upper in (False, True)]
    assert [end["visits"].tolist() for end in ends] == [[3, 40, 7, 11], [3, 40, 8, 11]]


# ---- new frames ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "frame",
    [
        pd.DataFrame(
            {
                "f": np.array([0.5, 1.5, 4.0], np.float32),
                "i": np.array([3, 40, 11], np.int16),
                "I": pd.array([3, 40, 11], dtype="Int64"),
                "b": [True, False, True],
                "B": pd.array([True, False, True], dtype="boolean"),
                "o": ["x", "y", "z"],
                "m": np.array([3, 40, 11], object),
                "s": pd.array(["x", "y", "z"], dtype="string"),
                "n": pd.array(["x", "y", "z"], dtype=pd.StringDtype(na_value=np.nan)),
                "a": pd.array(["x", "y", "z"], dtype=pd.ArrowDtype(pa.string())),
                "d": pd.array(["x", "y", "z"], dtype=pd.ArrowDtype(pa.dictionary(pa.int8(), pa.string()))),
                "u": pd.array([1, 2, 3], dtype=pd.ArrowDtype(pa.uint8())),
                "c": pd.Categorical(["x", "y", "z"]),
                "C": pd.Categorical(["x", "y", "y"], ordered=True),
                "p": pd.array([1.5, 0.0, 0.5], dtype="Sparse[float]"),
                7: [1.0, 2.0, 3.0],
            }
        ),
        pl.DataFrame(
            {
                "f": pl.Series([0.5, 1.5, 4.0], dtype=pl.Float32),
                "i": pl.Series([3, 40, 11], dtype=pl.UInt16),
                "b": [True, False, True],
                "s": ["x", "y", "z"],
                "c": pl.Series(["x", "y", "z"], dtype=pl.Categorical),
                "e": pl.Series(["x", "y", "z"], dtype=pl.Enum(["z", "y", "x"])),
                "d": pl.Series(
                    [decimal.Decimal(text) for text in ("1.25", "2", "4")], dtype=pl.Decimal(6, 2)
                ),
            }
        ),
        pa.table(
            {
                "f": pa.array([0.5, 1.5, 4.0], pa.float32()),
                "i": pa.array([3, 40, 11], pa.uint16()),
                "b": pa.array([True, False, True]),
                "s": pa.array(["x", "y", "z"], pa.large_string()),
                "v": pa.array(["x", "y", "z"], pa.string_view()),
                "c": pa.array(["x", "y", "z"], pa.dictionary(pa.int8(), pa.large_string(), True)),
                "d": pa.array([decimal.Decimal(text) for text in ("1.25", "2", "4")], pa.decimal128(6, 2)),
            }
        ),
    ],
    ids=MAKERS,
)
def test_a_new_frame_has_the_names_and_types_of_the_training_frame(frame):
    schema = Schema.from_json(json.loads(json.dumps(Schema.of(frame).to_json())))
    new = schema.decode(schema.encode(frame))
    if isinstance(frame, pd.DataFrame):
        pd.testing.assert_frame_equal(new, frame)
    else:
        assert new.equals(frame)
        assert new.schema == frame.schema


def test_a_new_frame_has_categories_that_occur_only():
    frame = of_pandas(x=pd.Categorical(["b", "a", "b"], categories=["z", "b", "a"], ordered=True))
    schema = Schema.of(frame)
    new = schema.decode(np.array([[1.0], [0.0]]))["x"]
    assert new.tolist() == ["a", "b"]
    assert new.dtype == pd.CategoricalDtype(["b", "a"], ordered=True)


# ---- levels, words and files -----------------------------------------------------------------------


def test_level_frames(make):
    like = make(x=[1.0, 2.0], y=["a", "b"])
    column = Column("x", "ordinal", "ordinal", (1.0, 2.5, 3.0), "float64", False)
    shares = np.array([[0.2, 0.3, 0.5], [1.0, 0.0, 0.0]])
    found = level_frame(column, shares, like)
    assert type(found) is type(like)
    assert [entries(found, name) for name in ("1", "2.5", "3")] == shares.T.tolist()
    with pytest.raises(ValueError, match="Column 'x' has 3 levels, but there are 2 numbers a row"):
        level_frame(column, shares[:, :2], like)


def test_level_frames_have_the_index():
    like = pd.DataFrame({"x": [True, False]}, index=["one", "two"])
    found = level_frame(only(like), np.array([[0.1, 0.9], [0.5, 0.5]]), like)
    expected = pd.DataFrame({"False": [0.1, 0.5], "True": [0.9, 0.5]}, index=["one", "two"])
    pd.testing.assert_frame_equal(found, expected)


def test_level_frames_of_columns_with_one_level_and_with_none():
    like = of_pandas(x=["a", "a"])
    shares = np.array([[0.9, 0.1], [0.8, 0.2]])
    assert level_frame(only(like), shares, like).to_dict("list") == {"a": [0.9, 0.8]}
    own_codes = Column("x", "categorical", "categorical", None, "int64", True)
    assert list(level_frame(own_codes, shares, like).columns) == ["0", "1"]


def test_transforms_are_told_with_what_a_column_is_taken_as():
    schema = Schema.of(of_pandas(income=[1.5, 2.5, 4.5], visits=[0.5, 4.0, 20.0], sex=["f", "m", "f"]))
    told = schema.with_transforms(["log", "yeo_johnson", None])
    assert [row[2] for row in told.summary()] == ["continuous, log", "continuous, yeo-johnson", "binary"]
    assert told.with_transforms([None] * 3) == schema
    assert Schema.from_json(json.loads(json.dumps(told.to_json()))) == told


def test_words():
    frame = of_pandas(
        income=[1.5, 2.5, 4.5, 9.0, 1.0, 2.0, 3.0],
        visits=[0, 4, 2, 9, 11, 30, 1],
        grade=[1, 2, 3, 4, 5, 6, 7],
        sex=pd.Categorical(["f", "m", "f", "m", None, "f", "f"]),
    )
    schema = Schema.of(frame, {"visits": "negative_binomial"})
    assert schema.summary() == [
        ("income", "float64", "continuous", ""),
        ("visits", "int64", "negative binomial", ""),
        ("grade", "int64", "ordinal", "1, 2, 3, 4, 5, ... (7)"),
        ("sex", "category", "binary", "f, m"),
    ]
    assert repr(schema).splitlines() == [
        "column  type      taken as           levels",
        "income  float64   continuous",
        "visits  int64     negative binomial",
        "grade   int64     ordinal            1, 2, 3, 4, 5, ... (7)",
        "sex     category  binary             f, m",
    ]


def test_words_for_a_notebook_are_escaped():
    page = Schema.of(of_pandas(**{"a<b": ["<i>", "&"]}))._repr_html_()
    assert "<th>taken as</th>" in page
    assert "<td>a&lt;b</td>" in page
    assert "<td>&amp;, &lt;i&gt;</td>" in page


def test_words_about_many_columns_end_somewhere():
    schema = Schema.of(of_pandas(**{f"x{i}": [0.5, 1.5, 2.0] for i in range(70)}))
    assert repr(schema).endswith("x59     float64  continuous\nand 10 more columns")
    assert schema._repr_html_().endswith("<p>and 10 more columns</p>")


def test_json_keeps_the_types_of_levels_and_names(make):
    frame = make(a=["x", "y"], b=[1, 2], c=[1.0, 2.0], d=[True, False], e=[0.5, 0.5])
    schema = Schema.of(frame)
    again = Schema.from_json(json.loads(json.dumps(schema.to_json())))
    assert again == schema
    for one, other in zip(schema.columns, again.columns, strict=True):
        assert repr(one) == repr(other)


def test_json_keeps_names_that_are_no_texts():
    columns = pd.MultiIndex.from_tuples([("a", 0), ("a", 1)])
    frame = pd.DataFrame([[1.5, 2], [2.5, 3]], columns=columns)
    schema = Schema.from_json(json.loads(json.dumps(Schema.of(frame).to_json())))
    np.testing.assert_array_equal(schema.encode(frame), [[0, 0], [1, 1]])
    pd.testing.assert_frame_equal(schema.decode(schema.encode(frame)), frame)
    dated = Schema.of(pd.DataFrame({pd.Timestamp("2020-01-01"): [1, 2]}))
    with pytest.raises(ModelFileError, match="Timestamp, which cannot be saved"):
        dated.to_json()


WHOLE_COLUMN = Schema.of(of_pandas(x=[1, 2])).to_json()["columns"][0]


@pytest.mark.parametrize(
    "damage",
    [
        {"columns": None},
        {"library": "excel"},
        {"library": ["pandas"]},
        {"library": None},
        {"columns": [{"name": "x"}]},
        {"columns": [WHOLE_COLUMN | {"kind": "odd"}]},
        {"columns": [WHOLE_COLUMN | {"levels": [[]]}]},
        {"columns": [WHOLE_COLUMN | {"levels": "ab"}]},
        {"columns": [WHOLE_COLUMN | {"levels": {"a": 1}}]},
        {"columns": [WHOLE_COLUMN | {"levels": 2}]},
        {"columns": [WHOLE_COLUMN | {"levels": [1.0, NAN]}]},
        {"columns": [WHOLE_COLUMN | {"likelihood": "odd"}]},
        {"columns": [WHOLE_COLUMN | {"likelihood": "Bernoulli"}]},
        {"columns": [WHOLE_COLUMN | {"likelihood": ["bernoulli"]}]},
        {"columns": [WHOLE_COLUMN | {"name": {"a": 1}}]},
        {"columns": [WHOLE_COLUMN | {"name": ["a", {}]}]},
        {"columns": [WHOLE_COLUMN | {"fills_levels": "yes"}]},
        {"columns": [WHOLE_COLUMN | {"more": 1}]},
    ],
)
def test_damaged_json_is_refused(damage):
    whole = Schema.of(of_pandas(x=[1, 2])).to_json()
    with pytest.raises(ModelFileError, match=r"The description of the columns is damaged|is not known"):
        Schema.from_json(whole | damage)
    with pytest.raises(ModelFileError):
        Schema.from_json(None)


# ---- round trips -----------------------------------------------------------------------------------

TEXTS = st.lists(
    st.none() | st.sampled_from(["a", "b", "", "é", "nan", "None", "1"]), min_size=4, max_size=12
)
WHOLE = st.lists(st.none() | st.integers(-(2**40), 2**40) | st.integers(0, 3), min_size=4, max_size=12)
FLOATS = st.lists(
    st.none() | st.floats(allow_infinity=False, allow_nan=False, width=32) | st.sampled_from([0.0, 1.0]),
    min_size=4,
    max_size=12,
)
FLAGS = st.lists(st.none() | st.booleans(), min_size=4, max_size=12)


@settings(max_examples=60)
@given(
    values=(TEXTS | WHOLE | FLOATS | FLAGS).filter(lambda values: any(v is not None for v in values)),
    maker=st.sampled_from([*MAKERS, "objects"]),
)
def test_what_is_encoded_is_decoded(values, maker):
    make = MAKERS.get(maker, lambda x: pd.DataFrame({"x": np.array(x, dtype=object)}))
    frame = make(x=values)
    schema = Schema.of(frame)
    (column,) = schema.columns
    encoded = schema.encode(frame)
    observed = np.array([value is not None for value in values])
    np.testing.assert_array_equal(~np.isnan(encoded[:, 0]), observed)
    if column.levels is not None:
        assert set(encoded[observed, 0]) <= set(range(len(column.levels)))

    # filled by itself, nothing changes
    assert entries(schema.decode(encoded, frame), "x") == entries(frame, "x")
    # what is observed does not depend on the fill, which is an entry that can be encoded
    fill = encoded[observed, 0][-1]
    filled = schema.decode(np.where(np.isnan(encoded), fill, 0.0), frame)
    assert dtypes(filled) == dtypes(frame)
    np.testing.assert_array_equal(schema.encode(filled)[:, 0], np.where(observed, encoded[:, 0], fill))
    # a new frame has the entries themselves
    new = schema.decode(encoded[observed])
    assert entries(new, "x") == [value for value in values if value is not None]
    np.testing.assert_array_equal(schema.encode(new), encoded[observed])
