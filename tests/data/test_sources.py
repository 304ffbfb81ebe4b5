"""Data that are read in pieces: the same answers as for arrays, and never the whole of Y at once."""

import numpy as np
import pytest
from helpers.fitted_models import quick_fit, small_data, small_model
from helpers.table_files import memmap, npy, parquet, zarr_folder
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

from srflvm import DataError
from srflvm.data import compression
from srflvm.data.compression import ColumnMoments, Compressed, compress
from srflvm.data.files import open_source
from srflvm.data.sources import ArraySource
from srflvm.inference import fingerprints
from srflvm.inference.problems import gaussian
from srflvm.parallel.communicator import Communicator
from srflvm.posterior.chunks import Embedding

PIECE = 16


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    """Read pieces of 16 rows of 8 columns, but make the model that other tests share as usual."""
    small_model()
    monkeypatch.setattr("srflvm.data.sources.ENTRIES_AT_ONCE", 8 * PIECE)


class Watched:
    """A source that remembers what it was asked for."""

    def __init__(self, Y):
        self.inner, self.n_rows, self.n_columns = ArraySource(Y), *Y.shape
        self.most_rows = self.n_read = 0
        self.taken = []

    def read(self, start, stop):
        self.most_rows, self.n_read = max(self.most_rows, stop - start), self.n_read + stop - start
        return self.inner.read(start, stop)

    def take(self, index):
        self.taken.append(len(index))
        return self.inner.take(index)


def compressed(source, n_directions, dtype=np.float64):
    return Compressed.of(source, ColumnMoments.of(source, n_directions), n_directions, dtype)


def sparse_matrix(folder, Y):
    return sparse.coo_array(Y)


def sparse_file(folder, Y):
    sparse.save_npz(folder / "Y.npz", sparse.csr_array(Y))
    return folder / "Y.npz"


KINDS = [npy, memmap, zarr_folder, parquet, sparse_matrix, sparse_file]


# ---- compression ----------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(90, 7), (30, 41), (40, 40)])
@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_compression_in_pieces_is_the_singular_value_decomposition(shape, offset):
    rng = np.random.default_rng(0)
    Y = rng.standard_normal(shape) * np.geomspace(1.0, 0.1, shape[1])
    Y += np.linspace(0.0, 3.0, shape[0])[:, None]  # the pieces have means of their own
    data = compress(Y + offset, "all")
    centred = Y - Y.mean(axis=0)
    scale = np.sqrt(np.mean(centred**2))
    left, singular, _ = np.linalg.svd(centred / scale, full_matrices=False)
    kept = data.scores.shape[1]
    assert kept >= min(shape) - 1
    assert_allclose(data.columns.mean - offset, Y.mean(axis=0), atol=1e-9)
    assert data.columns.scale == pytest.approx(scale, rel=1e-9)
    assert data.total_square == pytest.approx(Y.size, rel=1e-9)
    assert_allclose(np.abs(data.scores), np.abs(left * singular)[:, :kept], atol=1e-6)
    assert np.all(np.max(data.scores, axis=0) == np.max(np.abs(data.scores), axis=0))
    assert_allclose(data.columns.scores(Y + offset), data.scores, atol=1e-12)


def test_large_tables_are_sketched_in_one_pass(monkeypatch):
    """Squares that fall as 1 / k^2: the directions found keep all but 0.1 % of what the best ones keep."""
    monkeypatch.setattr(compression, "LARGEST_EXACT", 100)
    rng = np.random.default_rng(0)
    Y = rng.standard_normal((300, 250)) / np.arange(1.0, 251.0) @ np.linalg.qr(rng.normal(size=(250, 250)))[0]
    source = Watched(Y + 1e3)
    data = compressed(source, 20)
    assert source.n_read == 2 * 300
    singular = np.linalg.svd((Y - Y.mean(axis=0)) / data.columns.scale, compute_uv=False)
    kept = np.sum(data.scores**2) / np.sum(singular[:20] ** 2)
    assert 0.999 < kept <= 1.0 + 1e-9
    assert_allclose(data.columns.directions.T @ data.columns.directions, np.eye(20), atol=1e-10)
    assert_allclose(np.sum(data.scores[:, :5] ** 2, axis=0), singular[:5] ** 2, rtol=1e-4)


