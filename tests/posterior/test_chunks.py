"""Chunks of rows: they cover all rows once, and padding leaves no trace."""

import numpy as np
import pytest

from srflvm.posterior.chunks import CHUNK, PaddedChunks, row_chunks


@pytest.mark.parametrize("n_rows", [0, 1, CHUNK, CHUNK + 1, 3 * CHUNK - 1])
def test_slices_cover_all_rows_once(n_rows):
    rows = np.arange(n_rows)
    parts = [rows[part] for part in row_chunks(n_rows)]
    np.testing.assert_array_equal(np.concatenate([rows[:0], *parts]), rows)
    assert all(0 < len(part) <= CHUNK for part in parts)


@pytest.mark.parametrize(("n_rows", "size"), [(5, 2), (6, 3), (2, 4)])
def test_chunks_of_a_tree_are_padded_with_zeros_and_joined_without_them(n_rows, size):
    tree = {"a": np.arange(3.0 * n_rows).reshape(n_rows, 3) + 1.0, "b": (np.ones(n_rows, bool),)}
    chunks = PaddedChunks(n_rows, size)
    parts = list(chunks.cut(tree))
    assert len(parts) == -(-n_rows // size)
    assert all(part["a"].shape == (size, 3) and part["b"][0].shape == (size,) for part in parts)
    n_padded = len(parts) * size - n_rows
    np.testing.assert_array_equal(np.asarray(parts[-1]["a"])[size - n_padded :], 0.0)
    joined = chunks.join(parts)
    np.testing.assert_array_equal(joined["a"], tree["a"])
    np.testing.assert_array_equal(joined["b"][0], tree["b"][0])


def test_few_rows_and_wide_programs_have_small_chunks():
    assert PaddedChunks.for_rows(64, 10).size < PaddedChunks.for_rows(65, 10).size
    assert PaddedChunks.for_rows(10_000, 10**6).size == PaddedChunks.for_rows(1, 1).size
