"""Diagnostics of chains, and RFLVM as an estimator on made data."""

import warnings

import numpy as np
import pytest
from scipy.signal import lfilter
from sklearn.exceptions import ConvergenceWarning

from srflvm.numerics.features import fourier_features
from srflvm_bench.baselines.rflvm import RFLVM, diagnostics

STANDARD_ERRORS = 4.0


@pytest.mark.parametrize("correlation", [-0.4, 0.0, 0.6, 0.9])
def test_effective_sample_size_of_an_autoregression(correlation):
    """It is n (1 - rho) / (1 + rho) on average, to standard errors over replicates."""
    n_chains, length = 4, 20_000
    expected = n_chains * length * (1.0 - correlation) / (1.0 + correlation)
    ratios = []
    for seed in range(12):
        shocks = np.random.default_rng(seed).standard_normal((n_chains, length))
        shocks[:, 0] /= np.sqrt(1.0 - correlation**2)
        chains = lfilter([1.0], [1.0, -correlation], shocks, axis=1)
        ratios.append(diagnostics.effective_sample_size(chains) / expected)
        assert abs(diagnostics.split_rhat(chains) - 1.0) < 0.005
    assert abs(np.mean(ratios) - 1.0) < STANDARD_ERRORS * np.std(ratios) / np.sqrt(len(ratios))


def test_rhat_sees_shifts_and_trends():
    draws = np.random.default_rng(0).standard_normal((2, 1000))
    # halves with means 0 and 2: B = 4 / 3 over the four halves, W = 1
    assert abs(diagnostics.split_rhat(draws + np.array([[0.0], [2.0]])) - np.sqrt(1.0 + 4.0 / 3.0)) < 0.1
    assert diagnostics.split_rhat(draws + np.linspace(0.0, 4.0, 1000)) > 1.2


def test_alignment_undoes_turns_and_mirrors():
    rng = np.random.default_rng(0)
    target = rng.standard_normal((7, 2))
    turns = np.linalg.qr(rng.standard_normal((5, 2, 2)))[0] * [1.0, -1.0]
    draws = target @ turns
    aligned = draws @ diagnostics.alignments(draws, target)
    np.testing.assert_allclose(aligned, np.broadcast_to(target, aligned.shape), atol=1e-12)


def curve(likelihood):
    """Smooth functions of a line, and data from them."""
    rng = np.random.default_rng(1)
    line = np.sort(rng.uniform(-1.7, 1.7, 40))
    slopes, phases = rng.uniform(0.3, 0.9, 12), rng.uniform(0.0, 2.0 * np.pi, 12)
    f = 1.5 * np.sin(np.outer(line, slopes) + phases)
    if likelihood == "gaussian":
        return line, f + 0.1 * rng.standard_normal(f.shape)
    return line, rng.negative_binomial(10.0, 1.0 / (1.0 + np.exp(f))).astype(float)


def fit_curve(likelihood, **options):
    line, Y = curve(likelihood)
    settings = {"n_frequencies": 5, "n_burn": 100, "n_samples": 200, "random_state": 0} | options
    model = RFLVM(n_components=1, likelihood=likelihood, **settings)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit_transform(Y)
    return line, model


@pytest.mark.parametrize("likelihood", ["gaussian", "negative_binomial"])
def test_recovers_a_curve(likelihood):
    line, model = fit_curve(likelihood)
    assert model.embedding_.shape == (40, 1)
    assert np.corrcoef(line, model.embedding_[:, 0])[0, 1] ** 2 > {"gaussian": 0.97}.get(likelihood, 0.9)
    assert model.rhat_.keys() == model.ess_.keys() >= {"log_joint", "n_clusters", "amplitude"}
    assert model.log_joint_.shape == (1, model.n_iter_)
    n_dropped = min(model.n_iter_ // 2, model.n_burn)
    assert model.draws_.shape == (model.n_iter_ - n_dropped, 40, 1)


def test_same_seed_same_embedding():
    short = {"n_burn": 0, "n_samples": 20}
    first, second, other = (fit_curve("gaussian", random_state=seed, **short)[1] for seed in (0, 0, 1))
    np.testing.assert_array_equal(first.embedding_, second.embedding_)
    assert not np.allclose(first.embedding_, other.embedding_)
    kernel = np.mean(
        [phi @ phi.T for phi in map(fourier_features, first.draws_, first.frequency_draws_)],
        axis=0,
    )
    np.testing.assert_allclose(first.kernel_matrix(), kernel)
    np.testing.assert_allclose(np.diag(kernel), 1.0)


def test_time_ends_chains():
    _, model = fit_curve("gaussian", max_seconds=1e-9)
    assert model.n_iter_ == 20
    assert not model.converged_
    with pytest.raises(ValueError, match="max_seconds == 0"):
        fit_curve("gaussian", max_seconds=0)


def test_holes_are_filled():
    _, Y = curve("gaussian")
    holes = np.random.default_rng(0).random(Y.shape) < 0.1
    model = RFLVM(1, 5, n_burn=100, n_samples=100, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        filled = model.reconstruct(np.where(holes, np.nan, 3.0 * Y + 5.0))
    assert filled.shape == Y.shape
    assert np.mean((filled - 3.0 * Y - 5.0)[holes] ** 2) < 0.1 * np.var(3.0 * Y)
    with pytest.raises(ValueError, match="gaussian"):
        RFLVM(likelihood="poisson").reconstruct(Y)


@pytest.mark.parametrize(
    ("likelihood", "entry", "message"),
    [
        ("bernoulli", 0.5, "Binarise"),
        ("poisson", -1.0, "whole numbers"),
        ("multinomial", np.nan, "no missing"),
        ("student", 0.0, "likelihood"),
    ],
)
def test_refuses_what_cannot_be(likelihood, entry, message):
    Y = np.ones((4, 3))
    Y[0, 0] = entry
    with pytest.raises(ValueError, match=message):
        RFLVM(likelihood=likelihood).fit_transform(Y)
