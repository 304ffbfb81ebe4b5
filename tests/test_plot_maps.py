"""Maps over the latent plane, kernels and spectral densities."""

import copy

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.colors import LogNorm
from model_files import made_up, rows_of_each_kind
from sklearn.exceptions import NotFittedError

from srflvm import SRFLVM, plot
from srflvm.plot._images import unknown_share
from srflvm.plot._maps import magnification_at


@pytest.fixture
def ax():
    figure, ax = plt.subplots()
    yield ax
    plt.close(figure)


@pytest.fixture(scope="module")
def counts_model():
    return made_up(rows_of_each_kind()["poisson"], likelihood="poisson", size_factors=None)


def with_attributes(model, **attributes):
    changed = copy.copy(model)
    vars(changed).update(attributes)
    return changed


def cell_centres(ax):
    """Latents of the cells of a map, row by row from the top left, and its values in that order."""
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
    """With f = phi'W and phi of sines and cosines, df/dz = W' diag(cosines, -sines) w / sqrt(L / 2)."""
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
    np.testing.assert_allclose(magnification_at(counts_model, Z, (0, 1)), expected, rtol=1e-5)


def test_a_flat_decoder_has_no_magnification(model, ax):
    flat = with_attributes(model, embedding_=np.zeros((5, 2)))
    flat.decode = lambda Z: with_attributes(model.decode(Z), mean=np.ones((len(Z), 4)))
    plot.magnification(flat, n=2, ax=ax, rows=False)
    assert not np.asarray(ax.images[0].get_array()).any()


def test_unknown_share_is_that_of_the_prior_variance(model, counts_model):
    Z = np.array([[0.0, 0.5], [300.0, -200.0]])
    share = unknown_share(model, Z)
    np.testing.assert_allclose(share, model.decode(Z).weight_variance[:, 0] / model.amplitude_)
    assert share[0] < share[1] <= 1.0
    posterior = counts_model._posterior
    expected = posterior.function_moments(Z)[1] / posterior.amplitude
    np.testing.assert_allclose(unknown_share(counts_model, Z), expected.mean(axis=1))


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


@pytest.mark.parametrize(
    "draw", [plot.uncertainty_map, plot.magnification, plot.kernel, plot.spectral_density, plot.relevance]
)
def test_an_unfitted_model_is_refused(draw):
    with pytest.raises(NotFittedError):
        draw(SRFLVM())
