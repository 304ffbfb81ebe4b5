"""Tables of any kind, read as numbers or refused by column and row."""

from datetime import date, timedelta

import numpy as np
import pandas as pd
import polars as pl
import pytest

from srflvm import SRFLVM, DataError, SRFLVMImputer, choose_n_components
from srflvm.data.reading import read_data, read_source
from srflvm.data.sources import NamedTable


def test_missing_entries_of_columns_of_objects_are_seen():
    frame = pd.DataFrame(
        {"a": [1, pd.NA, 3, None], "b": [0.5, 1.5, np.nan, 2.5], "c": [True, False, pd.NA, True]}
    )
    before = frame.copy()
    values = read_data(SRFLVM(), frame, reset=True)
    nan = np.nan
    np.testing.assert_array_equal(values, [[1, 0.5, 1], [nan, 1.5, 0], [3, nan, nan], [nan, 2.5, 1]])
    pd.testing.assert_frame_equal(frame, before)


def test_dates_are_refused_by_name():
    frame = pd.DataFrame({"a": [1.0, 2.0], "when": pd.to_datetime(["2024-01-01", None])})
    with pytest.raises(DataError, match=r"Column 1 \('when'\) holds dates or times"):
        read_data(SRFLVM(), frame, reset=True)


@pytest.mark.parametrize(
    "Y",
    [
        pl.DataFrame({"a": [1.0, 2.0], "when": [date(2024, 1, 1), None]}),
        pl.DataFrame({"a": [1.0, 2.0], "when": [timedelta(1), None]}),
        pd.DataFrame({"a": [1.0, 2.0], "when": [None, date(2024, 1, 1)]}),
        NamedTable(np.array([[1.0, date(2024, 1, 1)]] * 2, dtype=object), ["a", "when"]),
    ],
    ids=["polars dates", "polars times", "objects", "named array"],
)
def test_dates_of_other_tables_are_refused_by_name(Y):
    with pytest.raises(DataError, match=r"Column 1 \('when'\) holds dates or times"):
        read_data(SRFLVM(), Y, reset=True)
    with pytest.raises(DataError, match="Column 0 holds dates"):
        read_data(SRFLVM(), np.array([["2024-01-01"]] * 2, dtype="M8[D]"), reset=True)


CITIES = ["7", "Rome", None, "Oslo"]


@pytest.mark.parametrize(
    "Y",
    [
        pd.DataFrame({"a": range(4), "city": CITIES}),
        pd.DataFrame({"a": range(4), "city": pd.Categorical(CITIES)}),
        pd.DataFrame({"a": range(4), "city": pd.array(CITIES, dtype="string")}),
        pd.DataFrame({"a": range(4), "city": [7, "Rome", pd.NA, 3.5]}, index=list("wxyz")),
        pl.DataFrame({"a": range(4), "city": CITIES}),
        pl.DataFrame({"a": range(4), "city": pl.Series(CITIES, dtype=pl.Categorical)}),
        NamedTable(np.array([[1, "7"], [2, "Rome"]], dtype=object), ["a", "city"]),
    ],
    ids=["pandas", "categories", "strings", "mixed", "polars", "polars categories", "named array"],
)
def test_texts_are_refused_by_column_entry_and_remedy(Y):
    said = r"Column 1 \('city'\) holds text: 'Rome' at row 1 is not a number\. Put NaN .* otherwise: "
    with pytest.raises(DataError, match=said + r"Drop the column, .* likelihood=\{'city': 'categorical'"):
        read_data(SRFLVM(), Y, reset=True)
    with pytest.raises(DataError, match=said + ".* that it had in the fit"):
        read_data(SRFLVM(), Y, reset=False)


@pytest.mark.parametrize("estimator", [SRFLVM(), SRFLVMImputer()])
def test_fits_take_frames_with_texts_but_not_with_numbers_among_them(estimator):
    mixed = pd.DataFrame({"a": range(4), "city": [7, "Rome", pd.NA, 3.5]}, index=list("wxyz"))
    with pytest.raises(DataError, match=r"Column 1 \('city'\) has numbers and texts: 'Rome' at row 1"):
        estimator.fit(mixed)
    table = NamedTable(np.array([[1, "7"], [2, "Rome"]], dtype=object), ["a", "city"])
    with pytest.raises(DataError, match=r"Column 1 \('city'\) holds text: 'Rome' at row 1"):
        estimator.fit(table)
    model = SRFLVM()
    values = read_source(model, pd.DataFrame({"a": range(4), "city": CITIES}), reset=True).read(0, 4)
    np.testing.assert_array_equal(values, [[0, 0], [1, 2], [2, np.nan], [3, 1]])
    assert model.columns_.columns[1].levels == ("7", "Oslo", "Rome")


@pytest.mark.parametrize(
    "Y",
    [[[1.0, "x"], [None, "y"]], np.array([["1", "x"], ["2", "y"]]), np.array([[1, b"x"]] * 2, dtype=object)],
)
def test_texts_without_a_column_name_are_refused_by_place(Y):
    said = r"Column 1 holds text: b?'x' at row 0 is not a number\. Drop .*\{1: 'categorical'"
    with pytest.raises(DataError, match=said):
        SRFLVM().fit(Y)
    with pytest.raises(DataError, match=said):
        choose_n_components(SRFLVM(), Y)


def test_other_objects_are_refused_by_place():
    frame = pd.DataFrame({"a": [1.0, 2.0], "b": [None, {}]})
    other = pl.DataFrame({"a": [1.0, 2.0], "b": [[3], [4]]})
    with pytest.raises(TypeError, match=r"Column 1 \('b'\) holds \{\} at row 1.* not 'dict'"):
        read_data(SRFLVM(), frame, reset=True)
    with pytest.raises(TypeError, match=r"Column 1 \('b'\) holds \[3\] at row 0"):
        read_data(SRFLVM(), other, reset=True)
    with pytest.raises(DataError, match=r"Column 1 \('b'\) holds values of type dict"):
        SRFLVM().fit(frame)
    with pytest.raises(DataError, match=r"Column 1 \('b'\) holds values of type List"):
        SRFLVM().fit(other)


def test_numbers_in_columns_of_objects_are_taken():
    expected = [[1.0, 2.5, 1.0], [2.0, np.nan, 0.0]]
    text, flag = ["2.5", None], [True, False]
    for Y in (
        pd.DataFrame({"a": pd.Categorical([1, 2]), "b": text, "c": flag}),
        pl.DataFrame({"a": [1, 2], "b": text, "c": flag}),
        [[1, "2.5", True], [2, None, False]],
    ):
        np.testing.assert_array_equal(read_data(SRFLVM(), Y, reset=True), expected)
