"""Models without waves: fits of wide arrays, what their methods answer, and what is refused."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from srflvm import SRFLVM, DataError, load
from srflvm.likelihoods import Gaussian
from srflvm.numerics import matrix_factors
from srflvm.numerics.matrix_factors import MatrixFactors


def wide(n_rows=120, n_columns=70, share=0.3, seed=0):
    """Draw rows that are linear in four latents: complete, and with missing entries."""
    random = np.random.RandomState(seed)
    clean = random.standard_normal((n_rows, 4)) @ random.standard_normal((4, n_columns))
    Y = 3.0 + 2.0 * (clean + 0.3 * random.standard_normal(clean.shape))
    return Y, np.where(random.uniform(size=Y.shape) < share, np.nan, Y)


def model(**parameters):
    return SRFLVM(**{"n_components": 20, "affine": True, "n_frequencies": 0, "random_state": 0, **parameters})


@pytest.fixture(scope="module")
def fitted():
    return model().fit(wide()[1])


def test_filled_entries_are_those_of_the_factors(fitted):
    Y, seen = wide()
    missing = np.isnan(seen)
    location = np.nanmean(seen, axis=0)
    scale = np.sqrt(np.nanmean((seen - location) ** 2))
    standard = (seen - location) / scale
    factors, bounds, *_ = MatrixFactors.fit(standard, 20, fitted.n_iter_, 0.0)
    latents = factors.place(matrix_factors._Matrix.of(standard, np.float32))
    expected = location + scale * (latents.means @ factors.loadings.T + factors.offset)
    filled, std = fitted.impute(seen, return_std=True)
    np.testing.assert_array_equal(filled[~missing], seen[~missing])
    # the fit is in single precision, and its noise decides how far that goes
    np.testing.assert_allclose(filled[missing], expected[missing], atol=1e-3 * scale)
    np.testing.assert_allclose(fitted.noise_variance_, scale**2 * factors.noise, rtol=1e-3)
    assert fitted.elbo_ == pytest.approx(bounds[-1] - np.sum(~missing) * np.log(scale), rel=1e-5)
    error = (filled - Y)[missing]
    assert np.mean(error**2) < 1.4 * (2.0 * 0.3) ** 2
    assert 0.85 < np.mean(np.abs(error) < 1.645 * std[missing]) < 0.95


def test_training_rows_and_new_ones_are_embedded_alike(fitted):
    _, seen = wide()
    mean, std = fitted.transform(seen, return_std=True)
    np.testing.assert_allclose(mean, fitted.embedding_, atol=1e-9)
    np.testing.assert_allclose(std, fitted.embedding_std_, rtol=1e-5)
    np.testing.assert_allclose(fitted.transform(seen[5:6]), mean[5:6], atol=1e-9)
    assert fitted.n_components_ == mean.shape[1] <= 20


def test_all_methods_answer(fitted, tmp_path):
    _, seen = wide()
    path = tmp_path / "model.srflvm"
    fitted.save(path)
    loaded = load(path)
    np.testing.assert_array_equal(loaded.impute(seen[:9]), fitted.impute(seen[:9]))
    low, high = fitted.interval(seen[:9])
    assert (low <= high).all()
    draws = fitted.impute(seen[:9], n_draws=400, random_state=0)
    filled, std = fitted.impute(seen[:9], return_std=True)
    missing = np.isnan(seen[:9])
    # 400 draws have a mean with this standard error, and the largest of some 200 is within five of them
    assert np.max(np.abs(draws.mean(axis=0) - filled)[missing] / std[missing]) < 5.0 / np.sqrt(400)
    np.testing.assert_allclose(draws.std(axis=0)[missing] / std[missing], 1.0, atol=0.25)
    assert np.isfinite(fitted.score_samples(seen[:3])).all()
    assert fitted.sample(3, random_state=0).shape == (3, 70)


def test_each_column_may_have_its_own_unit():
    Y, seen = wide()
    units = 10.0 ** np.linspace(-3.0, 3.0, Y.shape[1])
    with_units = model().fit(seen * units)
    missing = np.isnan(seen)
    error = (with_units.impute(seen * units) / units - Y)[missing]
    assert np.mean(error**2) < 1.5 * (2.0 * 0.3) ** 2
    assert len(np.unique(with_units.noise_variance_)) == Y.shape[1]


def test_callbacks_see_every_round_and_may_stop_it():
    seen, told = wide()[1], []

    def stop(progress):
        told.append(progress)
        return len(told) == 3

    stopped = model(callbacks=[stop], tol=0.0).fit(seen)
    assert stopped.n_iter_ == 3
    assert [progress.iteration for progress in told] == [1, 2, 3]
    np.testing.assert_allclose([progress.elbo for progress in told], stopped.elbo_history_)
    assert not stopped.converged_


def test_what_a_linear_model_cannot_do_is_refused():
    _, seen = wide()
    with pytest.raises(ValueError, match="n_frequencies=0"):
        SRFLVM(n_frequencies=0).fit(seen)
    with pytest.raises(ValueError, match="all rows at once"):
        model(batch_size=50).fit(seen)
    with pytest.raises(ValueError, match="all rows at once"):
        model().partial_fit(seen)
    frame = pd.DataFrame({"a": [1.0, 2.0, 3.0] * 5, "b": ["x", "y", "z"] * 5})
    with pytest.raises(DataError, match="Gaussian columns of one kind"):
        model().fit(frame)
    constant = np.ones((20, 70))
    constant[3, 4] = np.nan
    with pytest.raises(DataError, match="All rows of Y are equal"):
        model().fit(constant)


def test_checkpoints_and_warm_starts_are_refused(tmp_path):
    """They would have no effect."""
    for name, value in (("checkpoint_dir", str(tmp_path)), ("warm_start", True)):
        with pytest.raises(ValueError, match=name):
            model(**{name: value}).fit(wide()[1])


def test_an_interrupted_fit_keeps_what_it_has():
    def interrupt(progress):
        if progress.iteration == 2:
            raise KeyboardInterrupt

    found = model(callbacks=[interrupt], tol=0.0).fit(wide()[1])
    assert found.interrupted_
    assert found.n_iter_ == 2


def test_transformed_columns_are_fitted_and_filled_by_their_transforms():
    """A model of e^y through logarithms is that of y, and its intervals are transformed back."""
    _, seen = wide(80, 12)
    logs = (seen - np.nanmean(seen, axis=0)) / np.nanstd(seen, axis=0)
    plain = Gaussian(noise="column", scale="column", resolution=(0.0,) * 12)
    of_logs = model(likelihood=plain, n_components=5).fit(logs)
    found = model(likelihood=replace(plain, transform="log"), n_components=5).fit(np.exp(logs))
    np.testing.assert_allclose(np.abs(found.embedding_), np.abs(of_logs.embedding_), atol=1e-3)
    ends, expected = found.interval(np.exp(logs)), of_logs.interval(logs)
    missing = np.isnan(seen)
    inside = missing & (np.exp(expected[1]) < np.nanmax(np.exp(logs), axis=0))
    for end, other in zip(ends, expected, strict=True):
        np.testing.assert_allclose(np.log(end[inside]), other[inside], atol=2e-3)
    filled = found.impute(np.exp(logs))
    assert np.all((filled > ends[0])[missing])
    assert np.all((filled < ends[1])[missing])
