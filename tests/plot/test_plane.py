"""Embeddings, decoded grids and maps over the latent plane."""

import copy

import numpy as np
import pytest
from helpers.pictures import IMAGE_SHAPE, N_IMAGES, cell_images, of_kind, with_attributes
from matplotlib.collections import EllipseCollection, LineCollection, PathCollection
from matplotlib.colors import LogNorm, to_hex
from sklearn.exceptions import NotFittedError

from srflvm import SRFLVM, plot
from srflvm.plot.plane import _magnification_at


def drawn_points(ax):
    return np.concatenate([np.asarray(collection.get_offsets()) for collection in ax.collections])


def with_embedding(model, Z):
    changed = copy.copy(model)
    changed.embedding_ = np.asarray(Z, dtype=float)
    return changed


def test_embedding_draws_every_row_once(image_model, ax):
    assert plot.embedding(image_model, ax=ax) is ax
    np.testing.assert_array_equal(drawn_points(ax), image_model.embedding_)
    assert ax.get_aspect() == 1.0
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("latent 1", "latent 2")


def test_embedding_names_classes_at_their_medians(image_model, ax):
    labels = np.array(["cat", "dog", "owl"], dtype=object)[np.arange(N_IMAGES) % 3]
    plot.embedding(image_model, list(labels), ax=ax)
    assert [text.get_text() for text in ax.texts] == ["cat", "dog", "owl"]
    for text in ax.texts:
        median = np.median(image_model.embedding_[labels == text.get_text()], axis=0)
        np.testing.assert_allclose(text.get_position(), median)
    assert len(drawn_points(ax)) == N_IMAGES
    assert len({to_hex(collection.get_facecolor()[0]) for collection in ax.collections}) == 3


def test_embedding_takes_points_other_dimensions_and_a_legend(ax):
    Z = np.arange(30.0).reshape(10, 3)
    plot.embedding(Z, np.arange(10) % 2, ax=ax, dims=(2, 0), names="legend")
    np.testing.assert_array_equal(np.sort(drawn_points(ax), axis=0), Z[:, [2, 0]])
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["0", "1"]
    assert not ax.texts
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("latent 3", "latent 1")


def test_more_than_ten_classes_differ_in_colour_or_marker(ax):
    plot.embedding(np.arange(26.0).reshape(13, 2), [f"class {n}" for n in range(13)], ax=ax, names=None)
    looks = {(to_hex(c.get_facecolor()[0]), c.get_paths()[0].vertices.tobytes()) for c in ax.collections}
    assert len(looks) == 13


def test_many_numbers_get_a_colour_bar(image_model, ax):
    plot.embedding(image_model, np.linspace(5.0, 9.0, N_IMAGES), ax=ax)
    assert len(ax.collections) == 1
    assert len(ax.figure.axes) == 2
    assert ax.figure.axes[1].get_ylim() == (5.0, 9.0)


@pytest.mark.parametrize(
    ("Z", "options", "message"),
    [
        (np.zeros((5, 1)), {}, "2 or more"),
        (np.zeros(5), {}, "2 or more"),
        (np.zeros((5, 2)), {"dims": (0, 2)}, "dims"),
        (np.zeros((5, 2)), {"labels": [1, 2]}, "labels"),
        (np.zeros((5, 2)), {"names": "above"}, "names"),
    ],
)
def test_embedding_refuses(ax, Z, options, message):
    with pytest.raises(ValueError, match=message):
        plot.embedding(Z, ax=ax, **options)


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


def test_grid_has_the_cells_of_the_longer_side(image_model, ax):
    Z = np.column_stack([np.linspace(0.0, 6.0, N_IMAGES), np.linspace(0.0, 2.0, N_IMAGES)])
    assert plot.decoded_grid(with_embedding(image_model, Z), IMAGE_SHAPE, 4, ax=ax) is ax
    assert cell_images(ax).shape == (2, 4, *IMAGE_SHAPE)
    left, right, low, high = ax.images[0].get_extent()
    np.testing.assert_allclose([left, right, low, high], [0.0, 6.0, 0.0, 2.0])
    assert ax.get_aspect() == 1.0


