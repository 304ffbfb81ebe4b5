"""Fits in batches: against fits of all rows, and at their edges."""

import copy
import warnings
from dataclasses import replace

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

import srflvm
from srflvm import SRFLVM
from srflvm.data.sources import ArraySource
from srflvm.datasets import make_s_curve_gp
from srflvm.exceptions import DataError, NumericalError
from srflvm.inference import minibatch
from srflvm.inference.facts import DataFacts, Survey, TrainingData
from srflvm.inference.params import Params
from srflvm.inference.plan import Batching, plan_fit
from srflvm.inference.statistics import GaussianStatistics, RowSums
from srflvm.likelihoods import Ordinal
from srflvm.likelihoods import columns as choosing
from srflvm.parallel.communicator import Communicator

N_ROWS, N_COLUMNS = 150, 6


def gaussian_rows(n_rows=N_ROWS):
    return make_s_curve_gp(n_rows, N_COLUMNS, noise=0.2, random_state=0).Y


def fit(Y, **parameters):
    settings = {"n_frequencies": 10, "random_state": 0, "init": "pca", "batch_size": 50, "max_iter": 3}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return SRFLVM(**settings | parameters).fit(Y)


@pytest.fixture(scope="module")
def few_landmarks():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("srflvm.inference.plan.MOST_LANDMARKS", 60)
        patch.setattr("srflvm.inference.plan.MOST_LANDMARKS_WITH_SITES", 60)
        yield


@pytest.fixture(scope="module")
def model(few_landmarks):
    return fit(gaussian_rows())


def test_the_embedding_is_what_transform_gives(model):
    Y = gaussian_rows()
    assert model.embedding_.shape == (N_ROWS, 2)
    np.testing.assert_allclose(model.transform(Y), model.embedding_, atol=1e-6)
    assert model.n_samples_seen_ == N_ROWS
    assert model.elbo_history_.shape == (model.n_iter_,)


def test_the_bound_comes_near_that_of_all_rows_at_once_on_the_same_frequencies(model):
    """Coordinate ascent with all rows in every step, from the model that the batches ended with."""
    Y, statistics = gaussian_rows(), GaussianStatistics()
    posterior, best = model._posterior, -np.inf
    for _ in range(20):
        gathered = statistics.gather(posterior, Y)
        refreshed = statistics.refresh(posterior, gathered.statistics, len(Y))
        posterior = refreshed.posterior
        best = max(best, statistics.gather(posterior, Y).bound - refreshed.divergence)
    assert model.elbo_ > best - 0.02 * Y.size


@pytest.mark.usefixtures("few_landmarks")
def test_batches_improve_on_the_landmarks():
    rows = gaussian_rows(N_ROWS + 50)
    Y, Y_new = rows[:N_ROWS], rows[N_ROWS:]
    in_batches = fit(Y)
    only_landmarks = fit(Y, callbacks=[lambda progress: progress.stage == "landmarks"])
    assert in_batches.elbo_ > only_landmarks.elbo_
    assert in_batches.score(Y_new) > only_landmarks.score(Y_new)


