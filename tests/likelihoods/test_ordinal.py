"""Levels: their codes, their thresholds moved together, and fits of nothing but levels."""

import warnings
from functools import partial
from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit

from srflvm import SRFLVM, load
from srflvm.data.encoding import GroupRows
from srflvm.data.sources import ArraySource
from srflvm.exceptions import DataError
from srflvm.inference.facts import Survey, TrainingData
from srflvm.likelihoods import Gaussian, Likelihood, Ordinal
from srflvm.likelihoods.columns import choose
from srflvm.model.sites import Function, at_once, better_parameters

# ---- codes --------------------------------------------------------------------------------------------

# a column from 1 on, one with a gap, one of a single level, one of two levels below zero
ODD_CODES = np.array([[1, 2, 7, -1], [2, 9, 7, -2], [3, 2, 7, -1], [4, 5, 7, np.nan], [1, np.nan, 7, -2]])
ODD_LEVELS = ((1, 2, 3, 4), (2, 5, 9), (7,), (-2, -1))


def odd_parameters():
    names = ("threshold", "log_gap_1", "log_gap_2")
    values = np.array([[-1.0, 0.2, 0.5, 0.1], [0.3, -0.4, 0.9, 0.0], [0.1, 0.2, 0.3, 0.4]])
    return dict(zip(names, values, strict=True))


def test_levels_are_those_that_are_there():
    assert Ordinal().resolve(ODD_CODES) == Ordinal(levels=ODD_LEVELS)
    assert Ordinal().resolve(np.array([[0.0, 2.0], [1.0, 1.0], [2.0, 0.0]])) == Ordinal(3)
    assert Ordinal().resolve(np.array([[0.0], [2.0]])) == Ordinal(levels=((0, 2),))


def test_every_column_has_probabilities_of_its_own_levels_that_sum_to_one():
    likelihood, f = Ordinal(levels=ODD_LEVELS), np.array([[0.4, -0.3, 2.0, 0.7]])
    for column, levels in enumerate(ODD_LEVELS):
        Y = np.full((len(levels), 4), np.nan)
        Y[:, column] = levels
        ranks, constants = likelihood.channels(Y)
        y = np.nan_to_num(ranks)
        parameters = {**constants, **odd_parameters()}
        log_p = np.asarray(likelihood.log_prob(y, np.broadcast_to(f, y.shape), parameters))[:, column]
        np.testing.assert_allclose(np.sum(np.exp(log_p)), 1.0, rtol=1e-6)
        pointwise = likelihood.pointwise(y, np.broadcast_to(f, y.shape), parameters).value[:, column]
        np.testing.assert_allclose(pointwise, log_p, rtol=1e-5, atol=1e-6)
        # and the moments are those of the codes
        moments = likelihood.moments(jnp.asarray(f), parameters)
        mean = np.exp(log_p) @ np.array(levels, float)
        variance = np.exp(log_p) @ np.array(levels, float) ** 2 - mean**2
        np.testing.assert_allclose(moments.mean[0, column], mean, rtol=1e-5)
        np.testing.assert_allclose(moments.variance[0, column], variance, rtol=1e-4, atol=1e-5)


