"""Charts: bound, relevance, kernel, spectral density, imputed entries and calibration."""

import numpy as np
import pytest
from helpers.pictures import N_IMAGES, of_kind
from matplotlib.collections import LineCollection
from sklearn.exceptions import NotFittedError

from srflvm import SRFLVM, Progress, plot

SHAPE = (2, 2)


def test_elbo_curve_is_the_history_per_entry(image_model, ax):
    assert plot.elbo_curve(image_model, ax=ax) is ax
    curve, *others = ax.lines
    np.testing.assert_array_equal(curve.get_xdata(), np.arange(1, image_model.n_iter_ + 1))
    np.testing.assert_allclose(np.asarray(curve.get_ydata()) * N_IMAGES * 6, image_model.elbo_history_)
    assert curve.get_label() == f"start {image_model.start_}, won"
    lost = {name: bound for name, bound in image_model.start_elbos_.items() if name != image_model.start_}
    assert {line.get_label(): line.get_ydata()[0] for line in others} == {
        f"start {name}, given up": bound / (N_IMAGES * 6) for name, bound in lost.items()
    }
    assert len(lost) == 1
    assert all(float(tick) == int(tick) for tick in ax.get_xticks())


def test_the_former_name_of_history():
    assert plot.elbo_curve is plot.history


def test_history_over_time_has_a_curve_for_each_stage(model, ax):
    reports = [
        Progress("start pca", 1, 3, -40.0, 20, 0.5),
        Progress("start neighbors", 1, 3, -30.0, 20, 0.6),
        Progress("start pca", 2, 3, -20.0, 20, 0.7),
        Progress("fit", 3, 3, -10.0, 20, 0.9),
    ]
    assert plot.history(model, reports, ax=ax) is ax
    curves = {line.get_label(): (list(line.get_xdata()), list(line.get_ydata())) for line in ax.lines}
    assert curves == {
        "start pca": ([0.5, 0.7], [-2.0, -1.0]),
        "start neighbors": ([0.6], [-1.5]),
        "fit": ([0.9], [-0.5]),
    }
    with pytest.raises(ValueError, match="progress is empty"):
        plot.history(model, [], ax=ax)


def test_relevance_is_a_bar_for_each_dimension(model, ax):
    assert plot.relevance(model, ax=ax) is ax
    np.testing.assert_allclose([bar.get_height() for bar in ax.patches], model.relevance_)
    centres = [bar.get_x() + bar.get_width() / 2 for bar in ax.patches]
    np.testing.assert_allclose(centres, [1, 2])


def test_kernel_along_each_dimension(model, ax):
    assert plot.kernel(model, n=9, ax=ax) is ax
    solid, dashed = ax.lines[::2], ax.lines[1::2]
    assert [line.get_label() for line in solid] == ["latent 1", "latent 2"]
    for dim, (curve, estimate) in enumerate(zip(solid, dashed, strict=True)):
        d = np.asarray(curve.get_xdata())
        assert d[0] == 0.0
        variances, means = model.mixture_covariances_[:, dim, dim], model.mixture_means_[:, dim]
        closed_form = np.exp(-0.5 * np.outer(d**2, variances)) * np.cos(np.outer(d, means))
        np.testing.assert_allclose(curve.get_ydata(), closed_form @ model.mixture_weights_, rtol=1e-10)
        frozen = np.cos(np.outer(d, model.frequencies_[:, dim])).mean(axis=1)
        np.testing.assert_allclose(estimate.get_ydata(), frozen, atol=1e-10)


def test_kernel_of_chosen_dimensions(model, ax):
    plot.kernel(model, dims=[1], n=3, ax=ax)
    assert [line.get_label() for line in ax.lines] == ["latent 2", "latent 2, frozen frequencies"]
    with pytest.raises(ValueError, match="dims"):
        plot.kernel(model, dims=[2], ax=ax)


def test_spectral_density_of_two_dimensions(model, ax):
    assert plot.spectral_density(model, n=5, ax=ax) is ax
    low, high = ax.images[0].get_extent()[:2]
    along = np.linspace(low, high, 5)
    points = np.array([[a, b] for b in along for a in along])
    shown = np.asarray(ax.images[0].get_array()).ravel()
    np.testing.assert_allclose(shown, model.spectral_density(points), rtol=1e-8)
    drawn = np.asarray(ax.collections[0].get_offsets())
    np.testing.assert_array_equal(drawn, np.concatenate([model.frequencies_, -model.frequencies_]))


def test_spectral_density_of_one_dimension_integrates_over_the_other(model, ax):
    plot.spectral_density(model, dims=(1,), n=3, ax=ax)
    curve = ax.lines[0]
    reach = np.abs(model.mixture_means_).max() + 10.0 * np.sqrt(model.mixture_covariances_.max())
    other = np.linspace(-reach, reach, 20_001)
    for along, density in zip(curve.get_xdata(), curve.get_ydata(), strict=True):
        points = np.column_stack([other, np.full(len(other), along)])
        np.testing.assert_allclose(density, np.trapezoid(model.spectral_density(points), other), rtol=1e-6)
    with pytest.raises(ValueError, match="dims"):
        plot.spectral_density(model, dims=(0, 2), ax=ax)


