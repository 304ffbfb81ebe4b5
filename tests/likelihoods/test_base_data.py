"""Data of every likelihood: checks, settings and starting values."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from srflvm.exceptions import DataError
from srflvm.likelihoods import (
    LIKELIHOODS,
    Bernoulli,
    Binomial,
    Categorical,
    Custom,
    Gaussian,
    Likelihood,
    Multinomial,
    NegativeBinomial,
    Ordinal,
    Poisson,
    StudentT,
)

COLUMNS = ["column 0 ('a')", "column 1 ('b')"]


def gamma_log_prob(y, f, parameters):
    """Return the log density of a gamma distribution with mean e^f and shape 3."""
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
        (lambda: Gaussian("rows"), "noise='rows' is not known. Choose one of 'shared', 'column'"),
        (lambda: Gaussian(scale="rows"), "scale='rows' is not known. Choose one of 'shared', 'column'"),
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


def with_missing(Y, rng):
    return np.where(rng.uniform(size=Y.shape) < 0.1, np.nan, Y)


def test_starts_recover_the_parameters():
    """Check 5000 entries at constant f: errors are 0.03 in log means and log-odds, 0.1 in log dispersions."""
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
        Y = with_missing(likelihood.sample(f, parameters, rng), rng)
        y, constants = likelihood.channels(Y)
        bias, learned = likelihood.start(y, constants)
        if isinstance(likelihood, Ordinal):
            np.testing.assert_allclose(learned["threshold"], parameters["threshold"] - f[0], atol=0.15)
            np.testing.assert_allclose(learned["log_gap_1"], 0.0, atol=0.15)
        else:
            np.testing.assert_allclose(bias, f[0], atol=0.15)
        if "log_dispersion" in learned:
            np.testing.assert_allclose(learned["log_dispersion"], parameters["log_dispersion"], atol=0.3)


def test_a_subclass_needs_only_log_prob():
    class Laplace(Likelihood):
        def log_prob(self, y, f, parameters):
            return -jnp.abs(y - f)

    y, f = jnp.zeros((1, 1)), jnp.full((1, 1), 2.0)
    assert Laplace().expectations(y, f, jnp.full((1, 1), 1e-4), {}).slope.item() == pytest.approx(-1.0)
