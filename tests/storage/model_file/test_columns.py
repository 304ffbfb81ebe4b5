"""What the columns of a data frame are is saved with a model, and unsound descriptions are refused."""

import copy
from functools import lru_cache

import numpy as np
import pandas as pd
import pytest
from helpers.model_files import assert_same, made_up, read, rows_of_each_kind, write

import srflvm
from srflvm import ModelFileError
from srflvm.data.schema import Schema

NAMES = ["größe", 7, ("a", 1), "level"]


def frame_of_rows(Y):
    """Return a frame with a column of texts, one of truth values, numbers, and names of several kinds."""
    texts = np.array(["red", "green", "blue"])[np.arange(len(Y)) % 3]
    ranks = pd.Categorical.from_codes(np.arange(len(Y)) % 3, ["low", "mid", "high"], ordered=True)
    parts = [pd.Series(Y[:, 0]), pd.Series(texts), pd.Series(Y[:, 0] > 0.0), pd.Series(ranks)]
    frame = pd.concat(parts, axis=1)
    frame.columns = pd.Index(NAMES, tupleize_cols=False)
    return frame


@lru_cache(maxsize=1)
def described_model():
    """Return a model whose columns are described, though it was made up of numbers."""
    Y = rows_of_each_kind()["student_t"]
    model = copy.copy(made_up(Y, likelihood="student_t"))
    model.columns_ = Schema.of(frame_of_rows(Y))
    return model


@pytest.fixture
def described(tmp_path):
    path = tmp_path / "described.srflvm"
    described_model().save(path)
    return path


def test_the_columns_come_back(described, target):
    loaded, expected = srflvm.load(described), described_model().columns_
    assert loaded.columns_ == expected
    assert_same(loaded, described_model())
    assert [column.kind for column in expected.columns] == ["continuous", "categorical", "binary", "ordinal"]
    assert [type(level) for level in loaded.columns_.columns[2].levels] == [bool, bool]
    frame = frame_of_rows(rows_of_each_kind()["student_t"])
    np.testing.assert_array_equal(loaded.columns_.encode(frame), expected.encode(frame))
    loaded.save(target)
    assert target.read_bytes() == described.read_bytes()


def test_transforms_of_columns_come_back(target):
    model = copy.copy(described_model())
    model.columns_ = model.columns_.with_transforms(["log", None, None, None])
    model.save(target)
    assert srflvm.load(target).columns_ == model.columns_
    columns = read(target)[0]["model"]["columns"]["columns"]
    # files of frames without transforms are as they were before there were any
    assert [column.get("transform") for column in columns] == ["log", None, None, None]
    assert ["transform" in column for column in columns] == [True, False, False, False]


def test_a_model_of_an_array_has_none(target):
    made_up(rows_of_each_kind()["student_t"], likelihood="student_t").save(target)
    assert read(target)[0]["model"]["columns"] is None
    assert not hasattr(srflvm.load(target), "columns_")


def test_names_that_json_cannot_hold_are_not_saved(target):
    model = copy.copy(described_model())
    frame = frame_of_rows(rows_of_each_kind()["student_t"])
    frame.columns = [pd.Timestamp("2020-01-01"), *"bcd"]
    model.columns_ = Schema.of(frame)
    with pytest.raises(ModelFileError, match="Timestamp, which cannot be saved"):
        model.save(target)
    assert not target.exists()


def change_columns(change):
    """Change the description as a whole."""

    def changed(header, tensors):
        header["model"]["columns"] = change(header["model"]["columns"])

    return changed


def change_column(place, **entries):
    def change(described):
        described["columns"][place].update(entries)
        return described

    return change_columns(change)


def drop_entry(name):
    def change(described):
        del described["columns"][0][name]
        return described

    return change_columns(change)


DEEP = ["a"]
for _ in range(600):
    DEEP = [DEEP]

CHANGES = {
    "as a list": (change_columns(lambda d: d["columns"]), "'columns' is of the wrong kind"),
    "empty": (change_columns(lambda d: {}), "of its columns"),
    "no columns": (change_columns(lambda d: d | {"columns": []}), "columns does not agree with the tensors"),
    "fewer columns": (change_columns(lambda d: d | {"columns": d["columns"][1:]}), "columns does not agree"),
    "columns as a text": (change_columns(lambda d: d | {"columns": "abcd"}), "of its columns"),
    "columns as a number": (change_columns(lambda d: d | {"columns": 4}), "of its columns"),
    "column as a list": (change_columns(lambda d: d | {"columns": [[]] * 4}), "of its columns"),
    "more entries": (change_columns(lambda d: d | {"code": "print()"}), "not one that was written"),
    "another library": (change_columns(lambda d: d | {"library": "os"}), "of its columns.*'os'"),
    "library as a list": (change_columns(lambda d: d | {"library": []}), "of its columns"),
    "missing kind": (drop_entry("kind"), "of its columns"),
    "missing levels": (drop_entry("levels"), "of its columns"),
    "code in a column": (change_column(0, code="print()"), "of its columns"),
    "unknown kind": (change_column(0, kind="other"), "of its columns"),
    "kind as a list": (change_column(0, kind=["continuous"]), "of its columns"),
    "unknown likelihood": (change_column(0, likelihood="other"), "of its columns.*'other' is not known"),
    "likelihood as a number": (change_column(0, likelihood=1), "of its columns"),
    "levels as a text": (change_column(1, levels="abc"), "of its columns"),
    "levels as a number": (change_column(1, levels=3), "of its columns"),
    "nested levels": (change_column(1, levels=[["red"], ["blue"]]), "of its columns"),
    "level that is no number": (change_column(1, levels=["red", None]), "of its columns"),
    "NaN as a level": (change_column(1, levels=[0.0, np.nan]), "of its columns"),
    "name as a mapping": (change_column(0, name={}), "of its columns"),
    "deep name": (change_column(0, name=DEEP), "of its columns"),
    "type as a number": (change_column(0, dtype=8), "of its columns"),
    "transform as a number": (change_column(0, transform=1), "of its columns"),
    "no transform": (change_column(0, transform=None), "not one that was written"),
    "filling as a text": (change_column(0, fills_levels="yes"), "of its columns"),
}


@pytest.mark.parametrize("kind", CHANGES)
def test_unsound_content_is_refused(described, target, kind):
    change, message = CHANGES[kind]
    header, tensors = read(described)
    change(header, tensors)
    write(target, header, tensors)
    with pytest.raises(ModelFileError, match=message) as caught:
        srflvm.load(target)
    assert str(target) in str(caught.value)
