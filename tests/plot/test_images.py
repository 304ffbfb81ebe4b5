"""Images and their reconstructions."""

import copy

import numpy as np
import pytest
from helpers.pictures import IMAGE_SHAPE, cell_images, some_images
from sklearn.exceptions import NotFittedError

from srflvm import SRFLVM, plot
from srflvm.plot.images import ImageShape


def test_images_are_tiled_with_blank_margins():
    images = np.arange(24.0).reshape(4, 6)
    tiled = ImageShape.of_rows(IMAGE_SHAPE, 6).tile(images, 2)
    assert tiled.shape == (8, 10)
    np.testing.assert_array_equal(tiled[1:3, 6:9], images[1].reshape(2, 3))
    np.testing.assert_array_equal(tiled[5:7, 1:4], images[2].reshape(2, 3))
    assert np.isnan(tiled).sum() == tiled.size - images.size
    with pytest.raises(ValueError, match="6 pixels"):
        ImageShape.of_rows((2, 2), 6)


def test_reconstructions_of_a_model_with_names(image_model, ax):
    """Pixels have no names of their own: a warning would be an error."""
    with_names = copy.copy(image_model)
    with_names.feature_names_in_ = np.array(
        [f"pixel {i}" for i in range(image_model.n_features_in_)], dtype=object
    )
    plot.reconstructions(with_names, some_images()[:2], IMAGE_SHAPE, ax=ax)


def test_reconstructions_show_data_decoded_and_std(image_model, ax):
    Y = some_images()[:4]
    assert plot.reconstructions(image_model, Y, IMAGE_SHAPE, ax=ax) is ax
    data, decoded, std = cell_images(ax).reshape(3, 4, 6)
    Z, Z_std = image_model.transform(Y, return_std=True)
    expected = image_model.decode(Z, Z_std)
    np.testing.assert_allclose(data, Y)
    np.testing.assert_allclose(decoded, expected.mean)
    names = [label.get_text() for label in ax.get_yticklabels()]
    assert names[:2] == ["data", "decoded"]
    factor = int(names[2].removeprefix("std x "))
    np.testing.assert_allclose(std, factor * np.sqrt(expected.latent_variance))
    assert 0.4 * np.ptp(Y) < std.max() <= np.ptp(Y)


def test_an_unfitted_model_is_refused(ax):
    with pytest.raises(NotFittedError):
        plot.reconstructions(SRFLVM(), some_images(), IMAGE_SHAPE, ax=ax)
