"""Streams of rows."""

import copy
import warnings

import numpy as np
import pytest
from helpers.model_files import made_up, model_of_all_kinds, rows_of_each_kind, table_of_all_kinds
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

import srflvm
from srflvm import SRFLVM
from srflvm.datasets import make_s_curve_gp
from srflvm.exceptions import DataError, NumericalError
from srflvm.inference import stream
from srflvm.inference.statistics import GaussianStatistics, RowSums, SiteStatistics, StreamState
from srflvm.parallel.communicator import Communicator

SETTINGS = {"n_frequencies": 10, "random_state": 0, "init": "pca"}


@pytest.fixture(scope="module")
def rows():
    return make_s_curve_gp(260, 6, noise=0.2, random_state=0).Y


def quietly(call, *arguments, **more):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return call(*arguments, **more)


@pytest.fixture(scope="module")
def beginning(rows):
    return quietly(SRFLVM(**SETTINGS).partial_fit, rows[:100])


def test_the_first_call_is_a_fit(rows, beginning):
    assert beginning.n_samples_seen_ == 100
    np.testing.assert_allclose(beginning.transform(rows[:100]), beginning.embedding_, atol=1e-6)


def test_a_stream_ends_near_a_fit_of_all_rows(rows, beginning):
    model, held_out = copy.deepcopy(beginning), rows[200:]
    for start in range(100, 200, 25):
        model.partial_fit(rows[start : start + 25])
    assert model.n_samples_seen_ == 200
    assert model.embedding_.shape == (25, 2)
    np.testing.assert_allclose(model.transform(rows[175:200]), model.embedding_, atol=1e-6)
    whole = quietly(SRFLVM(**SETTINGS).fit, rows[:200])
    assert model.score(held_out) > beginning.score(held_out)
    assert model.score(held_out) > whole.score(held_out) - 0.1 * rows.shape[1]


def test_the_sums_are_those_of_both_batches_and_the_weights_follow_from_them(rows, beginning):
    model = copy.deepcopy(beginning)
    statistics = GaussianStatistics()
    added = statistics.gather(model._posterior, rows[100:120]).statistics
    expected = beginning._stream.sums.plus(added, 20)
    model.partial_fit(rows[100:120])
    np.testing.assert_allclose(model._stream.sums.statistics.gram, expected.statistics.gram)
    kept = model._posterior
    system = expected.statistics.gram + kept.ratio * np.eye(20)
    np.testing.assert_allclose(kept.weights, np.linalg.solve(system, expected.statistics.cross), atol=1e-7)


def test_the_bound_adds_up_what_each_call_gave(rows, beginning):
    model = copy.deepcopy(beginning)
    bound = GaussianStatistics().gather(model._posterior, rows[100:120]).bound
    model.partial_fit(rows[100:120])
    before = beginning.elbo_ + beginning._stream.divergence
    assert model.elbo_ == pytest.approx(before + bound - model._stream.divergence)
    assert model.elbo_history_[-1] == model.elbo_
    assert model.n_iter_ == beginning.n_iter_ + 1


def test_batches_replace_other_anchors_each_time(rows, beginning, monkeypatch):
    monkeypatch.setattr(stream, "MOST_ANCHORS", 100)
    model, replaced = copy.deepcopy(beginning), []
    for start in (100, 180):
        before = model._posterior.anchors
        model.partial_fit(rows[start : start + 80])
        replaced.append(set(np.flatnonzero((model._posterior.anchors != before).any(axis=1))))
    # by chance about half of those of the second batch, with the same random numbers nearly all of them
    assert len(replaced[1] - replaced[0]) >= 8


def test_anchors_are_a_sample_of_all_rows(rows, beginning, monkeypatch):
    monkeypatch.setattr(stream, "MOST_ANCHORS", 110)
    model = copy.deepcopy(beginning).partial_fit(rows[100:200])
    anchors = model._posterior.anchor_scores
    assert len(anchors) == 110
    scores = model._posterior.columns.scores(rows[:200])
    rows_kept = [int(np.argmin(np.sum((scores - anchor) ** 2, axis=1))) for anchor in anchors]
    np.testing.assert_allclose(scores[rows_kept], anchors, atol=1e-9)
    assert 35 < sum(row >= 100 for row in rows_kept) < 75


