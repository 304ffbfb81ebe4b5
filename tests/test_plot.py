import copy
import sys
import warnings

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.colors import to_hex
from sklearn.exceptions import ConvergenceWarning, NotFittedError

from srflvm import SRFLVM, plot

SHAPE = (2, 3)
N_ROWS = 60


def some_images():
    rng = np.random.RandomState(0)
    latents = rng.uniform(-1.0, 1.0, (N_ROWS, 2))
    clean = np.sin(2.0 * latents @ rng.standard_normal((2, 6)))
    return clean + 0.05 * rng.standard_normal(clean.shape)


@pytest.fixture(scope="module")
def model():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return SRFLVM(max_iter=3, random_state=0).fit(some_images())


@pytest.fixture
def ax():
    figure, ax = plt.subplots()
    yield ax
    plt.close(figure)


def with_embedding(model, Z):
    changed = copy.copy(model)
    changed.embedding_ = np.asarray(Z, dtype=float)
    return changed


def drawn_points(ax):
    return np.concatenate([np.asarray(collection.get_offsets()) for collection in ax.collections])


def cell_images(ax, shape=SHAPE):
    """(rows, columns, height, width), without the margins."""
    canvas = np.ma.filled(ax.images[0].get_array(), np.nan)
    height, width = shape[0] + 2, shape[1] + 2
    assert canvas.shape[0] % height == canvas.shape[1] % width == 0
    cells = canvas.reshape(canvas.shape[0] // height, height, -1, width).swapaxes(1, 2)
    return cells[:, :, 1:-1, 1:-1]


def test_embedding_draws_every_row_once(model, ax):
    assert plot.embedding(model, ax=ax) is ax
    np.testing.assert_array_equal(drawn_points(ax), model.embedding_)
    assert ax.get_aspect() == 1.0
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("latent 1", "latent 2")


def test_embedding_names_classes_at_their_medians(model, ax):
    labels = np.array(["cat", "dog", "owl"], dtype=object)[np.arange(N_ROWS) % 3]
    plot.embedding(model, list(labels), ax=ax)
    assert [text.get_text() for text in ax.texts] == ["cat", "dog", "owl"]
    for text in ax.texts:
        median = np.median(model.embedding_[labels == text.get_text()], axis=0)
        np.testing.assert_allclose(text.get_position(), median)
    assert len(drawn_points(ax)) == N_ROWS
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


def test_many_numbers_get_a_colour_bar(model, ax):
    plot.embedding(model, np.linspace(5.0, 9.0, N_ROWS), ax=ax)
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


def test_grid_has_the_cells_of_the_longer_side(model, ax):
    Z = np.column_stack([np.linspace(0.0, 6.0, N_ROWS), np.linspace(0.0, 2.0, N_ROWS)])
    assert plot.decoded_grid(with_embedding(model, Z), SHAPE, 4, ax=ax) is ax
    assert cell_images(ax).shape == (2, 4, *SHAPE)
    left, right, low, high = ax.images[0].get_extent()
    np.testing.assert_allclose([left, right, low, high], [0.0, 6.0, 0.0, 2.0])
    assert ax.get_aspect() == 1.0


def test_grid_shows_what_the_model_decodes(model, ax):
    plot.decoded_grid(model, SHAPE, 5, ax=ax, max_uncertainty=np.inf)
    cells = cell_images(ax)
    n_rows, n_columns = cells.shape[:2]
    left, right, low, high = ax.images[0].get_extent()
    x = left + (np.arange(n_columns) + 0.5) * (right - left) / n_columns
    y = high - (np.arange(n_rows) + 0.5) * (high - low) / n_rows
    expected = model.decode(np.array([[a, b] for b in y for a in x])).mean.reshape(cells.shape)
    shown = np.isfinite(cells)
    assert shown.mean() > 0.5
    np.testing.assert_allclose(cells[shown], expected[shown])


def test_grid_is_blank_far_from_rows(model, ax):
    Z = np.repeat([[-1.0, -1.0], [1.0, 1.0]], N_ROWS // 2, axis=0)
    plot.decoded_grid(with_embedding(model, Z), SHAPE, 9, ax=ax, max_uncertainty=np.inf)
    shown = np.isfinite(cell_images(ax)).all(axis=(2, 3))
    assert shown[-1, 0]
    assert shown[0, -1]
    middle = len(shown) // 2
    assert not shown[middle, 4]
    assert not shown[0, 0]


def test_grid_is_blank_where_the_model_is_unsure(model, ax):
    plot.decoded_grid(model, SHAPE, 5, ax=ax, max_uncertainty=0.0)
    assert np.isnan(cell_images(ax)).all()


def test_grid_of_identical_rows(model, ax):
    plot.decoded_grid(with_embedding(model, np.zeros((N_ROWS, 2))), SHAPE, 3, ax=ax)
    assert cell_images(ax).shape[1] == 2


@pytest.mark.parametrize(
    ("shape", "n", "message"), [((2, 2), 5, "6 pixels"), ((6,), 5, "pixels"), (SHAPE, 0, "n must")]
)
def test_grid_refuses(model, ax, shape, n, message):
    with pytest.raises(ValueError, match=message):
        plot.decoded_grid(model, shape, n, ax=ax)


def test_elbo_curve_is_the_history_per_entry(model, ax):
    assert plot.elbo_curve(model, ax=ax) is ax
    curve, *others = ax.lines
    np.testing.assert_array_equal(curve.get_xdata(), np.arange(1, model.n_iter_ + 1))
    np.testing.assert_allclose(np.asarray(curve.get_ydata()) * N_ROWS * 6, model.elbo_history_)
    assert curve.get_label() == f"start {model.start_}, won"
    lost = {name: bound for name, bound in model.start_elbos_.items() if name != model.start_}
    assert {line.get_label(): line.get_ydata()[0] for line in others} == {
        f"start {name}, given up": bound / (N_ROWS * 6) for name, bound in lost.items()
    }
    assert len(lost) == 1
    assert all(float(tick) == int(tick) for tick in ax.get_xticks())


def test_reconstructions_of_a_model_with_names(model, ax):
    """Pixels have no names of their own: a warning would be an error."""
    with_names = copy.copy(model)
    with_names.feature_names_in_ = np.array([f"pixel {i}" for i in range(model.n_features_in_)], dtype=object)
    plot.reconstructions(with_names, some_images()[:2], SHAPE, ax=ax)


def test_reconstructions_show_data_decoded_and_std(model, ax):
    Y = some_images()[:4]
    assert plot.reconstructions(model, Y, SHAPE, ax=ax) is ax
    data, decoded, std = cell_images(ax).reshape(3, 4, 6)
    Z, Z_std = model.transform(Y, return_std=True)
    expected = model.decode(Z, Z_std)
    np.testing.assert_allclose(data, Y)
    np.testing.assert_allclose(decoded, expected.mean)
    names = [label.get_text() for label in ax.get_yticklabels()]
    assert names[:2] == ["data", "decoded"]
    factor = int(names[2].removeprefix("std x "))
    np.testing.assert_allclose(std, factor * np.sqrt(expected.latent_variance))
    assert 0.4 * np.ptp(Y) < std.max() <= np.ptp(Y)


def test_a_figure_is_made_but_not_shown(model, monkeypatch):
    monkeypatch.setattr(plt, "show", lambda *_: pytest.fail("shown"))
    drawn = [
        plot.embedding(model),
        plot.decoded_grid(model, SHAPE, 3),
        plot.elbo_curve(model),
        plot.reconstructions(model, some_images()[:2], SHAPE),
    ]
    assert len({id(ax.figure) for ax in drawn}) == 4
    plt.close("all")


@pytest.mark.parametrize(
    "draw", [plot.embedding, plot.elbo_curve, lambda model, ax: plot.decoded_grid(model, SHAPE, ax=ax)]
)
def test_an_unfitted_model_is_refused(ax, draw):
    with pytest.raises(NotFittedError):
        draw(SRFLVM(), ax=ax)


def test_missing_matplotlib_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r"pip install 'srflvm\[plot\]'"):
        plot.embedding(np.zeros((3, 2)))
