"""Awkward shapes and scales either work or are refused with a reason."""

import numpy as np
import pytest
from helpers.fitted_models import quick_fit, small_data, small_model


def assert_sound(model, Y):
    for values in (model.embedding_, model.embedding_std_, model.elbo_history_, model.frequencies_):
        assert np.isfinite(values).all()
    mean, std = model.inverse_transform(model.embedding_, return_std=True)
    assert np.isfinite(mean).all()
    assert np.isfinite(std).all()
    assert (std > 0).all()
    assert np.isfinite(model.score_samples(Y)).all()
    assert np.isfinite(model.sample(3, random_state=0)).all()
    assert np.array_equal(model.transform(Y), model.embedding_)


def base():
    return small_data()[0].copy()


def constant_columns():
    Y = base()
    Y[:, [1, 4]] = 3.0
    return Y


def rank_one():
    return np.outer(np.linspace(-1, 1, 60), np.arange(1.0, 9.0))


AWKWARD = {
    "constant columns": constant_columns(),
    "duplicate rows": np.repeat(base()[:20], 3, axis=0),
    "fewer rows than features": base()[:15],
    "one column": base()[:, :1],
    "two rows": base()[:2],
    "three rows": base()[:3],
    "rank one": rank_one(),
    "tiny scale": 1e-8 * base(),
    "huge scale": 1e8 * base(),
    "huge offset": base() + 1e6,
    "integers": np.round(10 * base()).astype(int),
    "single precision": base().astype(np.float32),
    "one outlier": np.concatenate([base()[:-1], 1e4 * np.ones((1, 8))]),
}


@pytest.mark.parametrize("name", AWKWARD)
def test_awkward_data_are_fitted_soundly(name):
    Y = AWKWARD[name]
    model = quick_fit(Y, init="auto")
    assert_sound(model, Y)


def test_more_components_than_rows_or_columns():
    Y = base()[:4]
    model = quick_fit(Y, n_components=6)
    assert model.embedding_.shape == (4, 6)
    assert_sound(model, Y)
    assert quick_fit(base()[:, :2], n_components=5, init="auto").embedding_.shape == (60, 5)


def test_constant_columns_are_decoded_as_constants():
    model = quick_fit(constant_columns())
    assert np.allclose(model.inverse_transform(model.embedding_)[:, [1, 4]], 3.0, atol=1e-8)


def test_duplicate_rows_get_one_embedding():
    model = quick_fit(AWKWARD["duplicate rows"])
    Z = model.embedding_.reshape(20, 3, 2)
    assert np.allclose(Z, Z[:, :1], atol=1e-9)


@pytest.mark.parametrize(
    "parameters",
    [
        {"covariance_type": "diag", "latent_covariance_type": "diag"},
        {"frequency_sampling": "moment"},
        {"n_mixture": 1},
        {"n_samples": 3},
        {"compression": 3},
        {"compression": "all"},
        {"dtype": "float64"},
        {"n_frequencies": 1},
    ],
)
def test_options_change_the_fit_and_keep_it_sound(parameters):
    model = quick_fit(base(), **parameters)
    assert_sound(model, base())


def test_single_and_double_precision_agree():
    single, double = small_model(), quick_fit(base(), dtype="float64")
    assert single.elbo_ == pytest.approx(double.elbo_, abs=0.02 * base().size)
    assert single.elbo_ != double.elbo_


def test_ctrl_c_on_the_landmarks_still_places_all_rows():
    def interrupt(progress):
        if progress.stage == "landmarks":
            raise KeyboardInterrupt

    model = quick_fit(base(), init="neighbors", n_landmarks=40, callbacks=[interrupt], max_iter=5)
    assert model.interrupted_
    assert model.n_iter_ == 1
    assert_sound(model, base())


def test_more_rows_than_landmarks_start_from_these():
    stages = []
    model = quick_fit(
        base(),
        init="neighbors",
        n_landmarks=40,
        callbacks=[lambda p: stages.append((p.stage, p.n_entries))],
        max_iter=5,
    )
    assert model.start_.startswith("landmarks, ")
    assert model.embedding_.shape == (60, 2)
    assert ("landmarks", 320) in stages
    assert stages[-1] == ("fit", 480)
    assert_sound(model, base())
