"""Images to fit, and readers of pictures that were drawn."""

import copy

import numpy as np

IMAGE_SHAPE = (2, 3)
N_IMAGES = 60


def some_images():
    rng = np.random.RandomState(0)
    latents = rng.uniform(-1.0, 1.0, (N_IMAGES, 2))
    clean = np.sin(2.0 * latents @ rng.standard_normal((2, 6)))
    return clean + 0.05 * rng.standard_normal(clean.shape)


def cell_images(ax, shape=IMAGE_SHAPE):
    """Return the images of a picture (rows, columns, height, width), without the margins."""
    canvas = np.ma.filled(ax.images[0].get_array(), np.nan)
    height, width = shape[0] + 2, shape[1] + 2
    assert canvas.shape[0] % height == canvas.shape[1] % width == 0
    cells = canvas.reshape(canvas.shape[0] // height, height, -1, width).swapaxes(1, 2)
    return cells[:, :, 1:-1, 1:-1]


def of_kind(ax, kind):
    """Return the collections of a type that were drawn."""
    return [collection for collection in ax.collections if type(collection) is kind]


def with_attributes(model, **attributes):
    """Return a copy of a model with other fitted attributes."""
    changed = copy.copy(model)
    vars(changed).update(attributes)
    return changed