def test_very_many_scores_are_kept_in_the_precision_of_the_fit(monkeypatch):
    Y = small_data()[0]
    data, expected = compress(Y, 3), quick_fit(Y, compression=3)
    assert compressed(ArraySource(Y), 3, np.float32).scores.dtype == np.float64
    monkeypatch.setattr(compression, "MOST_DOUBLE_SCORES", 100)
    single = compressed(ArraySource(Y), 3, np.float32)
    assert single.scores.dtype == np.float32
    assert_allclose(single.scores, data.scores, atol=1e-6)
    some = single.rows(np.arange(5))
    assert some.scores.dtype == np.float64
    assert some.total_square == pytest.approx(data.rows(np.arange(5)).total_square, rel=1e-6)
    model = quick_fit(Y, compression=3)
    assert_allclose(model.embedding_, expected.embedding_, atol=1e-3)
    assert model._posterior.anchor_scores.dtype == np.float64


def test_moments_of_a_single_row_at_a_time():
    Y = np.random.default_rng(0).standard_normal((9, 3)) * 1e-3 + [1e6, -1e6, 0.0]
    moments = compression.ColumnMoments(3, gram=True)
    for row in range(9):
        moments.add(slice(row, row + 1), Y[row : row + 1])
    centred = Y - Y.mean(axis=0)
    # means near 1e6 are known to 1e-10, so products with deviations of 1e-3 are known to about 1e-12
    assert_allclose(moments.image, centred.T @ centred, atol=1e-11)
    assert moments.square == pytest.approx(np.sum(centred**2), rel=1e-6)


@pytest.mark.parametrize("n_latent", [2, 10])
def test_the_product_of_features_and_wide_rows_is_made_in_parts(n_latent, monkeypatch):
    rng = np.random.default_rng(0)
    Y, frequencies = rng.standard_normal((70, 5)), rng.standard_normal((6, n_latent))
    latents = Embedding(
        rng.standard_normal((70, n_latent)), 0.1 * rng.standard_normal((70, n_latent, n_latent))
    )
    data = compress(Y, "all")
    in_parts = gaussian._full_cross(frequencies, latents, ArraySource(Y), data)
    whole = np.mean(gaussian._point_features(frequencies, latents, slice(0, 70)), axis=0)
    assert_allclose(in_parts, whole.T @ data.columns.standardise(Y), atol=1e-12)


def test_rows_are_embedded_in_pieces(monkeypatch):
    posterior, Y = small_model()._posterior, small_data()[0]
    scores = posterior.columns.scores(Y)
    whole = posterior.embed_scores(scores)
    monkeypatch.setattr("srflvm.posterior.gaussian._ROWS_AT_ONCE", 25)
    in_pieces = posterior.embed_scores(scores)
    assert_allclose(in_pieces.mean, whole.mean, atol=1e-12)
    assert_allclose(in_pieces.cholesky, whole.cholesky, atol=1e-12)


# ---- fits -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("write", KINDS)
def test_a_fit_from_any_source_is_the_fit_of_the_array(write, tmp_path):
    Y = small_data()[0]
    model, expected = quick_fit(write(tmp_path, Y)), quick_fit(Y)
    assert_array_equal(model.embedding_, expected.embedding_)
    assert_array_equal(model.elbo_history_, expected.elbo_history_)
    assert_array_equal(model._posterior.weights, expected._posterior.weights)
    assert model.n_features_in_ == 8


def watched_fit(Y, monkeypatch, **parameters):
    source = Watched(Y)
    monkeypatch.setattr("srflvm.data.reading.open_source", lambda given: source)
    return source, quick_fit("watched", **parameters)


def test_a_fit_reads_the_data_three_times_and_never_as_a_whole(monkeypatch):
    source, model = watched_fit(small_data()[0], monkeypatch)
    assert source.most_rows == PIECE
    # a first piece tells whether columns have different units
    assert source.n_read == 3 * 60 + PIECE
    assert source.taken == []
    assert model.embedding_.shape == (60, 2)


