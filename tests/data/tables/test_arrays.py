"""Tables in files of arrays that are not what their names say, or whose names do not fit."""

import numpy as np
import pytest
import zarr
from scipy import sparse

from srflvm import DataError
from srflvm.cli.model_table import ModelTable
from srflvm.data.files import open_source
from srflvm.data.tables.formats import open_table, write_table
from srflvm.data.tables.table import Table

VALUES = np.arange(6.0).reshape(2, 3)


@pytest.mark.parametrize("ending", ["npz", "zarr"])
def test_two_columns_of_one_name_are_refused(tmp_path, ending):
    write_table(tmp_path / f"t.{ending}", Table.of(VALUES, ["a", "b", "a"]))
    with pytest.raises(DataError, match=f"t.{ending} has more than one column 'a'"):
        open_table(tmp_path / f"t.{ending}")


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ({"columns": ["a", "b"]}, r"'columns' of shape \(2,\) beside a table that needs 3"),
        ({"columns": "abc"}, r"'columns' of shape \(\)"),
        ({"ids": ["x", "y", "z"]}, r"'ids' of shape \(3,\) beside a table that needs 2"),
    ],
)
def test_names_of_npz_files_are_as_many_as_they_name(tmp_path, names, message):
    np.savez(tmp_path / "t.npz", values=VALUES, **names)
    with pytest.raises(DataError, match=message):
        open_table(tmp_path / "t.npz")


def test_columns_that_a_model_has_not_stay_missing():
    found = ModelTable(Table.of(np.zeros((2, 5))), np.array([2, 0, 3]))
    placed = found.in_table_order(VALUES)
    assert np.isnan(placed[:, [1, 4]]).all()
    np.testing.assert_array_equal(placed[:, 2], VALUES[:, 0])


def test_an_array_and_a_zip_file_under_each_other_s_names(tmp_path):
    with (tmp_path / "array.npz").open("wb") as file:
        np.save(file, VALUES)
    with (tmp_path / "zip.npy").open("wb") as file:
        np.savez(file, values=VALUES)
    with pytest.raises(DataError, match=r"array\.npz is one array.*ending \.npy"):
        open_table(tmp_path / "array.npz")
    with pytest.raises(DataError, match=r"array\.npz is not a sparse matrix"):
        open_source(tmp_path / "array.npz")
    for read in (open_table, open_source):
        with pytest.raises(DataError, match=r"zip\.npy is a zip file of arrays.*ending \.npz"):
            read(tmp_path / "zip.npy")


def test_endings_in_capitals_are_known(tmp_path):
    with (tmp_path / "T.NPY").open("wb") as file:
        np.save(file, VALUES)
    with (tmp_path / "S.NPZ").open("wb") as file:
        sparse.save_npz(file, sparse.csr_array(VALUES))
    zarr.create_array(str(tmp_path / "Z.ZARR"), data=VALUES)
    write_table(tmp_path / "P.PARQUET", Table.of(VALUES, ["a", "b", "c"]))
    for name in ("T.NPY", "S.NPZ", "Z.ZARR", "P.PARQUET"):
        np.testing.assert_array_equal(open_table(tmp_path / name).values, VALUES)
