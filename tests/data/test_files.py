"""Sources of every kind, which read what was written, in order and at random."""

import json
import sys

import numpy as np
import pytest
import zarr
from helpers.table_files import memmap, npy, parquet, zarr_folder
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy import sparse

from srflvm import SRFLVM, DataError
from srflvm.data import sources as limits
from srflvm.data.files import open_source
from srflvm.data.reading import _CheckedSource as CheckedSource
from srflvm.data.sources import ArraySource, SlicedSource, pieces, rows_at_once, take_by_reading
from srflvm.data.tables.arrays import StoredArraySource

N_ROWS, N_COLUMNS = 103, 7


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    """Read pieces of 20 rows, so that small tables have several."""
    monkeypatch.setattr("srflvm.data.sources.ENTRIES_AT_ONCE", 20 * N_COLUMNS)


def table(dtype=np.float64):
    values = np.random.default_rng(0).integers(-50, 50, (N_ROWS, N_COLUMNS)) * (np.arange(N_COLUMNS) > 2)
    return (values if np.dtype(dtype).kind in "iu" else values / 7).astype(dtype)


def npy_by_columns(folder, Y):
    return npy(folder, np.asfortranarray(Y))


def writable_memmap(folder, Y):
    return np.load(npy(folder, Y), mmap_mode="r+")


def part_of_memmap(folder, Y):
    return np.load(npy(folder, np.concatenate([Y[:5], Y])), mmap_mode="r")[5:]


def sparse_npz(folder, Y):
    sparse.save_npz(folder / "Y.npz", sparse.csc_array(Y))
    return str(folder / "Y.npz")


def zarr_version_2(folder, Y):
    return zarr_folder(folder, Y, zarr_format=2)


def zarr_high_chunks(folder, Y):
    return zarr_folder(folder, Y, chunks=(N_ROWS, N_COLUMNS))


def zarr_zip(folder, Y):
    store = zarr.storage.ZipStore(folder / "Y.zarr.zip", mode="w")
    zarr.create_array(store, data=np.ascontiguousarray(Y), chunks=(9, 4))
    store.close()
    return folder / "Y.zarr.zip"


def zarr_array(folder, Y):
    return zarr.open_array(zarr_folder(folder, Y), mode="r")


def parquet_high_groups(folder, Y):
    return parquet(folder, Y, row_group_size=N_ROWS)


WRITERS = [
    npy,
    npy_by_columns,
    memmap,
    writable_memmap,
    part_of_memmap,
    sparse_npz,
    zarr_folder,
    zarr_version_2,
    zarr_high_chunks,
    zarr_zip,
    zarr_array,
    parquet,
    parquet_high_groups,
]


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int16])
@pytest.mark.parametrize("write", WRITERS)
def test_a_source_reads_what_was_written(write, dtype, tmp_path):
    Y = table(dtype)
    source = open_source(write(tmp_path, Y))
    assert (source.n_rows, source.n_columns) == Y.shape
    whole = np.concatenate([piece for _, piece in pieces(source)])
    assert whole.dtype == (np.float32 if dtype == np.float32 else np.float64)
    assert np.array_equal(whole, Y)
    for start, stop in [(0, 1), (90, 103), (36, 38), (0, 103), (5, 60)]:
        assert np.array_equal(source.read(start, stop), Y[start:stop])
    for index in [[0], [102], [3, 4, 5, 30, 36, 37, 99, 102], np.arange(N_ROWS)]:
        taken = source.take(np.array(index))
        assert taken.dtype == whole.dtype
        assert np.array_equal(taken, Y[index])


def test_missing_entries_are_nan(tmp_path):
    Y = table()
    Y[40, 3] = np.nan
    for write in [npy, sparse_npz, zarr_folder, parquet]:
        assert np.array_equal(open_source(write(tmp_path, Y)).read(0, N_ROWS), Y, equal_nan=True)


def test_parquet_nulls_flags_and_a_pandas_index(tmp_path):
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(
        {"count": pd.array([1, None, 3], "Int64"), "flag": [True, False, True]}, index=[5, 6, 9]
    )
    frame.to_parquet(tmp_path / "Y.parquet")
    source = open_source(tmp_path / "Y.parquet")
    assert source.names == ("count", "flag")
    assert np.array_equal(source.read(0, 3), [[1, 1], [np.nan, 0], [3, 1]], equal_nan=True)