def test_landmarks_are_taken_from_the_source(monkeypatch):
    Y = small_data()[0]
    expected = quick_fit(Y, init="auto", n_landmarks=40)
    source, model = watched_fit(Y, monkeypatch, init="auto", n_landmarks=40)
    assert model.start_.startswith("landmarks")
    assert source.taken == [40]
    assert source.most_rows == PIECE
    assert source.n_read == 3 * 60 + PIECE
    assert_array_equal(model.embedding_, expected.embedding_)


def test_the_embedding_is_what_transform_gives(tmp_path):
    Y = small_data()[0]
    path = npy(tmp_path, Y)
    model = quick_fit(path)
    assert_allclose(model.transform(path), model.embedding_, atol=1e-8)
    assert_allclose(model.transform(Y), model.embedding_, atol=1e-8)


def test_names_of_parquet_columns_are_remembered_and_checked(tmp_path):
    Y = small_data()[0]
    path = parquet(tmp_path, Y)
    model = quick_fit(path)
    assert list(model.feature_names_in_) == [f"c{m}" for m in range(8)]
    assert_allclose(model.transform(path), model.embedding_, atol=1e-8)
    with pytest.raises(ValueError, match="feature names should match"):
        model.transform(parquet(tmp_path, Y[:, :7]))
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        model.transform(npy(tmp_path, Y))
    with pytest.raises(ValueError, match="X has 7 features, but SRFLVM is expecting 8"):
        small_model().transform(sparse.csr_array(Y[:, :7]))


def digest(source):
    return fingerprints._data_digest(source, Communicator())


def test_a_checkpoint_of_an_array_belongs_to_its_file_too(tmp_path):
    Y = small_data()[0].copy()
    Y[3, 4] = np.nan
    for write in KINDS:
        source = open_source(write(tmp_path, Y))
        assert digest(source) == digest(ArraySource(Y))
        Y[20, 1] += 1.0
        assert digest(source) != digest(ArraySource(Y))


def test_what_needs_all_of_y_is_refused_for_files(tmp_path):
    Y = np.round(np.abs(small_data()[0]))
    with pytest.raises(DataError, match=r"not those of plain Gaussian data.*numpy\.load"):
        quick_fit(npy(tmp_path, Y), likelihood="poisson", batch_size=None)
    with pytest.raises(ValueError, match="mask= is for arrays in memory"):
        small_model().transform(npy(tmp_path, Y), mask=np.zeros(Y.shape, bool))
    Y[37, 5] = np.nan
    with pytest.raises(DataError, match="missing entry at row 37, column 5"):
        quick_fit(npy(tmp_path, Y), batch_size=None)
    with pytest.raises(ValueError, match=r"1 sample\(s\)"):
        quick_fit(sparse.csr_array(Y[:1]))


def test_a_memory_map_is_an_array_where_all_of_y_is_needed(tmp_path):
    Y = small_data()[0].copy()
    Y[37, 5] = np.nan
    expected = quick_fit(Y)
    assert_array_equal(quick_fit(memmap(tmp_path, Y)).embedding_, expected.embedding_)
    mask = np.zeros(Y.shape, bool)
    assert_array_equal(expected.transform(memmap(tmp_path, Y), mask=mask), expected.transform(Y))


# ---- queries --------------------------------------------------------------------------------------


@pytest.mark.parametrize("write", [npy, zarr_folder, sparse_file])
def test_queries_of_sources_are_those_of_arrays(write, tmp_path):
    model, Y = small_model(), small_data()[0].copy()
    holes = np.random.default_rng(0).uniform(size=Y.shape) < 0.1
    holes[20:40] = False
    holey = np.where(holes, np.nan, Y)
    path = write(tmp_path, holey)
    for found, expected in [
        (model.transform(path, return_std=True), model.transform(holey, return_std=True)),
        (model.score_samples(path), model.score_samples(holey)),
        (model.impute(path, return_std=True), model.impute(holey, return_std=True)),
        (model.impute(path), model.impute(holey)),
        (draws(model, path), draws(model, holey)),
        (model.score_entries(path, Y), model.score_entries(holey, Y)),
    ]:
        assert_array_equal(found, expected)
    assert_allclose(model.transform(path)[3:4], model.transform(holey[3:4]), atol=1e-8)


def draws(model, Y):
    return model.impute(Y, n_draws=2, random_state=0)
