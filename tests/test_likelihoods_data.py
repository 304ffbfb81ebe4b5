"""Likelihoods and data: checks, units, encodings and starting values."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats as st
from scipy.special import expit

from srflvm.exceptions import DataError
from srflvm.likelihoods import (
    LIKELIHOODS,
    Bernoulli,
    Binomial,
    Categorical,
    Custom,
    Gaussian,
    Likelihood,
    Moments,
    Multinomial,
    NegativeBinomial,
    Ordinal,
    Poisson,
    StudentT,
)
from srflvm.likelihoods.negative_binomial import bounded_log_dispersion

COLUMNS = ["column 0 ('a')", "column 1 ('b')"]


def gamma_log_prob(y, f, parameters):
    """A gamma distribution with mean e^f and shape 3."""
    return 3.0 * jnp.log(3.0) - jnp.log(2.0) + 2.0 * jnp.log(y) - 3.0 * f - 3.0 * y * jnp.exp(-f)


REFUSED = [
    (Bernoulli(), 2.0, "0 or 1"),
    (Binomial(3), 4.0, "n_trials"),
    (Binomial(3), -1.0, "not negative"),
    (NegativeBinomial(), -1.0, "not negative"),
    (NegativeBinomial(), np.inf, "finite"),
    (NegativeBinomial(), 0.5, "undo normalisation"),
    (Poisson(), 0.5, "whole number"),
    (Ordinal(), 1.5, "whole number"),
    (Ordinal(3), 3.0, "larger n_levels"),
    (Categorical((2, 2)), 2.0, "larger n_categories"),
    (Categorical(), -1.0, "not negative"),
    (Multinomial(), -2.0, "not negative"),
    (Custom(gamma_log_prob, (), "positive"), 0.0, "support"),
    (Custom(gamma_log_prob, (), "unit"), 1.0, "support"),
    (Custom(gamma_log_prob, (), "real"), -np.inf, "support"),
    (Custom(gamma_log_prob, (), "count"), 0.5, "whole number"),
    (Custom(gamma_log_prob, (), "binary"), 2.0, "support"),
]


@pytest.mark.parametrize(("likelihood", "bad", "remedy"), REFUSED)
def test_impossible_entries_are_refused(likelihood, bad, remedy):
    good = 0.5 if isinstance(likelihood, Custom) and not likelihood.discrete else 1.0
    Y = np.array([[good, good], [np.nan, bad], [good, np.nan], [bad, good]])
    with pytest.raises(DataError, match=remedy) as error:
        likelihood.check(Y, COLUMNS)
    assert f"Y has {bad:g} at row 1, column 1 ('b')" in str(error.value)
    assert "(2 such entries)" in str(error.value)


def by_name(name):
    return Binomial(3) if name == "binomial" else LIKELIHOODS[name]()


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_possible_entries_are_not_refused(name):
    Y = np.array([[1.0, 0.0], [np.nan, 1.0], [np.nan, np.nan], [0.0, 1.0]])
    by_name(name).check(Y, COLUMNS)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Gaussian("rows"), "'shared' or 'column'"),
        (lambda: Binomial(0), "at least one trial"),
        (lambda: Binomial(()), "at least one trial"),
        (lambda: Binomial(2.5), "whole number"),
        (lambda: Binomial("many"), "whole number"),
        (lambda: Categorical((2.5, 3)), "whole number"),
        (lambda: Ordinal(2.5), "whole number"),
        (lambda: StudentT(0.0), "positive"),
        (lambda: Ordinal(1), "two levels"),
        (lambda: Categorical((2, 1)), "at least two"),
        (lambda: Custom(gamma_log_prob, support="circle"), "use one of real"),
        (lambda: Binomial((1, 2, 3)).channels(np.zeros((1, 2))), "does not fit 2 columns"),
        (lambda: Categorical((2, 2, 3)).channels(np.zeros((1, 2))), "does not fit 2 columns"),
        (lambda: Categorical().channels(np.zeros((1, 2))), "resolve"),
        (lambda: Ordinal().start(np.zeros((1, 2)), {}), "resolve"),
        (lambda: Custom(gamma_log_prob).grid(), "resolve"),
        (lambda: Multinomial().check(np.zeros((3, 1)), COLUMNS), "two columns"),
    ],
)
def test_impossible_settings_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_starts_are_finite_for_constant_and_empty_columns(name):
    Y = np.array([[0.0, np.nan, 1.0], [0.0, np.nan, 1.0], [0.0, np.nan, 1.0]])
    likelihood = by_name(name).resolve(Y)
    assert hash(likelihood) == hash(by_name(name).resolve(Y))
    units = likelihood.units(Y)
    y, constants = likelihood.channels((Y - units.location) / units.scale)
    assert np.all(units.scale > 0.0)
    assert all(np.isfinite(part).all() for part in jax.tree.leaves((units, constants)))
    start = likelihood.start(y, constants)
    assert start.bias.shape == (y.shape[1],)
    assert all(np.isfinite(part).all() for part in jax.tree.leaves(start))
    assert likelihood.working(y).shape == y.shape


def with_holes(Y, rng):
    return np.where(rng.uniform(size=Y.shape) < 0.1, np.nan, Y)


def test_starts_recover_the_parameters():
    """Constant f: what 5000 entries tell, about 0.03 in log means and log-odds, 0.1 in log dispersions."""
    rng = np.random.RandomState(1)
    f = np.tile([-0.5, 1.5], (5000, 1))
    cases = [
        (Bernoulli(), {}),
        (Binomial((3, 8)), {"n_trials": np.array([3.0, 8.0])}),
        (Poisson(), {}),
        (NegativeBinomial(), {"log_dispersion": np.log([0.7, 4.0])}),
        (
            Ordinal(4),
            {"threshold": np.array([-1.0, 1.0]), "log_gap_1": np.zeros(2), "log_gap_2": np.zeros(2)},
        ),
    ]
    for likelihood, parameters in cases:
        Y = with_holes(likelihood.sample(f, parameters, rng), rng)
        y, constants = likelihood.channels(Y)
        bias, learned = likelihood.start(y, constants)
        if isinstance(likelihood, Ordinal):
            np.testing.assert_allclose(learned["threshold"], parameters["threshold"] - f[0], atol=0.15)
            np.testing.assert_allclose(learned["log_gap_1"], 0.0, atol=0.15)
        else:
            np.testing.assert_allclose(bias, f[0], atol=0.15)
        if "log_dispersion" in learned:
            np.testing.assert_allclose(learned["log_dispersion"], parameters["log_dispersion"], atol=0.3)


def test_units():
    rng = np.random.RandomState(2)
    Y = with_holes(rng.standard_normal((400, 3)) * [1.0, 5.0, 0.0] + [3.0, -2.0, 7.0], rng)
    location, scale = Gaussian().units(Y)
    np.testing.assert_allclose(location, np.nanmean(Y, axis=0))
    np.testing.assert_allclose(scale, np.sqrt(np.nanmean((Y - location) ** 2)))
    assert Gaussian().start(Y - location, {}).parameters["log_noise"].shape == (1,)
    assert Gaussian("column").start(Y - location, {}).parameters["log_noise"].shape == (3,)
    Y[0, 0] = 1e6
    robust = StudentT().units(Y)
    np.testing.assert_allclose(robust.location, np.nanmedian(Y, axis=0))
    centred = Y - robust.location
    np.testing.assert_allclose(robust.scale, 1.4826 * np.nanmedian(np.abs(centred)))
    np.testing.assert_allclose(StudentT().units(np.array([[1.0], [1.0], [1.0], [5.0]])).scale, 2.0)


def test_categorical_there_and_back():
    rng = np.random.RandomState(3)
    Y = np.stack([rng.randint(n, size=60) for n in (2, 5, 3)], axis=1).astype(float)
    likelihood = Categorical().resolve(Y)
    assert likelihood.n_categories == (2, 5, 3)
    y, constants = likelihood.channels(Y)
    assert y.shape == (60, 1 + 4 + 2)
    np.testing.assert_array_equal(likelihood.columns_from_draws(np.nan_to_num(y), constants), Y)
    one_hot = np.concatenate([np.arange(n - 1) == Y[:, [j]] for j, n in enumerate((2, 5, 3))], axis=1)
    np.testing.assert_array_equal(likelihood.working(y), one_hot)
    Y[0, 1] = np.nan
    assert np.isnan(likelihood.working(likelihood.channels(Y)[0])).sum() == 4


def test_categorical_moments_and_log_probability():
    """Of three categories with log-odds f: sticks sigmoid(f_0), sigmoid(f_1), and the rest."""
    likelihood, f = Categorical((3,)), np.array([[0.3, -0.4]])
    p = np.array([expit(0.3), expit(-0.3) * expit(-0.4), expit(-0.3) * expit(0.4)])
    for code in range(3):
        y, _ = likelihood.channels(np.array([[float(code)]]))
        seen = ~np.isnan(y)
        np.testing.assert_allclose(likelihood.log_prob(y, f, {})[seen].sum(), np.log(p[code]), rtol=1e-12)
    moments = likelihood.moments(jnp.asarray(f), {})
    moments = Moments(*(np.asarray(part)[None] for part in moments))
    np.testing.assert_allclose(likelihood.probabilities(moments.mean)[0], p[None])
    found = likelihood.columns_from_moments(moments.mean, np.zeros_like(moments.mean), {})
    assert found.mean[0, 0] == p.argmax()
    np.testing.assert_allclose(found.noise[0, 0], p.max() * (1.0 - p.max()))
    assert found.latent[0, 0] == found.weight[0, 0] == 0.0
    draws = likelihood.sample(np.tile(f, (40_000, 1)), {}, np.random.RandomState(4))
    frequencies = np.bincount(likelihood.columns_from_draws(draws, {})[:, 0].astype(int)) / 40_000
    np.testing.assert_array_less(np.abs(frequencies - p), 5.0 * np.sqrt(p * (1.0 - p) / 40_000))


def test_multinomial_there_and_back():
    Y = np.array([[2.0, 1.0, 3.0], [4.0, 0.0, 0.0], [0.0, 0.0, 0.0], [np.nan, 2.0, 1.0], [1.0, 1.0, np.nan]])
    y, constants = Multinomial().channels(Y)
    np.testing.assert_array_equal(
        y, [[2.0, 1.0], [4.0, np.nan], [np.nan, np.nan], [np.nan, 2.0], [np.nan, np.nan]]
    )
    np.testing.assert_array_equal(constants["n_trials"], [[6, 4], [4, 0], [0, 0], [0, 3], [0, 0]])
    np.testing.assert_array_equal(constants["total"][:, 0], [6, 4, 0, 1, 1])
    back = Multinomial().columns_from_draws(np.nan_to_num(y), constants)
    np.testing.assert_array_equal(back[:3], Y[:3])
    np.testing.assert_allclose(Multinomial().working(y)[1], [np.log(5.0), 0.0])


def test_multinomial_probability_moments_and_draws():
    f, n = np.array([0.3, -0.4]), 9
    p = np.array([expit(0.3), expit(-0.3) * expit(-0.4), expit(-0.3) * expit(0.4)])
    Y = np.array([[3.0, 2.0, 4.0]])
    y, constants = Multinomial().channels(Y)
    found = np.sum(Multinomial().log_prob(y, f[None], constants))
    np.testing.assert_allclose(found, st.multinomial.logpmf(Y[0], n, p), rtol=1e-12)
    rng = np.random.RandomState(5)
    many = {"total": np.full((40_000, 2), float(n))}
    # f uncertain: the law of total variance on channels, then columns, against draws of f and y
    uncertain = f + 0.8 * rng.standard_normal((40_000, 2))
    draws = Multinomial().columns_from_draws(Multinomial().sample(uncertain, many, rng), many)
    assert np.all(draws.sum(axis=1) == n)
    shares = expit(f + 0.8 * rng.standard_normal((400_000, 2)))
    channels = shares.mean(axis=0)[None, None], shares.var(axis=0)[None, None]
    mean, latent, weight, noise = Multinomial().columns_from_moments(*channels, constants)
    assert not latent.any()
    variance = weight + noise
    np.testing.assert_allclose(draws.mean(axis=0), mean[0], atol=5.0 * np.sqrt(variance.max() / 40_000))
    np.testing.assert_allclose(draws.var(axis=0), variance[0], rtol=5.0 * np.sqrt(3.0 / 40_000))


def test_a_custom_likelihood_from_data():
    rng = np.random.RandomState(6)
    Y = with_holes(rng.gamma(3.0, np.exp([0.5, 2.0]) / 3.0, size=(2000, 2)), rng)
    likelihood = Custom(gamma_log_prob, (), "positive").resolve(Y)
    assert likelihood == Custom(gamma_log_prob, (), "positive").resolve(Y)
    assert len({likelihood, likelihood.resolve(Y)}) == 1
    assert not likelihood.discrete
    # the list of levels has steps of 1/4
    np.testing.assert_allclose(likelihood.start(Y, {}).bias, [0.5, 2.0], atol=0.126)
    mean, variance = likelihood.moments(jnp.array([0.5, 2.0]), {})
    np.testing.assert_allclose(mean, np.exp([0.5, 2.0]), rtol=1e-3)
    np.testing.assert_allclose(variance, np.exp([1.0, 4.0]) / 3.0, rtol=1e-2)


def test_a_subclass_needs_only_log_prob():
    class Laplace(Likelihood):
        def log_prob(self, y, f, parameters):
            return -jnp.abs(y - f)

    y, f = jnp.zeros((1, 1)), jnp.full((1, 1), 2.0)
    assert Laplace().expectations(y, f, jnp.full((1, 1), 1e-4), {}).slope.item() == pytest.approx(-1.0)


def test_custom_draws_stay_inside_the_support():
    def log_prob(y, f, parameters):
        return -jnp.log(jnp.pi) - 0.5 * (jnp.log(y) + jnp.log1p(-y))

    likelihood = Custom(log_prob, (), "unit").resolve(np.full((3, 1), 0.5))
    draws = likelihood.sample(np.zeros((20_000, 1)), {}, np.random.RandomState(7))[:, 0]
    assert np.all((draws > 0.0) & (draws < 1.0))
    # the arcsine distribution is not smooth at its ends: the first of 400 cells holds 3% of the draws
    assert st.kstest(draws, st.arcsine.cdf).statistic < 0.02


def test_dispersion_is_bounded_smoothly():
    inside = np.linspace(np.log(0.1), np.log(1e3), 7)
    np.testing.assert_allclose(bounded_log_dispersion(inside), inside, atol=1e-7)
    ends = bounded_log_dispersion(np.array([-1e3, 1e3]))
    np.testing.assert_allclose(np.exp(ends), [1e-3, 1e5], rtol=1e-12)
    assert np.all(jax.vmap(jax.grad(bounded_log_dispersion))(np.array([-9.0, 0.0, 13.0])) > 1e-4)
