"""Sparse matrices whose parts do not fit together are refused before SciPy reads beyond its arrays."""

import zipfile

import numpy as np
import pytest
from scipy import sparse

from srflvm import SRFLVM, DataError
from srflvm.data.files import open_source
from srflvm.data.tables.formats import open_table

Y = np.array([[0.0, 1.0, 2.0], [3.0, 0.0, 0.0], [0.0, 4.0, 0.0], [5.0, 0.0, 6.0]])
FORMATS = ["csr", "csc", "coo", "bsr", "dia", "lil", "dok"]


def sound(kind):
    return sparse.coo_array(Y).asformat(kind)


def with_part(kind, part, place, value):
    """Return a matrix with one number of `indptr`, `indices` or another part replaced."""
    matrix = sound(kind)
    getattr(matrix, part)[place] = value
    return matrix


def with_coordinate(axis, value):
    matrix = sparse.coo_array(Y)
    matrix.coords[axis][2] = value
    return matrix


def with_whole(kind, part, change):
    matrix = sound(kind)
    setattr(matrix, part, change(getattr(matrix, part)))
    return matrix


def empty_but_for_one_row():
    """Return a matrix with as many entries as indptr ends with, none, and a row that has two."""
    matrix = sparse.csr_array(Y)
    matrix.indptr[1:] = 0
    matrix.indptr[1] = 2
    return matrix


def lists_with(change):
    matrix = sparse.lil_array(Y)
    change(matrix)
    return matrix


DAMAGED = {
    "csr column": (lambda: with_part("csr", "indices", 3, 3), "indices has 3 at 3, but there are 3 columns"),
    "csr negative": (lambda: with_part("csr", "indices", 0, -1), "indices has -1 at 0"),
    "csr start": (lambda: with_part("csr", "indptr", 0, 1), "indptr begins with 1"),
    "csr end": (lambda: with_part("csr", "indptr", 4, 7), "indptr ends with 7, but 6 entries are stored"),
    "csr order": (lambda: with_part("csr", "indptr", 2, 9), "indptr falls from 9 to 4 at 3"),
    "csr empty": (empty_but_for_one_row, "indptr falls from 2 to 0 at 2"),
    "csr short": (lambda: with_whole("csr", "indptr", lambda a: a[:-1]), r"indptr has shape \(4,\) in place"),
    "csr lengths": (lambda: with_whole("csr", "indices", lambda a: a[:-1]), r"indices has shape \(5,\)"),
    "csr data": (lambda: with_whole("csr", "data", lambda a: a[:, None]), "data has 2 dimensions"),
    "csr floats": (lambda: with_whole("csr", "indices", np.float64), "type float64 in place of integers"),
    "csc row": (lambda: with_part("csc", "indices", 1, 4), "indices has 4 at 1, but there are 4 rows"),
    "csc order": (lambda: with_part("csc", "indptr", 1, 6), "indptr falls from 6 to 4"),
    "bsr column": (lambda: with_part("bsr", "indices", 0, 70), "but there are 3 columns of blocks"),
    "bsr order": (lambda: with_part("bsr", "indptr", 1, 5), "indptr falls"),
    "bsr blocks": (lambda: with_whole("bsr", "data", lambda a: a.repeat(2, axis=2)), "1 x 2 do not fill"),
    "coo row": (lambda: with_coordinate(0, 4), "list of rows has 4 at 2, but there are 4 rows"),
    "coo column": (lambda: with_coordinate(1, -2), "list of columns has -2 at 2"),
    "coo lengths": (lambda: with_whole("coo", "data", lambda a: a[:-1]), r"list of rows has shape \(6,\)"),
    "dia twice": (lambda: with_part("dia", "offsets", slice(None), 0), "has a diagonal twice"),
    "dia lengths": (lambda: with_whole("dia", "data", lambda a: a[1:]), "offsets has shape"),
    "lil column": (lambda: lists_with(lambda m: m.rows[0].__setitem__(0, 3)), "there are 3 columns"),
    "lil lengths": (lambda: lists_with(lambda m: m.data[0].append(1.0)), "row 0 has 2 column indices and 3"),
    "lil rows": (lambda: with_whole("lil", "rows", lambda a: a[:2]), "have 2 and 4 lists for 4 rows"),
    "dok row": (lambda: keys_with((4, 0)), "exceeds matrix dimension 4"),
}


def keys_with(key):
    matrix = sparse.dok_array(Y)
    matrix._dict[key] = 1.0
    return matrix


