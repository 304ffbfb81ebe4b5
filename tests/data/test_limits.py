"""Numbers of any size work or are refused with the place and a remedy; nothing is infinite silently."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.fitted_models import quick_fit, small_data, small_model

from srflvm import SRFLVM
from srflvm.exceptions import DataError, NumericalError
from srflvm.inference import full_batch
from srflvm.likelihoods import Gaussian
from srflvm.numerics.newton import inverse_root


def holey():
    Y = small_data()[0].copy()
    Y[::5, 2] = np.nan
    return Y


def counts(size):
    t = np.linspace(-1.0, 1.0, 40)
    return np.random.RandomState(0).poisson(size * np.exp(np.outer(t, np.linspace(-1.0, 1.0, 6)))) + 0.0


REAL = {
    "complete": (small_data()[0], {}),
    "holes": (holey(), {}),
    "noise of columns": (holey(), {"likelihood": Gaussian(noise="column")}),
    "sites": (holey(), {"inference": "sites"}),
    "student_t": (holey(), {"likelihood": "student_t"}),
    "batches": (small_data()[0], {"batch_size": 30}),
}


def answers(model, Y):
    """All that a model says of rows, of which the last column is hidden to be filled."""
    hidden = Y.copy()
    hidden[:, -1] = np.nan
    filled, filled_std = model.impute(hidden, return_std=True)
    scores = model.score_entries(hidden, Y)[:, -1]
    mean, std = model.inverse_transform(model.embedding_, return_std=True)
    return [
        *model.transform(Y, return_std=True),
        *(filled[:, -1], filled_std[:, -1], mean, std),
        *(scores[~np.isnan(Y[:, -1])], model.score_samples(Y)),
    ]


def assert_finite(model, Y):
    assert all(np.isfinite(answer).all() for answer in answers(model, Y))
    assert (model.embedding_std_ > 0.0).all()
    assert (model.inverse_transform(model.embedding_, return_std=True)[1] > 0.0).all()


@pytest.mark.parametrize("precision", [1e3, 1e16, 1e30])
def test_roots_of_inverses_are_finite_however_precise_the_data(precision):
    slopes = np.random.RandomState(0).standard_normal((64, 5, 4))
    hessian = np.eye(5) + precision * np.einsum("nqc,nrc->nqr", slopes, slopes)
    with jax.enable_x64(True):
        root = np.asarray(inverse_root(jnp.asarray(hessian)))
    assert np.isfinite(root).all()
    assert np.all(np.triu(root, 1) == 0.0)
    assert np.all(np.diagonal(root, axis1=1, axis2=2) > 0.0)
    if precision < 1e8:
        assert np.allclose(root @ np.swapaxes(root, 1, 2) @ hessian, np.eye(5), atol=1e-8)


@pytest.mark.parametrize("likelihood", ["poisson", "negative_binomial"])
@pytest.mark.parametrize("size", [1e9, 3e11])
def test_large_counts_are_fitted(likelihood, size):
    Y = counts(size)
    model = quick_fit(Y, likelihood=likelihood, max_iter=10)
    assert_finite(model, Y)
    error = model.inverse_transform(model.embedding_) / Y - 1.0
    assert np.sqrt(np.mean(error**2)) < (0.01 if likelihood == "poisson" else 0.3)


def test_counts_without_structure_are_reconstructed_to_their_noise():
    Y = np.random.RandomState(0).poisson(1e9, size=(40, 6)) + 0.0
    model = quick_fit(Y, likelihood="poisson", max_iter=10)
    mean, std = model.inverse_transform(model.embedding_, return_std=True)
    assert np.sqrt(np.mean((Y - mean) ** 2)) < 1.2 * np.sqrt(1e9)
    assert np.all((std > 0.9 * np.sqrt(1e9)) & (std < 2.0 * np.sqrt(1e9)))


@pytest.mark.parametrize(
    ("likelihood", "value", "message"),
    [
        ("poisson", 2e12, r"2e\+12 at row 7, column 2: Poisson counts beyond.*'negative_binomial'"),
        ("negative_binomial", 1e17, r"1e\+17 at row 7, column 2: negative binomial.*Count in a larger unit"),
    ],
)
def test_counts_too_large_are_refused(likelihood, value, message):
    Y = counts(10.0)
    Y[7, 2] = value
    with pytest.raises(DataError, match=message):
        SRFLVM(likelihood=likelihood).fit(Y)


@pytest.mark.parametrize("scale", [1e100, 1e-100])
@pytest.mark.parametrize("name", REAL)
def test_real_numbers_of_any_usual_scale_work(name, scale):
    Y, parameters = REAL[name]
    assert_finite(quick_fit(scale * Y, **parameters), scale * Y)


@pytest.mark.parametrize("name", REAL)
def test_numbers_whose_squares_overflow_are_refused(name):
    Y, parameters = REAL[name]
    Y = Y.copy()
    Y[3, 1] = -1e200
    with pytest.raises(DataError, match=r"-1e\+200 at row 3, column 1.*divide it by a larger unit"):
        quick_fit(Y, **parameters)


@pytest.mark.parametrize("name", REAL)
def test_spreads_whose_squares_vanish_are_refused(name):
    Y, parameters = REAL[name]
    with pytest.raises(DataError, match="divide it by a smaller unit"):
        quick_fit(1e-200 * Y, **parameters)


def test_files_with_numbers_whose_squares_overflow_are_refused(tmp_path):
    Y = small_data()[0].copy()
    Y[50, 4] = 1e200
    np.save(tmp_path / "Y.npy", Y)
    with pytest.raises(DataError, match=r"1e\+200 at row 50, column 4"):
        quick_fit(str(tmp_path / "Y.npy"))
    with pytest.raises(DataError, match=r"1e\+200 at row 50, column 4"):
        small_model().transform(str(tmp_path / "Y.npy"))


@pytest.mark.parametrize("factor", [1e9, 1e20, 1e130])
@pytest.mark.parametrize("name", ["complete", "noise of columns", "student_t"])
def test_rows_far_outside_the_training_data_get_finite_answers(name, factor):
    Y, parameters = REAL[name]
    assert_finite(quick_fit(Y, **parameters), factor * small_data()[1][:4])


@pytest.mark.parametrize("likelihood", ["poisson", "negative_binomial"])
def test_counts_far_outside_the_training_data_get_finite_answers(likelihood):
    model = quick_fit(counts(10.0), likelihood=likelihood)
    rows = counts(10.0)[:4]
    rows[:, 1] = 1e12
    assert_finite(model, rows)
    assert_finite(model, np.full((2, 6), 1e12))


def test_rows_too_far_for_the_scale_of_the_model_are_refused():
    Y = 1e-100 * small_data()[0]
    model = quick_fit(Y, likelihood="student_t")
    far = Y[:5].copy()
    far[2, 3] = 1e60
    for ask in (model.transform, model.score_samples):
        with pytest.raises(DataError, match=r"1e\+60 at row 2, column 3.*units of the training data"):
            ask(far)


def spoiled(fitted):
    std = fitted.embedding.cholesky.copy()
    std[0] = np.nan
    return replace(fitted, embedding=fitted.embedding._replace(cholesky=std))


def test_a_fit_that_is_not_finite_is_made_again_more_safely_and_then_refused(monkeypatch):
    real, attempts = full_batch._Attempt.result, []

    def result(attempt, candidate, bounds):
        attempts.append(attempt.options.dtype)
        return spoiled(real(attempt, candidate, bounds))

    monkeypatch.setattr(full_batch._Attempt, "result", result)
    with pytest.raises(NumericalError, match="outliers in Y"):
        quick_fit(small_data()[0])
    assert attempts == [np.float32, np.float64]


@pytest.mark.parametrize("part", ["weights", "noise"])
def test_a_posterior_that_is_not_finite_is_never_recorded(monkeypatch, part):
    real = full_batch.fit

    def fit(*arguments):
        fitted = real(*arguments)
        value = getattr(fitted.posterior, part)
        return replace(fitted, posterior=replace(fitted.posterior, **{part: value * np.nan}))

    monkeypatch.setattr(full_batch, "fit", fit)
    model = SRFLVM(max_iter=2, tol=0.0, random_state=0, n_frequencies=25, init="pca")
    with pytest.raises(NumericalError, match="not finite"):
        model.fit(small_data()[0])
    assert not hasattr(model, "embedding_")