def test_draws_are_codes_with_the_probabilities_of_their_levels():
    likelihood, rng = Ordinal(levels=ODD_LEVELS), np.random.RandomState(0)
    f = np.tile([0.4, -0.3, 2.0, 0.7], (20_000, 1))
    drawn = likelihood.sample(f, odd_parameters(), rng)
    assert [tuple(np.unique(column).astype(int)) for column in drawn.T] == list(ODD_LEVELS)
    below = np.mean(drawn[:, 1] <= 2)
    np.testing.assert_allclose(below, expit(0.2 + 0.3), atol=0.015)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Ordinal(3, levels=((0, 1),)), "not both"),
        (lambda: Ordinal(levels=((1, 0),)), "increasing order"),
        (lambda: Ordinal(levels=((),)), "increasing order"),
        (lambda: Ordinal(levels=((0, 1),)).channels(np.zeros((2, 3))), "do not fit 3 columns"),
        (
            lambda: Ordinal().check(np.arange(101.0)[:, None], ["column 0"]),
            "101 different levels in column 0",
        ),
        (
            lambda: Ordinal().check(np.array([[0.5]]), ["column 0"]),
            "0.5 at row 0, column 0: a level is a whole",
        ),
        (lambda: Ordinal(4).check(np.array([[-1.0]]), ["column 0"]), "the levels are 0 to 3"),
        (
            lambda: Ordinal(levels=ODD_LEVELS).check(
                np.array([[1, 4, 7, -1.0]]), [f"column {j}" for j in range(4)]
            ),
            "4 at row 0, column 1: the levels of this column are 2, 5, 9",
        ),
    ],
)
def test_impossible_levels_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_all_rows_of_a_file_are_searched_for_levels():
    """Check that a gap between levels of the first rows may be filled by the last."""
    Y = np.tile([[1.0, 0.0], [4.0, 1.0]], (20, 1))
    Y[39, 0] = 2.0
    choice = choose("ordinal", 2, None)
    survey = Survey.of(TrainingData(ArraySource(Y), choice))
    assert survey.resolved(choice)[0][0] == Ordinal(levels=((1, 2, 4), (0, 1)))


# ---- thresholds ---------------------------------------------------------------------------------------


def levels_around(f, thresholds, rng):
    return np.sum(rng.logistic(size=f.shape)[None] + f > np.asarray(thresholds)[:, None, None], axis=0) * 1.0