def test_big_endian_files_are_read(tmp_path):
    source = open_source(npy(tmp_path, table(">f4")))
    assert source.read(0, 3).dtype == np.float32
    assert np.array_equal(source.read(0, N_ROWS), table(np.float32))


def test_files_are_read_and_not_mapped(tmp_path):
    """Read files, for mapped pages would count as memory of the process."""
    for write in [npy, npy_by_columns, memmap]:
        assert isinstance(open_source(write(tmp_path, table())), StoredArraySource)
    for write in [writable_memmap, part_of_memmap]:
        assert isinstance(open_source(write(tmp_path, table())), SlicedSource)


def test_random_rows_of_a_file_are_read_in_few_short_runs(tmp_path, monkeypatch):
    monkeypatch.setattr("srflvm.data.tables.arrays._BYTES_OF_A_GAP", 3 * N_COLUMNS * 8)
    source, asked = open_source(npy(tmp_path, table())), []
    read = StoredArraySource.read
    monkeypatch.setattr(
        StoredArraySource, "read", lambda s, a, b: asked.append((int(a), int(b))) or read(s, a, b)
    )
    source.take(np.array([0, 3, 7, 18, 19, 20, 21]))
    assert asked == [(0, 4), (7, 8), (18, 20), (20, 22)]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.integers(0, N_ROWS - 1), min_size=1, max_size=40).map(sorted),
    st.integers(1, N_ROWS),
    st.integers(1, 12),
)
def test_runs_of_rows_are_the_rows_of_any_sorted_index(small_pieces, index, largest_gap, n_columns):
    Y = np.random.default_rng(1).normal(size=(N_ROWS, n_columns))
    source, asked = SlicedSource(Y), []

    class Recorder(SlicedSource):
        def read(self, start, stop):
            asked.append((start, stop))
            return source.read(start, stop)

    taken = take_by_reading(Recorder(Y), np.array(index), largest_gap)
    np.testing.assert_array_equal(taken, Y[index])
    size = rows_at_once(n_columns)
    assert all(start // size == (stop - 1) // size for start, stop in asked)


def test_all_else_is_left_to_scikit_learn():
    for other in (table(), table().tolist(), None, 3.0):
        assert open_source(other) is None


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda folder: npy(folder, np.array([["a", "b"]])), "entries of type <U1"),
        (lambda folder: npy(folder, np.array([[None, 1]])), "cannot be read as an array of numbers"),
        (lambda folder: npy(folder, np.ones(5)), "1 dimensions. Expected 2D array"),
        (lambda folder: npy(folder, np.ones((2, 2), complex)), "type complex128"),
        (lambda folder: sparse.csr_array(np.ones((2, 2), complex)), "type complex128"),
        (lambda folder: parquet(folder, np.array([["a"], ["b"]])), "column 'c0' of type string"),
        (lambda folder: zarr_folder(folder, np.ones((2, 2, 2)), chunks=(1, 1, 1)), "3 dimensions"),
        (lambda folder: write_text(folder / "Y.npy"), "cannot be read as an array"),
        (lambda folder: write_text(folder / "Y.npz"), "not a sparse matrix that scipy"),
        (lambda folder: write_text(folder / "Y.parquet"), "cannot be read as a Parquet file"),
        (lambda folder: dense_npz(folder), "Write dense arrays with numpy.save"),
        (lambda folder: group_of_arrays(folder), r"group of Zarr arrays \(counts, totals\)"),
    ],
)
def test_what_is_no_table_of_numbers_is_refused(write, message, tmp_path):
    with pytest.raises(DataError, match=message):
        open_source(write(tmp_path))


def write_text(path):
    path.write_text("these are not numbers")
    return path


def dense_npz(folder):
    np.savez(folder / "Y.npz", Y=table())
    return folder / "Y.npz"


def group_of_arrays(folder):
    group = zarr.create_group(folder / "Y.zarr")
    for name in ("counts", "totals"):
        group.create_array(name, data=table())
    return folder / "Y.zarr"


def with_metadata(folder, **changes):
    """Write a Zarr array whose metadata do not tell what is stored."""
    path = zarr_folder(folder, table())
    described = json.loads((path / "zarr.json").read_text()) | changes
    (path / "zarr.json").write_text(json.dumps(described))
    return path


def chunks_of(*sides):
    return {"chunk_grid": {"name": "regular", "configuration": {"chunk_shape": sides}}}


