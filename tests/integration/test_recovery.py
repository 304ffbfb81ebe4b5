"""Purpose of the model: manifolds are recovered, neighbours kept, intervals calibrated."""

import warnings

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import KFold, cross_val_score
from sklearn.neighbors import KNeighborsClassifier

from srflvm import SRFLVM
from srflvm.datasets import make_s_curve_gp


def affine_r2(Z, X):
    design = np.column_stack([Z, np.ones(len(Z))])
    fitted = design @ np.linalg.lstsq(design, X, rcond=None)[0]
    return 1.0 - np.sum((X - fitted) ** 2) / np.sum((X - X.mean(axis=0)) ** 2)


def nearest_neighbour_accuracy(Z, labels):
    folds = KFold(5, shuffle=True, random_state=0)
    return cross_val_score(KNeighborsClassifier(1), Z, labels, cv=folds).mean()


def fit(Y, **parameters):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return SRFLVM(random_state=0, **parameters).fit(Y)


def test_more_sweeps_than_automatic_reach_a_higher_bound():
    """A bound that is flat at large steps is not one that has converged."""
    Y = make_s_curve_gp(80, 20, random_state=0).Y
    automatic, asked_for = fit(Y, init="pca"), fit(Y, init="pca", max_iter=100)
    assert asked_for.n_iter_ >= 90
    assert asked_for.elbo_ > automatic.elbo_


@pytest.fixture(scope="module")
def s_curve():
    data = make_s_curve_gp(300, 60, random_state=3)
    return data, fit(data.Y[:240])


def test_the_s_curve_is_recovered(s_curve):
    data, model = s_curve
    assert affine_r2(model.embedding_, data.X[:240]) > 0.94
    assert np.sqrt(model.noise_variance_) == pytest.approx(0.1, rel=0.1)


def test_new_rows_are_placed_where_they_belong(s_curve):
    data, model = s_curve
    everything = np.concatenate([model.embedding_, model.transform(data.Y[240:])])
    design = np.column_stack([everything, np.ones(300)])
    coefficients = np.linalg.lstsq(design[:240], data.X[:240], rcond=None)[0]
    error = np.mean((design[240:] @ coefficients - data.X[240:]) ** 2)
    assert error < 0.08


def test_predictive_intervals_cover_what_they_say(s_curve):
    data, model = s_curve
    mean, std = model.inverse_transform(model.transform(data.Y[240:]), return_std=True)
    covered = np.mean(np.abs(data.Y[240:] - mean) < 1.6449 * std)
    assert 0.87 < covered < 0.93


def test_the_learned_kernel_resembles_the_true_one(s_curve):
    data, model = s_curve
    learned = model.kernel(model.embedding_) / model.amplitude_
    true = data.kernel()[:240, :240]
    assert np.corrcoef(learned.ravel(), true.ravel())[0, 1] > 0.8


def test_rotating_the_columns_or_adding_constants_changes_nothing():
    data = make_s_curve_gp(240, 60, random_state=3)
    rotation, _ = np.linalg.qr(np.random.RandomState(0).standard_normal((60, 60)))
    settings = {"init": "pca", "max_iter": 4, "dtype": "float64"}
    plain, rotated = fit(data.Y, **settings), fit(data.Y @ rotation + 5.0, **settings)
    assert rotated.elbo_ == pytest.approx(plain.elbo_, rel=1e-6)
    assert np.allclose(rotated.embedding_, plain.embedding_, atol=1e-4)
    decoded = (rotated.inverse_transform(rotated.embedding_) - 5.0) @ rotation.T
    assert np.allclose(decoded, plain.inverse_transform(plain.embedding_), atol=1e-3)


def test_digits_keep_their_neighbours_far_better_than_under_pca():
    digits = load_digits()
    Y, labels = digits.data[:600] / 16.0, digits.target[:600]
    model = fit(Y)
    accuracy = nearest_neighbour_accuracy(model.embedding_, labels)
    assert accuracy > 0.9
    assert accuracy > nearest_neighbour_accuracy(PCA(2).fit_transform(Y), labels) + 0.2
    assert model.start_ == "neighbors"
    assert model.start_elbos_["neighbors"] > model.start_elbos_["pca"]
