"""Posteriors of transformed columns: densities, fills, intervals and draws in the units of the columns."""

from dataclasses import replace

import numpy as np
import pytest
from helpers.model_files import made_up
from scipy.integrate import trapezoid
from scipy.special import ndtri

from srflvm.likelihoods import Gaussian


def skewed_rows(n_rows=60):
    random = np.random.RandomState(0)
    Y = random.standard_normal((n_rows, 4)) @ random.standard_normal((4, 4))
    return np.column_stack([np.exp(Y[:, 0] + 5.0), Y[:, 1], 8.0 - np.exp(0.5 * Y[:, 2]), np.exp(Y[:, 3])])


KINDS = ("log", "none", "yeo_johnson", "auto")


@pytest.fixture(scope="module")
def model():
    return made_up(skewed_rows(), likelihood=Gaussian("column", "column", transform=KINDS))


@pytest.fixture(scope="module")
def holes():
    Y = skewed_rows(12)
    Y[np.arange(12), np.arange(12) % 4] = np.nan
    Y[0] = np.nan
    return Y


def test_transforms_are_told_by_column(model):
    assert model.transforms_ == ["log", None, "yeo_johnson", "log"]


def test_bounds_and_densities_differ_by_the_slopes_alone(model):
    """The channels of a transformed table are a table of their own, whose density has no slopes."""
    Y, layout = skewed_rows(), model._posterior.layout
    (rows,) = layout.encode(Y)
    (group,) = layout.groups
    slopes = group.log_slopes(Y)
    np.testing.assert_allclose(layout.log_scales(Y), -slopes.sum(axis=1), rtol=1e-12)
    np.testing.assert_allclose(layout.log_scale_total(Y), -slopes.sum(), rtol=1e-12)
    units = group.units._replace(location=np.zeros(4), scale=np.ones(4))
    plain = replace(group, likelihood=group.likelihood.straight, units=units)
    straight = replace(model._posterior, table=replace(layout, groups=(plain,)))
    difference = model._posterior.log_density(Y[:8]) - straight.log_density(rows.y[:8])
    np.testing.assert_allclose(difference, slopes[:8].sum(axis=1), rtol=1e-9)


def test_densities_of_held_out_entries_integrate_to_one(model, holes):
    row = holes[:1].copy()
    row[0] = skewed_rows(1)
    for column in range(4):
        truth = np.repeat(row, 4001, axis=0)
        group = model._posterior.layout.groups[0]
        v = np.linspace(-12.0, 12.0, 4001)[:, None] * np.ones(4)
        raw = group.units.location + group.units.scale * group.likelihood.columns_from_draws(v, {})
        truth[:, column] = raw[:, column]
        given = np.repeat(row, 4001, axis=0)
        given[:, column] = np.nan
        density = np.exp(model._posterior.score_held_out(given, truth)[:, column])
        np.testing.assert_allclose(trapezoid(density, truth[:, column]), 1.0, rtol=2e-3)


def test_fills_and_spreads_are_those_of_draws(model, holes):
    posterior, random = model._posterior, np.random.RandomState(1)
    filled, std = posterior.fill_missing(holes)
    missing = np.isnan(holes)
    some = posterior.embed_incomplete(holes)
    draws = []
    for _ in range(4000):
        latents = some.embedding.draw(random)
        draws.append(posterior.draw_independently(latents, random)[some.missing])
    draws = np.array(draws)
    # means over latents are by cubature, which is exact for cubics only
    error = np.abs(draws.mean(axis=0) - filled[missing]) / draws.std(axis=0)
    assert np.max(error) < 0.08
    assert np.median(np.abs(draws.std(axis=0) / std[missing] - 1.0)) < 0.05
    np.testing.assert_array_equal(filled[~missing], holes[~missing])


def test_intervals_are_quantiles_that_are_transformed_back(model, holes):
    posterior, missing = model._posterior, np.isnan(holes)
    low, high = posterior.ends_of_missing(holes, None, float(ndtri(0.95)))
    some = posterior.embed_incomplete(holes)
    random = np.random.RandomState(1)
    draws = [
        posterior.draw_independently(some.embedding.draw(random), random)[some.missing] for _ in range(4000)
    ]
    below, above = np.mean(draws < low[missing], axis=0), np.mean(draws > high[missing], axis=0)
    # channels at uncertain latents are nearly normal
    np.testing.assert_allclose(below, 0.05, atol=0.02)
    np.testing.assert_allclose(above, 0.05, atol=0.02)
    np.testing.assert_array_equal(low[~missing], holes[~missing])
    np.testing.assert_array_equal(high[~missing], holes[~missing])
    assert np.all(low[:, 0] > 0.0)  # a logarithm that was asked for leaves nothing below zero
    filled, std = posterior.fill_missing(holes)
    plain = missing[:, 1]
    np.testing.assert_allclose(low[plain, 1], (filled - ndtri(0.95) * std)[plain, 1], rtol=1e-9)


def test_rows_without_missing_entries_have_no_width(model):
    Y = skewed_rows(5)
    for side in model._posterior.ends_of_missing(Y, None, 1.6):
        np.testing.assert_array_equal(side, Y)


def test_numbers_that_a_chosen_logarithm_has_not_seen(model):
    """A logarithm that was not asked for has a place for zeros and negative numbers of new rows."""
    Y = skewed_rows(3)
    Y[:, 3] = [0.0, -1.0, 1e4]
    assert np.isfinite(model.transform(Y)).all()
    assert np.isfinite(model.score_samples(Y)).all()
    Y[0, 0] = 0.0
    with pytest.raises(ValueError, match="not positive"):
        model.transform(Y)