def test_zarr_chunks_that_cannot_be_held_are_refused_with_their_size(tmp_path):
    path = with_metadata(tmp_path, **chunks_of(10**9, 10**6))
    message = (
        r"Y\.zarr is stored in chunks of 1000000000 x 1000000 entries of type float64.* takes "
        r"8000000\.00 GB at once.*Write the array again with smaller chunks"
    )
    for read in (open_source, SRFLVM().fit):
        with pytest.raises(DataError, match=message):
            read(path)
    with pytest.raises(DataError, match="The Zarr array is stored in chunks of 1000000000 x 1000000"):
        open_source(zarr.open_array(path, mode="r"))


def test_zarr_chunks_are_compared_with_the_memory_that_is_free(tmp_path, monkeypatch):
    path = zarr_folder(tmp_path, table())
    monkeypatch.setattr(limits, "available", lambda: 9 * 4 * 8 - 1)
    with pytest.raises(DataError, match=r"chunks of 9 x 4|103 rows and 7 columns"):
        open_source(path)
    monkeypatch.setattr(limits, "available", lambda: None)
    assert open_source(path).n_rows == N_ROWS
    with pytest.raises(DataError, match="chunks of 1000000 x 1000000"):
        open_source(with_metadata(tmp_path / "unknown", **chunks_of(10**6, 10**6)))


@pytest.mark.parametrize("shape", [(10**13, 3), (3, 10**13)])
def test_shapes_of_which_no_piece_can_be_held_are_refused(shape, tmp_path):
    """Refuse matrices of zeros, which take no space on the disk, whatever their shape."""
    one = np.zeros(1, int)
    matrix = sparse.coo_array((np.ones(1), (one, one)), shape)
    stored = with_metadata(tmp_path, shape=shape, **chunks_of(10, 10))
    sparse.save_npz(tmp_path / "Y.npz", matrix)
    for Y in (matrix, stored, tmp_path / "Y.npz"):
        with pytest.raises(DataError, match=f"has {shape[0]} rows and {shape[1]} columns.* at once"):
            open_source(Y)


def test_an_array_in_a_zarr_group_has_a_path(tmp_path):
    assert np.array_equal(open_source(group_of_arrays(tmp_path) / "counts").read(0, N_ROWS), table())


def test_missing_and_unknown_files_are_named(tmp_path):
    for name in ("no.npy", "no.zarr"):
        with pytest.raises(FileNotFoundError, match=name):
            open_source(tmp_path / name)
    with pytest.raises(
        ValueError, match=r"only files whose names end in \.parquet, \.npy, \.npz, \.zarr, .* \.h5ad"
    ):
        open_source(write_text(tmp_path / "Y.csv"))


def test_a_file_cut_short_is_refused(tmp_path):
    path = npy(tmp_path, table())
    source = open_source(path)
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(DataError, match="cut short"):
        source.read(100, N_ROWS)
    with pytest.raises(DataError, match="cannot be read"):
        open_source(path)


@pytest.mark.parametrize(("name", "write"), [("zarr", zarr_folder), ("pyarrow", parquet)])
def test_a_missing_package_is_named_with_what_to_install(name, write, tmp_path, monkeypatch):
    path = write(tmp_path, table())
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match=rf"needs the package {name}: pip install 'srflvm\[files\]'"):
        open_source(path)


def checked(Y, fitting=True):
    return CheckedSource(ArraySource(Y), None, fitting=fitting, in_memory=False)


def test_infinity_is_refused_by_its_row_and_column(tmp_path):
    Y = np.zeros((70_100, 2), np.float32)
    Y[70_000, 1] = np.inf
    with pytest.raises(DataError, match="infinity at row 70000, column 1; 1 of the 140 entries read with it"):
        SRFLVM().fit(npy(tmp_path, Y))
    with pytest.raises(DataError, match="infinity at row 70000, column 1"):
        checked(Y).take(np.array([3, 70_000]))


def test_rows_and_columns_without_entries_are_told_of_once():
    Y = table()
    assert len(list(pieces(checked(Y)))) == 6
    Y[60] = np.nan
    Y[:, 2] = np.nan
    source = checked(Y, fitting=False)
    with pytest.warns(UserWarning, match="1 row of Y has no observed entry: row 60"):
        list(pieces(source))
    list(pieces(source))
    with pytest.raises(DataError, match="no observed entry in column 2"):
        list(pieces(checked(Y)))