@pytest.mark.parametrize("kind", DAMAGED)
def test_parts_that_do_not_fit_together_are_refused(kind):
    make, message = DAMAGED[kind]
    with pytest.raises(DataError, match=f"(?s)sound sparse matrix of the format {kind[:3]}: .*{message}"):
        SRFLVM().fit(make())


@pytest.mark.parametrize("kind", FORMATS)
def test_every_format_is_read_and_left_as_it_is(kind):
    matrix = sound(kind)
    np.testing.assert_array_equal(open_source(matrix).read(0, 4), Y)
    np.testing.assert_array_equal(matrix.toarray(), Y)


def test_entries_stored_twice_are_summed_as_by_scipy():
    twice = sparse.csr_array((np.array([1.0, 2.0, 4.0]), np.array([1, 1, 0]), np.array([0, 2, 3])), (2, 2))
    np.testing.assert_array_equal(open_source(twice).read(0, 2), [[0.0, 3.0], [4.0, 0.0]])
    both = np.zeros(2, int)
    again = sparse.coo_array((np.array([1.0, 2.0]), (both, both)), (2, 1))
    np.testing.assert_array_equal(open_source(again).take(np.array([0])), [[3.0]])


def test_room_for_more_entries_is_not_damage():
    roomy = sparse.csr_array(Y)
    roomy.data, roomy.indices = np.append(roomy.data, 9.0), np.append(roomy.indices, 99)
    np.testing.assert_array_equal(open_source(roomy).read(0, 4), Y)


def test_a_model_refuses_rows_that_are_damaged(model, tmp_path):
    rows = sparse.csr_array(np.ones((2, 4)))
    rows.indices[0] = 4
    for ask in (model.transform, model.score_samples, model.impute):
        with pytest.raises(DataError, match="The sparse matrix is not a sound"):
            ask(rows)
    with pytest.raises(DataError, match="data is not a sound sparse matrix"):
        model.explore(tmp_path / "page.html", data=rows)


def stored(path, **changes):
    """Write a file as `save_npz` does, with some of its arrays replaced."""
    matrix = sparse.csr_array(Y)
    parts = {"indices": matrix.indices, "indptr": matrix.indptr, "format": np.array(b"csr")}
    np.savez(path, **parts | {"shape": np.array(Y.shape), "data": matrix.data} | changes)
    return path


@pytest.mark.parametrize("read", [open_source, open_table])
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"indices": np.array([1, 2, 0, 1, 0, 1000])}, "indices has 1000 at 5, but there are 3 columns"),
        ({"indptr": np.array([0, 3, 2, 4, 6])}, "indptr falls from 3 to 2 at 2"),
        ({"indices": np.array([1.0, 2.0, 0.4, 1.0, 0.0, 2.0])}, "'indices' is of type float64"),
        ({"shape": np.array([-4, 3])}, "shape' elements cannot be negative"),
        ({"shape": np.array([4, 2])}, "indices has 2 at 1, but there are 2 columns"),
        ({"format": np.array(b"lil")}, "not implemented for sparse matrix of format lil"),
        ({"format": np.array(3)}, "not a sparse matrix that scipy"),
    ],
)
def test_a_damaged_file_is_named_with_what_is_wrong(read, changes, message, tmp_path):
    path = stored(tmp_path / "counts.npz", **changes)
    with pytest.raises(DataError, match=rf"counts\.npz .*{message}"):
        read(path)


@pytest.mark.parametrize("read", [open_source, open_table])
@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_an_array_longer_than_its_file_is_refused(read, compression, tmp_path):
    whole, path = stored(tmp_path / "whole.npz"), tmp_path / "counts.npz"
    with zipfile.ZipFile(whole) as source, zipfile.ZipFile(path, "w", compression) as changed:
        for name in source.namelist():
            content = source.read(name)
            if name == "indices.npy":
                content = content.replace(b"(6,), }" + b" " * 12, b"(6000000000000,), }")
            changed.writestr(name, content)
    with pytest.raises(DataError, match=r"counts\.npz is damaged: 'indices' is said to have shape \(6000"):
        read(path)


def test_bytes_that_cannot_be_unpacked_are_refused(tmp_path):
    path = tmp_path / "counts.npz"
    sparse.save_npz(path, sparse.random_array((50, 50), density=0.5, rng=np.random.default_rng(0)))
    content = bytearray(path.read_bytes())
    content[len(content) // 2 : len(content) // 2 + 40] = bytes(40)
    path.write_bytes(content)
    for read in (open_source, open_table):
        with pytest.raises(DataError, match=r"counts\.npz"):
            read(path)
