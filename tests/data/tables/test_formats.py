"""One registry of formats: `fit(path)` and the command line find the same rows in a file."""

import numpy as np
import pytest
from scipy import sparse

from srflvm import DataError
from srflvm.data.tables import formats
from srflvm.data.tables.table import Format, Table

VALUES = np.arange(12.0).reshape(4, 3)


@pytest.mark.parametrize("ending", formats._FORMATS)
def test_every_ending_has_a_format(ending):
    assert isinstance(formats._load_format(ending, "Reading"), Format)


@pytest.mark.parametrize("ending", [".parquet", ".npy", ".npz", ".zarr", ".h5ad"])
def test_rows_and_tables_of_a_file_are_the_same(tmp_path, ending):
    path = tmp_path / f"y{ending}"
    if ending == ".npz":
        sparse.save_npz(path, sparse.csr_array(VALUES))
    else:
        formats.write_table(path, Table.of(VALUES, ["a", "b", "c"]))
    rows, table = formats.open_rows(path), formats.open_table(path)
    np.testing.assert_array_equal(rows.read(0, rows.n_rows), VALUES)
    np.testing.assert_array_equal(table.values, VALUES)
    assert getattr(rows, "names", None) in (None, table.columns)


def test_text_is_read_as_a_table_only(tmp_path):
    formats.write_table(tmp_path / "y.csv", Table.of(VALUES, ["a", "b", "c"]))
    np.testing.assert_array_equal(formats.open_table(tmp_path / "y.csv").values, VALUES)
    with pytest.raises(ValueError, match=r"can be read from a path.*pandas\.read_csv"):
        formats.open_rows(tmp_path / "y.csv")


def test_names_that_tell_no_format_are_refused(tmp_path):
    (tmp_path / "y.xlsx").touch()
    with pytest.raises(DataError, match=r"can be read: \.csv, .*\.zarr\.zip, \.h5ad\."):
        formats.check_input(tmp_path / "y.xlsx")
    for name in ("y.xlsx", "y.zarr.zip", "store.zarr/array"):
        with pytest.raises(DataError, match=r"can be written: \.csv, .*\.zarr, \.h5ad\."):
            formats.check_outputs(tmp_path / name, force=False)
