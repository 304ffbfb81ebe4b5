"""Data of the tables by name, and the entries that each kind of system is given."""

from __future__ import annotations

import numpy as np
from sklearn.preprocessing import StandardScaler

from srflvm._typing import FloatArray
from srflvm.datasets import Dataset, load_digits
from srflvm_bench.datasets import counts, images


def load(name: str, folder: str | None, seed: int) -> Dataset:
    """Load a data set of a table. The seed draws the images of MNIST; other data are the same for all."""
    loaders = {
        "bridges": lambda: counts.load_bridges(folder),
        "cifar-10": lambda: images.load_cifar10(folder, subset="paper"),
        "mnist": lambda: images.load_mnist(folder, subset="paper", random_state=seed),
        "montreal": lambda: counts.load_montreal(folder),
        "newsgroups": lambda: counts.load_newsgroups(folder),
        "yale": lambda: images.load_yale(folder),
        "brendan": lambda: images.load_brendan(folder),
        "cifar-10-32": lambda: images.load_cifar10(folder, size=32),
        "cifar-10-five": lambda: _five_classes(images.load_cifar10(folder)),
        "mnist-full": lambda: images.load_mnist(folder),
        "digits": lambda: load_digits().rows(np.arange(200)),
    }
    return loaders[name]()


def _five_classes(data: Dataset) -> Dataset:
    """Return all images of the first five classes.

    The paper does not name them, but on its downsampled images a system that learned nothing scores one in
    five.
    """
    return data.rows(np.flatnonzero(np.asarray(data.labels) < 5))


def view(data: Dataset, suits: str) -> FloatArray:
    """Return the entries in the form that suits a system.

    Continuous systems get columns of tables in units of their standard deviation, and images as they are.
    Count systems get images in grey values 0 to 255. Binary systems get 1 for pixels above one half and for
    counts above their column's median. Other systems get the entries as they are.
    """
    Y = np.asarray(data.Y, np.float64)
    is_image = data.image_shape is not None
    if suits == "counts":
        return np.rint(255 * Y) if is_image else Y
    if suits == "binary":
        return ((0.5 if is_image else np.median(Y, axis=0)) < Y).astype(np.float64)
    return StandardScaler().fit_transform(Y) if suits == "continuous" and not is_image else Y


def hide_entries(Y: FloatArray, share: float, seed: int = 0) -> tuple[FloatArray, np.ndarray]:
    """Set a share of the entries of Y to NaN, completely at random.

    Also returns the mask of the entries that are scored: the hidden ones, or all if the share is zero.
    """
    hidden = np.random.RandomState(seed).rand(*Y.shape) < share
    return np.where(hidden, np.nan, Y), hidden if share else np.ones_like(hidden)
