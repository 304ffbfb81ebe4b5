import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from srflvm import DataError
from srflvm.data.tables.formats import read_labels


@pytest.mark.parametrize(
    ("text", "column", "labels"),
    [
        ("kind\nx\ny\n", None, ["x", "y"]),
        ("x\ny\n", None, ["x", "y"]),
        ("id,kind\na,1\nb,2\n", None, [1.0, 2.0]),
        ("id,size,kind\na,1,x\nb,2,y\n", "kind", ["x", "y"]),
        ("kind\n\ny\n\n\n", None, ["", "y"]),
        ("\ny\n", None, ["", "y"]),
        ("id,kind\n\na,x\nb,y\n", None, ["x", "y"]),
        ("kind,size\na,x,1\nb,y,2\n", "kind", ["x", "y"]),
        ("1_1\n2_1\n", None, ["1_1", "2_1"]),
        ("id;kind\na;x\nb;y\n", None, ["x", "y"]),
        ("id\tkind\na\tx, old\nb\ty\n", None, ["x, old", "y"]),
        ("kind\nT cell; 4\nB cell; 8\n", None, ["T cell; 4", "B cell; 8"]),
        ("T|new\nB|old\n", None, ["T|new", "B|old"]),
    ],
)
def test_labels(tmp_path, text, column, labels):
    (tmp_path / "l.csv").write_text(text)
    assert read_labels(tmp_path / "l.csv", 2, column).tolist() == labels


def test_labels_of_other_files(tmp_path):
    np.save(tmp_path / "l.npy", np.array([3, 4]))
    pq.write_table(pa.table({"a": [1, 2], "kind": ["x", "y"]}), tmp_path / "l.parquet")
    assert read_labels(tmp_path / "l.npy", 2).tolist() == [3, 4]
    assert read_labels(tmp_path / "l.parquet", 2).tolist() == ["x", "y"]
    with pytest.raises(DataError, match="has 2 labels, but the model has 3 rows"):
        read_labels(tmp_path / "l.npy", 3)


def test_files_without_columns_have_no_labels(tmp_path):
    pq.write_table(pa.table({"a": [1, 2]}).select([]), tmp_path / "l.parquet")
    with pytest.raises(DataError, match=r"l\.parquet has no columns"):
        read_labels(tmp_path / "l.parquet", 2)


def test_annotations_without_columns_have_no_labels(tmp_path):
    anndata = pytest.importorskip("anndata")
    anndata.AnnData(np.ones((2, 3))).write_h5ad(tmp_path / "l.h5ad")
    for column in (None, "kind"):
        with pytest.raises(DataError, match=r"l\.h5ad has no columns"):
            read_labels(tmp_path / "l.h5ad", 2, column)


def test_a_zip_file_is_no_array_of_labels(tmp_path):
    with (tmp_path / "l.npy").open("wb") as file:
        np.savez(file, labels=np.arange(2))
    with pytest.raises(DataError, match=r"l\.npy is a zip file of arrays.*ending \.npz"):
        read_labels(tmp_path / "l.npy", 2)