def test_imputed_images_stand_below_the_truth_and_the_observed_images(ax):
    truth, filled = np.arange(12.0).reshape(3, 4), np.arange(12.0).reshape(3, 4) + 0.5
    seen = np.where(np.eye(3, 4, dtype=bool), np.nan, truth)
    assert plot.imputation(truth, seen, filled, image_shape=SHAPE, ax=ax) is ax
    values, marks = (image.get_array().filled(np.nan) for image in ax.images)
    for canvas, lines in ((values, (truth, seen, filled)), (marks, (None, seen, None))):
        for line, rows in zip(canvas.reshape(3, 4, 12), lines, strict=True):
            shown = line.reshape(4, 3, 4).swapaxes(0, 1)[:, 1:-1, 1:-1].reshape(3, 4)
            if canvas is values:
                np.testing.assert_array_equal(shown, rows)
            else:
                hidden = np.zeros((3, 4), bool) if rows is None else np.isnan(rows)
                np.testing.assert_array_equal(np.isfinite(shown), hidden)
    assert [label.get_text() for label in ax.get_yticklabels()] == ["truth", "seen", "filled"]


def test_imputed_entries_against_the_truth(ax):
    truth = np.array([[1.0, 2.0], [3.0, np.nan]])
    hidden = np.array([[True, False], [True, True]])
    plot.imputation(truth, hidden, truth + 0.5, std=np.full((2, 2), 0.25), ax=ax)
    diagonal, points = ax.lines[:2]
    np.testing.assert_array_equal(diagonal.get_xdata(), diagonal.get_ydata())
    np.testing.assert_array_equal(points.get_xydata(), [[1.0, 1.5], [3.0, 3.5]])
    (bars,) = of_kind(ax, LineCollection)
    np.testing.assert_array_equal(np.stack(bars.get_segments())[:, :, 1], [[1.25, 1.75], [3.25, 3.75]])


@pytest.mark.parametrize(
    ("holes", "options", "message"),
    [
        (np.zeros((2, 3), bool), {}, "one shape"),
        (np.zeros((2, 2), bool), {}, "No hidden entry"),
        (np.ones((2, 2), bool), {"image_shape": SHAPE}, "2 pixels"),
    ],
)
def test_imputation_refuses(ax, holes, options, message):
    with pytest.raises(ValueError, match=message):
        plot.imputation(np.zeros((2, 2)), holes, np.zeros((2, 2)), ax=ax, **options)


def drawn_coverage(ax):
    curve = ax.lines[-1]
    return np.asarray(curve.get_xdata()), np.asarray(curve.get_ydata())


def test_calibration_of_right_error_bars_is_the_diagonal(ax):
    """At each of 19 levels within five standard errors."""
    rng = np.random.default_rng(0)
    mean, std = rng.normal(size=(100, 20)), rng.uniform(0.5, 2.0, size=(100, 20))
    truth = mean + std * rng.standard_normal(mean.shape)
    truth[0] = np.nan
    assert plot.calibration(truth, mean, std, ax=ax) is ax
    level, share = drawn_coverage(ax)
    np.testing.assert_allclose(level, np.arange(1, 20) / 20)
    assert np.all(np.abs(share - level) < 5.0 * np.sqrt(level * (1 - level) / 1980))
    assert ax.get_ylabel() == "share of 1980 entries inside"


def test_calibration_of_narrow_error_bars_lies_below(ax):
    """Half the standard deviation: the share is P(|e| < z / 2)."""
    from scipy.stats import norm

    rng = np.random.default_rng(1)
    plot.calibration(
        rng.standard_normal(20_000), np.zeros(20_000), np.full(20_000, 0.5), levels=[0.5, 0.9], ax=ax
    )
    level, share = drawn_coverage(ax)
    expected = 2 * norm.cdf(norm.ppf((1 + level) / 2) / 2) - 1
    np.testing.assert_allclose(share, expected, atol=5 * 0.5 / np.sqrt(20_000))


def test_calibration_by_draws_counts_what_lies_between_their_quantiles(ax):
    draws = np.arange(101.0)[:, None] * np.ones(6)
    truth = np.array([0.0, 10.0, 30.0, 50.0, 75.0, 200.0])
    where = np.array([True, True, True, True, True, False])
    plot.calibration(truth, draws=draws, where=where, levels=[0.5, 0.8, 0.999], ax=ax)
    np.testing.assert_allclose(drawn_coverage(ax)[1], [3 / 5, 4 / 5, 4 / 5])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "either mean and std, or draws"),
        ({"mean": np.zeros(3)}, "either"),
        ({"mean": np.zeros(3), "std": np.ones(3), "draws": np.zeros((2, 3))}, "either"),
        ({"mean": np.zeros(2), "std": np.ones(3)}, "mean has shape"),
        ({"draws": np.zeros((2, 2))}, "draws has shape"),
        ({"mean": np.zeros(3), "std": np.ones(3), "levels": [1.0]}, "levels"),
        ({"mean": np.zeros(3), "std": np.ones(3), "where": np.zeros(3, bool)}, "no true entry"),
    ],
)
def test_calibration_refuses(ax, arguments, message):
    with pytest.raises(ValueError, match=message):
        plot.calibration(np.zeros(3), ax=ax, **arguments)


@pytest.mark.parametrize("draw", [plot.history, plot.kernel, plot.spectral_density, plot.relevance])
def test_an_unfitted_model_is_refused(draw):
    with pytest.raises(NotFittedError):
        draw(SRFLVM())