def total_of(y, mean, variance, observed, parameters):
    """Return the sum of E log p of one column, by brute force."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    f = mean[None] + np.sqrt(variance)[None] * nodes[:, None]
    thresholds = np.cumsum([parameters[0], *np.exp(parameters[1:])])
    ends = np.array([-np.inf, *thresholds, np.inf])
    level = y.astype(int)
    p = expit(ends[level + 1] - f) - expit(ends[level] - f)
    return float(np.sum((weights / weights.sum()) @ np.log(p) * observed))


@pytest.mark.parametrize("start", [(-1.0, 0.0, 0.0), (3.0, 1.5, -2.0), (-4.0, 2.0, 2.0)])
def test_thresholds_climb_together_to_the_maximum(start):
    """Check that the total rises: steps that are right for each threshold alone overshoot together."""
    rng = np.random.RandomState(0)
    mean, variance = rng.normal(size=(2, 80)), rng.gamma(2.0, 0.1, size=(2, 80))
    # the lowest level of the second column is rare
    y = np.stack(
        [levels_around(m[None], t, rng)[0] for m, t in zip(mean, [(-1, 0, 1), (-4, -1, 1)], strict=True)]
    )
    observed = rng.uniform(size=(2, 80)) < 0.9
    function = Function(*map(jnp.asarray, (mean, variance, np.zeros((2, 1)), mean)))
    rows = GroupRows(jnp.asarray(y), jnp.asarray(observed), {}, jnp.zeros((1, 80)))
    learned = {name: jnp.full(2, value) for name, value in zip(odd_parameters(), start, strict=True)}

    @jax.jit
    def step(learned):
        return better_parameters(Ordinal(4), len(rows.y), learned, at_once(rows, function))[0]

    path = [learned]
    for _ in range(40):
        path.append(step(path[-1]))
    for column in range(2):
        heights = [
            total_of(
                y[column],
                mean[column],
                variance[column],
                observed[column],
                [float(values[name][column]) for name in odd_parameters()],
            )
            for values in path
        ]
        assert np.all(np.diff(heights) > -1e-6)
        best = minimize(
            lambda values, j=column: -total_of(y[j], mean[j], variance[j], observed[j], values),
            [-1.0, 0.0, 0.0],
            method="Nelder-Mead",
            options={"xatol": 1e-6, "fatol": 1e-9, "maxiter": 4000},
        )
        np.testing.assert_allclose(heights[-1], -best.fun, atol=1e-4)


@pytest.mark.parametrize("levels", [None, ((0, 1, 2, 3), (0, 1, 2))])
def test_derivatives_in_the_thresholds_are_those_of_automatic_differentiation(levels):
    rng = np.random.RandomState(1)
    likelihood = Ordinal(4) if levels is None else Ordinal(levels=levels)
    y = np.stack([rng.randint(0, 4, 60), rng.randint(0, 3, 60)]).astype(float)
    mean, variance, observed = (
        rng.normal(size=y.shape),
        rng.gamma(2.0, 0.2, y.shape),
        rng.rand(*y.shape) < 0.8,
    )
    constants = {name: value.T for name, value in likelihood.channels(y.T)[1].items()}
    learned = {name: jnp.asarray(values[:2, None]) for name, values in odd_parameters().items()}
    arguments = ("log_gap_2", "threshold", "log_gap_1"), y, mean, variance, observed, {**constants, **learned}
    found = jax.jit(likelihood.parameter_derivatives, static_argnums=0)(*arguments)
    automatic = jax.jit(partial(Likelihood.parameter_derivatives, likelihood), static_argnums=0)(*arguments)
    for one, other in zip(found, automatic, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9)


# ---- fits ---------------------------------------------------------------------------------------------


def table_of_levels(kind, first, seed):
    """Return six columns of four levels that follow from two latents of some hundred rows, noisy or not."""
    rng = np.random.RandomState(seed)
    f = rng.standard_normal((120, 2)) @ rng.standard_normal((2, 6))
    f += 0.5 * rng.standard_normal(f.shape) if kind == "noisy" else 0.0
    cuts = np.quantile(f, [0.2, 0.5, 0.8], axis=0)
    return first + np.sum(f > cuts[:, None, :], axis=0) * 1.0


@pytest.mark.parametrize(("kind", "first"), [*product(["separable", "noisy"], [0, 1])])
def test_the_bound_of_levels_rises_and_draws_have_their_frequencies(kind, first):
    Y = table_of_levels(kind, first, seed=0)
    model = SRFLVM(2, likelihood="ordinal", random_state=0, n_frequencies=25).fit(Y)
    history = model.elbo_history_ / Y.size
    assert history[-1] > history[0]
    assert np.max(history) - history[-1] < 0.05
    drawn = model.sample(2000, random_state=0)
    for level in range(first, first + 4):
        np.testing.assert_allclose(np.mean(drawn == level, axis=0), np.mean(level == Y, axis=0), atol=0.05)


def test_a_rare_level_does_not_spoil_the_other_columns():
    rng = np.random.RandomState(0)
    x, hidden = rng.randn(300, 1), rng.rand(300) < 0.2
    numbers = x @ np.array([[1.0, -1.0, 0.8, 0.9]]) + 0.35 * rng.randn(300, 4)
    levels = np.digitize(x[:, 0], [-2.3, -0.2, 0.9]).astype(float)
    Y = np.c_[numbers, np.where(hidden, np.nan, levels)]
    likelihood = {(0, 1, 2, 3): Gaussian(noise="column"), 4: Ordinal(n_levels=4)}
    model = SRFLVM(2, likelihood=likelihood, random_state=0, max_iter=30).fit(Y)
    error = model.impute(Y)[hidden, 4] - levels[hidden]
    assert np.sqrt(np.mean(error**2)) / np.std(levels) < 0.45


def test_codes_survive_a_file(tmp_path):
    rng = np.random.RandomState(0)
    Y = np.array([1.0, 2.0, 5.0])[np.digitize(rng.randn(40, 1) + 0.3 * rng.randn(40, 3), [-0.5, 0.5])]
    Y[:, 2] = np.where(Y[:, 2] == 5.0, 2.0, Y[:, 2])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = SRFLVM(1, likelihood="ordinal", n_frequencies=5, max_iter=2, random_state=0).fit(Y)
    assert np.isnan(model.likelihood_parameters_["log_gap_1"][2])
    model.save(tmp_path / "m.srflvm")
    loaded = load(tmp_path / "m.srflvm")
    assert loaded._posterior.layout.groups[0].likelihood == Ordinal(levels=((1, 2, 5), (1, 2, 5), (1, 2)))
    np.testing.assert_array_equal(loaded.transform(Y), model.embedding_)
    np.testing.assert_array_equal(loaded.sample(9, random_state=0), model.sample(9, random_state=0))
    with pytest.raises(DataError, match="3 at row 0, column 0: the levels of this column are 1, 2, 5"):
        loaded.transform(np.full((1, 3), 3.0))
