"""Gaussian columns: their units, the noise that a fit starts from, and the steps they were recorded in."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import norm

from srflvm.data.encoding import Layout
from srflvm.data.sources import ArraySource
from srflvm.exceptions import DataError
from srflvm.inference.facts import Survey, TrainingData
from srflvm.likelihoods import Gaussian
from srflvm.likelihoods.base import Units
from srflvm.likelihoods.columns import OWN_UNITS, choose
from srflvm.numerics.jit import in_float64


def test_units_are_means_and_one_common_scale():
    Y = np.random.RandomState(2).standard_normal((400, 3)) * [1.0, 5.0, 0.0] + [3.0, -2.0, 7.0]
    Y[::11, 1] = np.nan
    location, scale = Gaussian().units(Y)
    np.testing.assert_allclose(location, np.nanmean(Y, axis=0))
    np.testing.assert_allclose(scale, np.sqrt(np.nanmean((Y - location) ** 2)))
    np.testing.assert_array_equal(Gaussian().units(np.full((3, 2), 4.0)).scale, 1.0)


def test_starts_have_half_the_variance_as_noise_of_all_columns_or_of_each():
    Y = np.array([[-1.0, 3.0], [1.0, -3.0], [np.nan, 0.0]])
    shared = Gaussian().start(Y, {}).parameters["log_noise"]
    np.testing.assert_allclose(shared, np.log([0.5 * (1.0 + 1.0 + 9.0 + 9.0) / 5.0]))
    by_column = Gaussian("column").start(Y, {}).parameters["log_noise"]
    np.testing.assert_allclose(by_column, np.log([0.5 * 1.0, 0.5 * 6.0]))


# ---- columns in units of their own, and recorded in steps -----------------------------------------


def test_columns_of_their_own_scale_have_their_own_units():
    Y = np.random.RandomState(2).standard_normal((400, 3)) * [1.0, 5e4, 0.0] + [3.0, -2.0, 7.0]
    Y[::11, 1] = np.nan
    location, scale = Gaussian(scale="column").units(Y)
    np.testing.assert_allclose(location, np.nanmean(Y, axis=0))
    np.testing.assert_allclose(scale, [*np.nanstd(Y[:, :2], axis=0), 1.0])


def test_the_resolution_is_the_median_gap_in_standard_deviations():
    random = np.random.RandomState(0)
    steps = np.array([1.0, 0.05, 1e3])
    Y = steps * np.rint(10.0 * random.standard_normal((300, 3)))
    Y[5, 0], Y[6, 0] = np.nan, 1e3  # one gap that is far from the usual one
    Y = np.c_[Y, np.full(300, 2.5)]
    resolved = Gaussian(noise="column", scale="column").resolve(Y)
    scale = np.nanstd(Y, axis=0)
    np.testing.assert_allclose(resolved.resolution, [*(steps / scale[:3]), 0.0], rtol=1e-9)
    # once it is known it stays, and columns of one scale have none
    assert resolved.resolve(2.0 * Y) is resolved
    assert Gaussian().resolve(Y).resolution is None
    assert Gaussian(noise="column").resolve(Y).resolution is None
    assert resolved.has_numbers_by_column
    assert not Gaussian(scale="column").has_numbers_by_column


STEPS = (0.0, 0.2, 1.5)
RECORDED = Gaussian(noise="column", scale="column", resolution=STEPS)


def recorded(log_noise, n_rows=5):
    """Return the parameters of three columns, channels first as in a fit."""
    _, constants = RECORDED.channels(np.zeros((n_rows, 3)))
    return {"log_noise": jnp.full((3, 1), log_noise), "rounding": jnp.asarray(constants["rounding"].T)}


def test_noise_does_not_fall_below_what_rounding_leaves_open():
    """Numbers that are rounded to steps s are uniform around them, with variance s^2 / 12."""
    for log_noise in (-1e3, -30.0, -2.0, 3.0):
        parameters = recorded(log_noise)
        variance = np.asarray(RECORDED.moments(jnp.zeros((3, 5)), parameters).variance)
        expected = np.exp(log_noise) + np.square(STEPS) / 12.0 + 1e-14
        np.testing.assert_allclose(variance, np.tile(expected[:, None], 5), rtol=1e-12)
        uniform = np.square(STEPS) * np.var(np.linspace(-0.5, 0.5, 200_001))
        assert np.all(variance >= 0.999 * uniform[:, None])
    assert RECORDED.channels(np.zeros((5, 3)))[1]["rounding"].shape == (5, 3)
    assert Gaussian("column").channels(np.zeros((5, 3)))[1] == {}


def test_densities_of_recorded_columns_integrate_to_one():
    grid = np.linspace(-12.0, 12.0, 48_001)
    for log_noise in (-6.0, 0.0):
        parameters = {name: value[1:, :1] for name, value in recorded(log_noise).items()}
        y, mean = jnp.asarray(np.tile(grid, (2, 1))), jnp.full((2, 1), 0.3)
        given_f = np.exp(RECORDED.log_prob(y, mean, parameters))
        given_moments = np.exp(RECORDED.log_predictive(y, mean, jnp.full((2, 1), 0.5), parameters))
        for density in (given_f, given_moments):
            np.testing.assert_allclose(np.trapezoid(density, grid, axis=1), 1.0, rtol=1e-8)
        variance = np.trapezoid(given_f * (grid - 0.3) ** 2, grid, axis=1)
        np.testing.assert_allclose(variance, RECORDED.moments(mean, parameters).variance[:, 0], rtol=1e-6)


def test_expectations_of_recorded_columns_are_those_of_dense_integration():
    grid = np.linspace(-9.0, 9.0, 1201)
    weights = norm.pdf(grid) * (grid[1] - grid[0])
    parameters = {name: value[:, :1] for name, value in recorded(-2.0).items()}
    y, mean, variance = jnp.asarray([[0.3], [-1.0], [2.0]]), jnp.full((3, 1), 0.4), jnp.full((3, 1), 0.7)
    f = mean + jnp.sqrt(variance) * grid
    expected = RECORDED.log_prob(y, f, parameters) @ weights
    np.testing.assert_allclose(
        RECORDED.expectations(y, mean, variance, parameters).value[:, 0], expected, rtol=1e-9
    )


def test_natural_parameters_are_the_variances_that_draws_have():
    units = Units(np.zeros(3), np.array([1.0, 10.0, 200.0]))
    learned = {"log_noise": np.log([0.3, 1e-4, 1e-9])}
    variance = RECORDED.natural_parameters(learned, units)["noise_variance"]
    np.testing.assert_allclose(
        variance, units.scale**2 * (np.exp(learned["log_noise"]) + np.square(STEPS) / 12.0), rtol=1e-9
    )
    _, constants = RECORDED.channels(np.zeros((40_000, 3)))
    drawn = RECORDED.sample(np.zeros((40_000, 3)), {**learned, **constants}, np.random.RandomState(0))
    # the standard error of a variance of 40 000 draws is 0.7 %
    np.testing.assert_allclose(np.var(drawn * units.scale, axis=0), variance, rtol=0.03)
    plain = Gaussian("column").natural_parameters(learned, units)["noise_variance"]
    np.testing.assert_allclose(plain, units.scale**2 * np.exp(learned["log_noise"]), rtol=1e-4)


def test_fits_in_batches_and_in_parts_take_the_resolution_from_rows():
    """Of the whole table the extremes are known, and their distance is no step."""
    random = np.random.RandomState(0)
    Y = np.round(random.standard_normal((120, 1)) @ np.ones((1, 3)) + random.standard_normal((120, 3)), 1)
    data = TrainingData(ArraySource(Y), choose(OWN_UNITS, 3, None), None, None, "auto")
    ((likelihood, _),) = Survey.of(data).resolved(data.choice)
    assert likelihood.resolution is None
    (group,) = Layout.from_data(Y, data.choice).groups
    np.testing.assert_allclose(group.likelihood.resolution, 0.1 / Y.std(axis=0), rtol=1e-9)


# ---- transformed columns ---------------------------------------------------------------------------


def skewed_columns(n_rows=300):
    """Return dollars, dollars with zeros, and numbers that are not skewed, some of all missing."""
    random = np.random.RandomState(0)
    dollars = np.round(2e4 * np.exp(0.8 * random.standard_normal((n_rows, 2))))
    dollars[random.rand(n_rows) < 0.3, 1] = 0.0
    Y = np.column_stack([dollars, random.standard_normal(n_rows)])
    Y[random.rand(*Y.shape) < 0.1] = np.nan
    return Y


TRANSFORMED = Gaussian(noise="column", scale="column", transform="auto")


def test_transforms_are_chosen_by_column_and_remembered():
    Y = skewed_columns()
    resolved = TRANSFORMED.resolve(Y)
    assert resolved.transforms == ("log", "yeo_johnson", None)
    assert resolved.has_numbers_by_column
    assert resolved.resolve(Y[:50]) is resolved
    assert resolved.straight == Gaussian("column", "column", resolved.resolution)
    # a column that is not transformed is as it would be without the others
    plain = Gaussian(noise="column", scale="column").resolve(Y)
    np.testing.assert_allclose(resolved.resolution[2], plain.resolution[2], rtol=1e-12)
    # and if none is, nothing differs
    assert TRANSFORMED.resolve(Y[:, 2:]) == Gaussian("column", "column").resolve(Y[:, 2:])


def test_a_transform_may_be_given_for_all_columns_or_for_each():
    Y = np.abs(skewed_columns()) + 1.0
    assert Gaussian(scale="column", transform="log").resolve(Y).transforms == ("log", "log", "log")
    given = Gaussian(scale="column", transform=("none", "auto", "yeo_johnson"))
    assert given.has_numbers_by_column
    assert given.resolve(Y).transforms == (None, "log", "yeo_johnson")
    assert Gaussian(scale="column", transform="none").resolve(Y).transforms == ()


def test_transforms_that_do_not_exist_or_cannot_be_are_refused():
    with pytest.raises(ValueError, match="transform"):
        Gaussian(scale="column", transform="square")
    with pytest.raises(ValueError, match="scale='column'"):
        Gaussian(transform="log")
    with pytest.raises(ValueError, match="2 transforms for 3 columns"):
        Gaussian(scale="column", transform=("log", "none")).resolve(np.ones((9, 3)))
    sound = (0.0, 0.5, 2.0, 0.0, 1.0)
    Gaussian(scale="column", transform=("log",), curves=(sound,))
    for transform, curves in (
        (None, (sound,)),
        ("log", (sound,)),
        (("log", "log"), (sound,)),
        (("auto",), (sound,)),
        (("log",), (sound[:4],)),
        (("log",), ((3.0, *sound[1:]),)),
        (("log",), ((*sound[:4], 0.0),)),
        (("log",), ((0.0, -1.0, *sound[2:]),)),
        (("yeo_johnson",), ((0.0, 2.0, 1.0, 0.0, 1.0),)),
    ):
        with pytest.raises(ValueError, match="curves"):
            Gaussian(scale="column", transform=transform, curves=curves)
    log, Y = Gaussian(scale="column", transform="log"), skewed_columns()
    with pytest.raises(DataError, match="not positive") as error:
        log.check(Y[:, :2], ["a", "b"])
    assert " b:" in str(error.value)
    TRANSFORMED.check(Y, ["a", "b", "c"])
    resolved = log.resolve(Y[:, :1])
    with pytest.raises(DataError, match="not positive"):
        resolved.check(np.array([[-1.0]]), ["a"])
    # a logarithm that nobody asked for takes what new rows have
    chosen = TRANSFORMED.resolve(Y)
    chosen.check(np.full((1, 3), -1.0), ["a", "b", "c"])


def group_of(likelihood, Y):
    (group,) = Layout.from_data(Y, choose(likelihood, Y.shape[1], None)).groups
    return group


def test_channels_are_standardised_and_draws_are_columns_again():
    Y = skewed_columns()
    group = group_of(TRANSFORMED, Y)
    (rows,) = Layout((group,), np.zeros(3)).encode(Y)
    np.testing.assert_allclose(np.nanmean(rows.y, axis=0), 0.0, atol=1e-12)
    np.testing.assert_allclose(np.nanstd(rows.y, axis=0), 1.0, rtol=1e-12)
    np.testing.assert_array_equal(rows.observed, ~np.isnan(Y))
    back = group.units.location + group.units.scale * group.likelihood.columns_from_draws(rows.y, {})
    np.testing.assert_allclose(back, Y, rtol=1e-9, atol=1e-6)


def test_log_slopes_are_derivatives_of_channels_in_raw_units():
    Y = skewed_columns()
    group = group_of(TRANSFORMED, Y)
    step = 1e-4 * group.units.scale
    ends = [group.likelihood.channels(group.in_model_units(Y + side * step))[0] for side in (1.0, -1.0)]
    expected = np.log((ends[0] - ends[1]) / (2.0 * step))
    # at the ends, and where the transform of Yeo and Johnson bends, a difference is of both sides
    np.testing.assert_allclose(group.log_slopes(Y), expected, atol=2e-3)
    np.testing.assert_allclose(group.log_scales(Y), -np.nansum(expected, axis=1), atol=4e-3)


def test_densities_of_transformed_columns_integrate_to_one_in_raw_units():
    Y = skewed_columns()
    group = group_of(TRANSFORMED, Y)
    learned = {"log_noise": jnp.asarray(np.log([0.3, 0.1, 0.2]))}
    v = np.linspace(-9.0, 9.0, 40_001)[:, None] * np.ones(3)
    raw = group.units.location + group.units.scale * group.likelihood.columns_from_draws(v, {})
    (rows,) = Layout((group,), np.zeros(3)).encode(raw)
    parameters = {**rows.constants, **learned}
    for mean in (-1.0, 0.0, 2.5):
        log_density = np.asarray(group.likelihood.log_prob(rows.y, mean, parameters)) + group.log_slopes(raw)
        total = np.sum(np.diff(raw, axis=0) * 0.5 * np.exp(log_density)[1:], axis=0)
        total += np.sum(np.diff(raw, axis=0) * 0.5 * np.exp(log_density)[:-1], axis=0)
        np.testing.assert_allclose(total, 1.0, rtol=1e-4)


def test_the_step_of_a_transformed_column_is_that_at_its_middle_entry():
    Y = np.round(np.exp(np.random.RandomState(0).standard_normal((1001, 1)) + 4.0))
    resolved = Gaussian(scale="column", transform="log").resolve(Y)
    # a change by one is a change of log y by 1 / y, in standard deviations of log y
    np.testing.assert_allclose(resolved.resolution, 1.0 / np.median(Y) / np.log(Y).std(), rtol=1e-9)


def test_moments_of_transformed_columns_are_those_of_draws():
    Y = skewed_columns()
    group, random = group_of(TRANSFORMED, Y), np.random.RandomState(0)
    learned, n_draws = {"log_noise": np.log([0.3, 0.1, 0.2])}, 200_000
    _, constants = group.likelihood.channels(np.zeros((n_draws, 3)))
    f = 0.4 + 0.5 * random.standard_normal((n_draws, 3))
    drawn = group.likelihood.sample(f, {**learned, **constants}, random)
    columns = group.likelihood.columns_from_draws(drawn, constants)
    known = {name: value[:1] for name, value in constants.items()} | learned
    at = np.full((1, 3), 0.4)
    with in_float64():
        noise_of_channels = np.asarray(group.likelihood.moments(jnp.asarray(at), known).variance)
    transform = group.likelihood.transform_moments
    mean, of_means, noise = transform(at, np.full_like(at, 0.25), noise_of_channels)
    given_mean, _, given_noise = transform(at, np.zeros_like(at), noise_of_channels)
    error = columns.std(axis=0) / np.sqrt(n_draws)
    assert np.all(np.abs(columns.mean(axis=0) - mean[0]) < 4.0 * error)
    np.testing.assert_allclose(columns.var(axis=0), (of_means + noise)[0], rtol=0.03)
    fixed = group.likelihood.sample(np.full((n_draws, 3), 0.4), {**learned, **constants}, random)
    columns = group.likelihood.columns_from_draws(fixed, constants)
    assert np.all(np.abs(columns.mean(axis=0) - given_mean[0]) < 4.0 * columns.std(axis=0) / np.sqrt(n_draws))
    np.testing.assert_allclose(columns.var(axis=0), given_noise[0], rtol=0.03)


def test_noise_of_transformed_columns_is_told_for_their_centre():
    """A small noise of log y is y times as large in y."""
    Y = np.exp(np.random.RandomState(0).standard_normal((400, 1)) + 4.0)
    group = group_of(Gaussian("column", "column", (0.0,), "log"), Y)
    noise = group.likelihood.natural_parameters({"log_noise": np.log([1e-4])}, group.units)
    std = np.log(Y).std() * np.exp(np.log(Y).mean())
    np.testing.assert_allclose(noise["noise_variance"], 1e-4 * std**2, rtol=1e-9)