def test_one_batch_of_all_rows_gives_the_exact_posterior_of_the_weights(few_landmarks):
    """At the end of an epoch the sums are those of all rows under the models that placed them; with one
    batch that is one model, which a callback sees through the sums."""
    Y = gaussian_rows()
    seen = []

    class Watched(GaussianStatistics):
        def gather(self, posterior, Y, log_sizes=None):
            seen.append(super().gather(posterior, Y, log_sizes))
            return seen[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(minibatch, "statistics_for", lambda *_: Watched())
        model = fit(Y, batch_size=10_000, max_iter=1)
    of_all = next(part for part in seen if len(part.embedding.mean) == N_ROWS)
    kept = model._posterior
    system = of_all.statistics.gram + kept.ratio * np.eye(20)
    np.testing.assert_allclose(kept.weights, np.linalg.solve(system, of_all.statistics.cross), atol=1e-7)


def test_the_same_seed_gives_the_same_result(model, few_landmarks):
    np.testing.assert_array_equal(fit(gaussian_rows()).embedding_, model.embedding_)


def test_a_saved_model_says_the_same(model, tmp_path):
    model.save(tmp_path / "model")
    loaded = srflvm.load(tmp_path / "model")
    assert loaded.batch_size == 50
    assert loaded.n_samples_seen_ == N_ROWS
    np.testing.assert_array_equal(loaded.transform(gaussian_rows()), model.transform(gaussian_rows()))


def test_batch_size_is_a_parameter_like_others():
    assert clone(SRFLVM(batch_size=7)).get_params()["batch_size"] == 7
    for bad in (0, -1, 2.5, "some", True):
        with pytest.raises(ValueError, match="batch_size"):
            SRFLVM(batch_size=bad).fit(gaussian_rows())


def test_a_further_fit_cannot_go_on_in_batches(model):
    again = copy.copy(model).set_params(warm_start=True)
    with pytest.raises(ValueError, match="partial_fit"):
        again.fit(gaussian_rows())


def planned_batching(in_memory, is_plain, first_missing=None, **settings):
    facts = DataFacts(1_000_000, 3, in_memory, is_plain, first_missing)
    return plan_fit(Params(**settings), facts, Communicator()).batching


def test_what_is_automatic(monkeypatch):
    monkeypatch.setattr("srflvm.inference.plan.available", lambda: None)
    assert planned_batching(in_memory=True, is_plain=False) is None
    assert planned_batching(in_memory=False, is_plain=False) == Batching(2048, 2)
    assert planned_batching(in_memory=False, is_plain=True) is None
    assert planned_batching(in_memory=False, is_plain=True, first_missing=(3, 1)) == Batching(2048, 2)
    assert planned_batching(in_memory=True, is_plain=True, batch_size=5) == Batching(5, 2)
    with pytest.raises(DataError, match="needs all of Y in memory"):
        planned_batching(in_memory=False, is_plain=False, batch_size=None)
    assert Batching.of(Params(batch_size=50, max_iter=4), 30) == Batching(30, 4)


# ---- ending early, and steps that fail ---------------------------------------------------------------


def test_ctrl_c_keeps_what_was_learned(few_landmarks):
    def interrupt(progress):
        if progress.stage == "batches" and progress.iteration == 4:
            raise KeyboardInterrupt

    Y = gaussian_rows()
    model = fit(Y, callbacks=[interrupt])
    assert model.interrupted_
    assert not model.converged_
    assert model.n_iter_ == 1
    np.testing.assert_allclose(model.transform(Y), model.embedding_, atol=1e-6)


def test_a_callback_sees_batches_and_can_end_them(few_landmarks):
    seen = []

    def watch(progress):
        seen.append(progress)
        return progress.stage == "batches" and progress.iteration == 2

    model = fit(gaussian_rows(), callbacks=[watch])
    batches = [progress for progress in seen if progress.stage == "batches"]
    assert [progress.iteration for progress in batches] == [1, 2]
    assert batches[0].n_iterations == 9
    assert batches[0].n_entries == N_ROWS * N_COLUMNS
    assert not model.interrupted_
    assert model.n_iter_ == 1


@pytest.mark.parametrize("every", [False, True])
def test_batches_that_are_not_finite_are_dropped_and_counted(few_landmarks, monkeypatch, every):
    class Failing(GaussianStatistics):
        n_calls = 0

        def gather(self, posterior, Y, log_sizes=None):
            gathered = super().gather(posterior, Y, log_sizes)
            Failing.n_calls += 1
            bad = Failing.n_calls == 3 or (every and Failing.n_calls > 1)
            return gathered._replace(bound=np.nan) if bad else gathered

    monkeypatch.setattr(minibatch, "statistics_for", lambda *_: Failing())
    if every:
        with pytest.raises(NumericalError, match="batches were not finite"):
            fit(gaussian_rows())
    else:
        model = fit(gaussian_rows(), max_iter=1, batch_size=25)
        assert model.n_rejected_steps_ == 1
        assert np.isfinite(model.elbo_)


# ---- what is known of all rows -----------------------------------------------------------------------


def sparse_rows():
    """Rows of which one alone has an entry of the last column, and one the highest level of the first."""
    Y = np.random.RandomState(0).randint(0, 2, (40, 3)).astype(float)
    Y[:, 2] = np.nan
    Y[33, 2], Y[17, 0] = 1.0, 4.0
    return Y


def test_a_survey_finds_ranges_and_first_rows():
    Y = sparse_rows()
    data = TrainingData(ArraySource(Y), choosing.choose("ordinal", 3, None))
    found = Survey.of(data)
    assert found.n_observed == 81
    np.testing.assert_array_equal(found.range, [np.nanmin(Y, axis=0), np.nanmax(Y, axis=0)])
    np.testing.assert_array_equal(found.first_row, [0, 0, 33])
    assert found.resolved(choosing.choose("ordinal", 3, None))[0][0] == Ordinal(
        levels=((0, 1, 4), (0, 1), (1,))
    )


def test_landmarks_have_an_entry_of_every_column():
    Y = sparse_rows()
    data = TrainingData(ArraySource(Y), choosing.choose("ordinal", 3, None))
    found = Survey.of(data)
    index, rows = found.draw_landmarks(data, 5, np.random.RandomState(0))
    assert 33 in index
    assert len(index) == 6
    np.testing.assert_array_equal(rows, Y[index])


def test_a_bad_entry_is_named_wherever_it_is(monkeypatch):
    monkeypatch.setattr("srflvm.inference.facts.pieces", lambda source: [(slice(20, 40), source.Y[20:])])
    Y = sparse_rows()
    Y[25, 1] = 0.5
    with pytest.raises(DataError, match=r"from row 20 on, .* row 5, column 1"):
        Survey.of(TrainingData(ArraySource(Y), choosing.choose("poisson", 3, None)))


def test_sizes_must_be_those_of_all_rows():
    with pytest.raises(ValueError, match="one for each of the 40 rows"):
        SRFLVM(likelihood="poisson", batch_size=5).fit(np.ones((40, 3)), sizes=np.ones(5))


def test_sums_know_what_is_finite():
    assert RowSums((np.ones(2), np.zeros(1)), 3).is_finite
    assert not replace(RowSums((np.ones(2),), 3), statistics=(np.array([1.0, np.nan]),)).is_finite


# ---- other likelihoods and holes ---------------------------------------------------------------------


def counts_with_holes():
    """Draw counts of a function of two latents, with a tenth of the entries missing."""
    random = np.random.RandomState(0)
    latents = random.uniform(-1.5, 1.5, (N_ROWS, 2))
    f = 2.5 + np.sin(latents @ random.standard_normal((2, 40)) + random.uniform(0, 6, 40))
    Y = random.poisson(np.exp(f) * random.gamma(5.0, 0.2, f.shape)).astype(float)
    return Y, f, random.uniform(size=Y.shape) < 0.1


@pytest.fixture(scope="module")
def fit_of_counts(few_landmarks):
    Y, _f, mask = counts_with_holes()
    settings = {"likelihood": "negative_binomial", "size_factors": None, "n_frequencies": 8, "max_iter": 2}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        make = SRFLVM(batch_size=50, random_state=0, init="pca", **settings)
        model = clone(make).fit(Y, mask=mask)
        same = clone(make).fit(np.where(mask, 1000.0, Y), mask=mask)
    return model, same


def test_what_is_hidden_is_not_looked_at(fit_of_counts):
    model, same = fit_of_counts
    np.testing.assert_array_equal(model.embedding_, same.embedding_)
    assert model.elbo_ == same.elbo_


def test_counts_are_recovered(fit_of_counts):
    (model, _), (Y, f, mask) = fit_of_counts, counts_with_holes()
    np.testing.assert_allclose(model.transform(Y, mask=mask), model.embedding_, atol=1e-5)
    hidden = model.impute(Y, mask=mask)[mask]
    by_column = np.broadcast_to(np.mean(np.exp(f), axis=0), f.shape)[mask]
    assert np.mean((hidden - np.exp(f)[mask]) ** 2) < 0.5 * np.mean((by_column - np.exp(f)[mask]) ** 2)
    assert np.median(model.likelihood_parameters_["dispersion"]) == pytest.approx(5.0, rel=0.8)


@pytest.mark.parametrize("inference", ["polya_gamma", "polya_gamma_sampled", "gradient"])
def test_batches_refuse_a_route_that_they_do_not_take(inference):
    """After the landmarks the route was dropped without a word."""
    Y = np.random.RandomState(0).randint(0, 2, (40, 3)).astype(float)
    model = SRFLVM(likelihood="bernoulli", inference=inference, batch_size=10)
    with pytest.raises(ValueError, match=f"inference='{inference}' is for fits of all rows at once"):
        model.fit(Y)