def test_grid_shows_what_the_model_decodes(image_model, ax):
    plot.decoded_grid(image_model, IMAGE_SHAPE, 5, ax=ax, max_uncertainty=np.inf)
    cells = cell_images(ax)
    n_rows, n_columns = cells.shape[:2]
    left, right, low, high = ax.images[0].get_extent()
    x = left + (np.arange(n_columns) + 0.5) * (right - left) / n_columns
    y = high - (np.arange(n_rows) + 0.5) * (high - low) / n_rows
    expected = image_model.decode(np.array([[a, b] for b in y for a in x])).mean.reshape(cells.shape)
    shown = np.isfinite(cells)
    assert shown.mean() > 0.5
    np.testing.assert_allclose(cells[shown], expected[shown])


def test_grid_is_blank_far_from_rows(image_model, ax):
    Z = np.repeat([[-1.0, -1.0], [1.0, 1.0]], N_IMAGES // 2, axis=0)
    plot.decoded_grid(with_embedding(image_model, Z), IMAGE_SHAPE, 9, ax=ax, max_uncertainty=np.inf)
    shown = np.isfinite(cell_images(ax)).all(axis=(2, 3))
    assert shown[-1, 0]
    assert shown[0, -1]
    middle = len(shown) // 2
    assert not shown[middle, 4]
    assert not shown[0, 0]


def test_grid_is_blank_where_the_model_is_unsure(image_model, ax):
    plot.decoded_grid(image_model, IMAGE_SHAPE, 5, ax=ax, max_uncertainty=0.0)
    assert np.isnan(cell_images(ax)).all()


def test_grid_of_identical_rows(image_model, ax):
    plot.decoded_grid(with_embedding(image_model, np.zeros((N_IMAGES, 2))), IMAGE_SHAPE, 3, ax=ax)
    assert cell_images(ax).shape[1] == 2


@pytest.mark.parametrize(
    ("shape", "n", "message"), [((2, 2), 5, "6 pixels"), ((6,), 5, "pixels"), (IMAGE_SHAPE, 0, "n must")]
)
def test_grid_refuses(image_model, ax, shape, n, message):
    with pytest.raises(ValueError, match=message):
        plot.decoded_grid(image_model, shape, n, ax=ax)


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


def cell_centres(ax):
    """Return the latents of the cells of a map, row by row from the top left, and its values there."""
    values = np.asarray(ax.images[0].get_array())
    left, right, low, high = ax.images[0].get_extent()
    n_down, n_across = values.shape
    x = left + (np.arange(n_across) + 0.5) * (right - left) / n_across
    y = high - (np.arange(n_down) + 0.5) * (high - low) / n_down
    return np.array([[a, b] for b in y for a in x]), values.ravel()


def test_uncertainty_map_is_the_predictive_deviation(model, ax):
    assert plot.uncertainty_map(model, n=6, ax=ax) is ax
    Z, shown = cell_centres(ax)
    _, std = model.inverse_transform(Z, return_std=True)
    np.testing.assert_allclose(shown, np.sqrt(np.mean(std**2, axis=1)), rtol=1e-10)
    np.testing.assert_array_equal(ax.collections[-1].get_offsets(), model.embedding_)
    left, right, low, high = ax.images[0].get_extent()
    assert np.all(model.embedding_.min(axis=0) > [left, low])
    assert np.all(model.embedding_.max(axis=0) < [right, high])
    assert ax.figure.axes[1].get_ylabel() == "standard deviation, mean of columns"


@pytest.mark.parametrize("part", ["function", "noise"])
def test_uncertainty_map_of_a_part_of_one_column(counts_model, ax, part):
    named = with_attributes(counts_model, feature_names_in_=np.array(["a", "b", "c", "d"], dtype=object))
    plot.uncertainty_map(named, "c", part=part, n=3, ax=ax, rows=False)
    Z, shown = cell_centres(ax)
    decoded = counts_model.decode(Z)
    expected = {"function": decoded.weight_variance, "noise": decoded.noise_variance}[part]
    np.testing.assert_allclose(shown, np.sqrt(expected[:, 2]), rtol=1e-10)
    assert not ax.collections
    assert ax.figure.axes[1].get_ylabel() == f"standard deviation, c ({part})"


@pytest.mark.parametrize(
    ("column", "options", "message"),
    [
        (4, {}, "4 columns"),
        ("no", {}, "no column"),
        (None, {"part": "latent"}, "part"),
        (None, {"n": 0}, "n must"),
    ],
)
def test_uncertainty_map_refuses(model, ax, column, options, message):
    with pytest.raises(ValueError, match=message):
        plot.uncertainty_map(model, column, ax=ax, **options)


def analytic_magnification(model, Z):
    """Compute it for f = phi'W with sines and cosines: df/dz = W' diag(cosines, -sines) w / sqrt(L / 2)."""
    frequencies, posterior = model.frequencies_, model._posterior
    phase = Z @ frequencies.T
    slopes = np.concatenate([np.cos(phase), -np.sin(phase)], axis=1) / np.sqrt(len(frequencies))
    twice = np.concatenate([frequencies, frequencies])
    J = np.einsum("nl,lq,lm->nmq", slopes, twice, posterior.weights) * posterior.columns.scale
    return np.sqrt(np.linalg.det(J.swapaxes(1, 2) @ J))


def test_magnification_map_is_the_area_of_the_decoded_cell(model, ax):
    assert plot.magnification(model, n=6, ax=ax) is ax
    Z, shown = cell_centres(ax)
    np.testing.assert_allclose(shown, analytic_magnification(model, Z), rtol=1e-5)
    assert isinstance(ax.images[0].norm, LogNorm)


def test_magnification_of_counts_against_other_differences(counts_model):
    """The mean of a Poisson count with f ~ N(m, v) is exp(m + v / 2)."""

    def mean(Z):
        m, v = counts_model._posterior.function_moments(Z)
        return np.exp(m + v / 2.0)

    Z, h = counts_model.embedding_[:7], 1e-3
    columns = [
        (8.0 * (mean(Z + h * e) - mean(Z - h * e)) - mean(Z + 2 * h * e) + mean(Z - 2 * h * e)) / (12.0 * h)
        for e in np.eye(2)
    ]
    J = np.stack(columns, axis=-1)
    expected = np.sqrt(np.linalg.det(J.swapaxes(1, 2) @ J))
    np.testing.assert_allclose(_magnification_at(counts_model, Z, (0, 1)), expected, rtol=1e-5)


def test_a_flat_decoder_has_no_magnification(model, ax):
    flat = with_attributes(model, embedding_=np.zeros((5, 2)))
    flat.decode = lambda Z: with_attributes(model.decode(Z), mean=np.ones((len(Z), 4)))
    plot.magnification(flat, n=2, ax=ax, rows=False)
    assert not np.asarray(ax.images[0].get_array()).any()


def test_unknown_share_is_that_of_the_prior_variance(model, counts_model):
    Z = np.array([[0.0, 0.5], [300.0, -200.0]])
    share = model._posterior.unknown_share(Z)
    np.testing.assert_allclose(share, model.decode(Z).weight_variance[:, 0] / model.amplitude_)
    assert share[0] < share[1] <= 1.0
    posterior = counts_model._posterior
    expected = posterior.function_moments(Z)[1] / posterior.amplitude
    np.testing.assert_allclose(posterior.unknown_share(Z), expected.mean(axis=1))


@pytest.mark.parametrize(
    "draw",
    [
        plot.embedding,
        plot.uncertainty_map,
        plot.magnification,
        lambda model, ax: plot.decoded_grid(model, IMAGE_SHAPE, ax=ax),
    ],
)
def test_an_unfitted_model_is_refused(draw, ax):
    with pytest.raises(NotFittedError):
        draw(SRFLVM(), ax=ax)
