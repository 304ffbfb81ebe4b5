"""Pictures of predictions against the truth, of a fit under way, and ellipses."""

import copy

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.collections import EllipseCollection, LineCollection, PathCollection
from matplotlib.colors import to_hex

from srflvm import Progress, plot

SHAPE = (2, 2)


@pytest.fixture
def ax():
    figure, ax = plt.subplots()
    yield ax
    plt.close(figure)


def of_kind(ax, kind):
    return [collection for collection in ax.collections if type(collection) is kind]


def test_ellipses_have_the_standard_deviations_as_semi_axes(model, ax):
    plot.embedding(model, ellipses=2.0, ax=ax)
    (ellipses,) = of_kind(ax, EllipseCollection)
    np.testing.assert_array_equal(ellipses.get_offsets(), model.embedding_)
    diameters = np.column_stack([ellipses.get_widths(), ellipses.get_heights()])
    np.testing.assert_allclose(diameters, 4.0 * model.embedding_std_)
    assert not np.any(ellipses.get_angles())
    low, high = np.sort([ax.get_xlim(), ax.get_ylim()]).T
    assert np.all(low <= (model.embedding_ - 2.0 * model.embedding_std_).min(axis=0))
    assert np.all(high >= (model.embedding_ + 2.0 * model.embedding_std_).max(axis=0))


def test_ellipses_have_the_colours_of_their_points(ax):
    Z, std = np.arange(12.0).reshape(6, 2), np.full((6, 2), 0.3)
    plot.embedding(Z, ["a", "b", "a", "b", "a", "b"], ellipses=1.0, Z_std=std, ax=ax)
    points, ellipses = of_kind(ax, PathCollection), of_kind(ax, EllipseCollection)
    assert len(points) == len(ellipses) == 2
    for one, other in zip(points, ellipses, strict=True):
        np.testing.assert_array_equal(one.get_offsets(), other.get_offsets())
        assert to_hex(one.get_facecolor()[0]) == to_hex(other.get_facecolor()[0])


def test_ellipses_of_numbers_follow_the_colour_map(ax):
    Z = np.arange(50.0).reshape(25, 2)
    plot.embedding(Z, np.arange(25.0), ellipses=1.0, Z_std=np.ones((25, 2)), ax=ax)
    (points,), (ellipses,) = of_kind(ax, PathCollection), of_kind(ax, EllipseCollection)
    np.testing.assert_allclose(
        ellipses.get_facecolor()[:, :3], points.cmap(points.norm(np.arange(25.0)))[:, :3]
    )


@pytest.mark.parametrize("options", [{}, {"Z_std": np.ones((3, 1))}, {"Z_std": -np.ones((3, 2))}])
def test_ellipses_refuse(ax, options):
    with pytest.raises(ValueError, match="Z_std"):
        plot.embedding(np.zeros((3, 2)), ellipses=1.0, ax=ax, **options)


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


def test_grid_of_profiles(model, ax):
    """Three by two cells of 2 x 4/3, a line in each, its heights in proportion to the decoded values."""
    wide = copy.copy(model)
    wide.embedding_ = np.column_stack([np.linspace(0.0, 6.0, 30), np.linspace(0.0, 2.0, 30)])
    plot.decoded_grid(wide, n=3, max_uncertainty=np.inf, ax=ax)
    centres = np.array([[x, y] for y in (5 / 3, 1 / 3) for x in (1.0, 3.0, 5.0)])
    decoded = model.decode(centres).mean
    (lines,) = of_kind(ax, LineCollection)
    x, y = np.moveaxis(np.stack(lines.get_segments()), -1, 0)
    np.testing.assert_allclose(x, centres[:, :1] + 0.9 * np.linspace(-1.0, 1.0, 4))
    heights = (decoded - decoded.min()) / np.ptp(decoded) - 0.5
    np.testing.assert_allclose(y, centres[:, 1:] + 0.9 * 4 / 3 * heights)
    np.testing.assert_allclose([ax.get_xlim(), ax.get_ylim()], [(0.0, 6.0), (-1 / 3, 7 / 3)])


def test_grid_of_profiles_that_are_all_blank(model, ax):
    plot.decoded_grid(model, n=3, max_uncertainty=0.0, ax=ax)
    assert not of_kind(ax, LineCollection)[0].get_segments()


def test_imputed_images_stand_below_the_truth_and_the_holes(ax):
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


def test_the_former_name_of_history():
    assert plot.elbo_curve is plot.history