def test_a_stream_of_counts_with_holes_goes_on():
    Y = rows_of_each_kind()["poisson"].copy()
    Y[::5, 1] = np.nan
    model = made_up(Y, likelihood="poisson", size_factors=None)
    statistics = SiteStatistics(np.dtype(np.float32), len(Y))
    gathered = statistics.gather(model._posterior, Y)
    model._stream = StreamState(RowSums(gathered.statistics, len(Y)), 0.0)
    before = model._posterior
    model.partial_fit(Y[:8])
    assert model.n_samples_seen_ == 38
    assert model.embedding_.shape == (8, 2)
    assert len(model._posterior.anchors) == 30 + 6
    assert not np.allclose(model._posterior.weights, before.weights)


def test_the_first_call_needs_some_rows(rows):
    with pytest.raises(ValueError, match="at least 10 rows"):
        SRFLVM().partial_fit(rows[:9])


def test_a_fit_of_all_rows_by_sites_is_not_a_beginning():
    with pytest.raises(ValueError, match="Begin the stream with partial_fit"):
        model_of_all_kinds().partial_fit(table_of_all_kinds())


def test_a_gaussian_posterior_tells_the_sums_it_follows_from(rows, beginning):
    model = copy.deepcopy(beginning).partial_fit(rows[100:110])
    found = StreamState.behind(model._posterior, 110).sums.statistics
    for part, truth in zip(found, model._stream.sums.statistics, strict=True):
        np.testing.assert_allclose(part, truth, atol=1e-6 * np.abs(truth).max())


def test_a_stream_goes_on_from_a_file(rows, beginning, tmp_path):
    model = copy.deepcopy(beginning).partial_fit(rows[100:110])
    model.save(tmp_path / "model")
    loaded = srflvm.load(tmp_path / "model")
    assert loaded.n_samples_seen_ == 110
    np.testing.assert_array_equal(loaded.transform(rows[110:120]), model.transform(rows[110:120]))
    loaded.partial_fit(rows[110:120])
    model.partial_fit(rows[110:120])
    assert loaded.n_samples_seen_ == 120
    assert loaded.elbo_ == pytest.approx(model.elbo_, rel=1e-4)
    np.testing.assert_allclose(loaded.embedding_, model.embedding_, atol=1e-3)


def test_holes_cannot_come_later(rows, beginning):
    Y = rows[100:110].copy()
    Y[3, 2] = np.nan
    with pytest.raises(DataError, match=r"row 3, column 2.*inference='sites'"):
        copy.deepcopy(beginning).partial_fit(Y)


def test_an_update_that_is_not_finite_changes_nothing(rows, beginning, monkeypatch):
    model, before = copy.deepcopy(beginning), beginning._posterior
    gather = GaussianStatistics.gather
    monkeypatch.setattr(
        GaussianStatistics, "gather", lambda *arguments: gather(*arguments)._replace(bound=float("nan"))
    )
    with pytest.raises(NumericalError, match="the model is as it was"):
        model.partial_fit(rows[100:110])
    assert model.n_samples_seen_ == 100
    np.testing.assert_array_equal(model._posterior.weights, before.weights)


def test_a_stream_has_no_checkpoints(rows, tmp_path):
    with pytest.raises(ValueError, match="checkpoint_dir"):
        SRFLVM(checkpoint_dir=tmp_path).partial_fit(rows)


def test_a_stream_is_for_one_process(rows, monkeypatch):
    communicator = Communicator()
    communicator.n_processes = 2
    monkeypatch.setattr("srflvm.inference.stream.current", lambda: communicator)
    with pytest.raises(ValueError, match="in one process"):
        SRFLVM().partial_fit(rows)


def test_other_columns_are_refused(beginning):
    with pytest.raises(ValueError, match="features"):
        copy.deepcopy(beginning).partial_fit(np.zeros((3, 5)))


def test_a_clone_begins_anew(beginning):
    assert not hasattr(clone(beginning), "_stream")
