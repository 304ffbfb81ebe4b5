"""The data of the tables by name, and the entries that each kind of system is given."""

from __future__ import annotations

import numpy as np
from sklearn.preprocessing import StandardScaler

from srflvm import datasets
from srflvm._types import FloatArray
from srflvm.datasets import Dataset


def load(name: str, folder: str | None, seed: int) -> Dataset:
    """A data set of a table. The seed draws the images of MNIST; the others are the same for all seeds."""
    loaders = {
        "bridges": lambda: datasets.load_bridges(folder),
        "cifar-10": lambda: datasets.load_cifar10(folder, subset="paper"),
        "mnist": lambda: datasets.load_mnist(folder, subset="paper", random_state=seed),
        "montreal": lambda: datasets.load_montreal(folder),
        "newsgroups": lambda: datasets.load_newsgroups(folder),
        "yale": lambda: datasets.load_yale(folder),
        "brendan": lambda: datasets.load_brendan(folder),
        "cifar-10-32": lambda: datasets.load_cifar10(folder, size=32),
        "cifar-10-five": lambda: _five_classes(datasets.load_cifar10(folder)),
        "mnist-full": lambda: datasets.load_mnist(folder),
        "digits": lambda: datasets.load_digits().rows(np.arange(200)),
    }
    return loaders[name]()


def _five_classes(data: Dataset) -> Dataset:
    """All images of the first five classes. The paper does not say so, but on its downsampled images a system
    that learned nothing scores one in five."""
    return data.rows(np.flatnonzero(np.asarray(data.labels) < 5))


def view(data: Dataset, suits: str) -> FloatArray:
    """The entries for a system: as they are; for continuous ones, columns of tables in units of their
    standard deviation; for counts, images in grey values 0 to 255; for binary systems, pixels above one half,
    and counts above their column's median."""
    Y = np.asarray(data.Y, np.float64)
    is_image = data.image_shape is not None
    if suits == "counts":
        return np.rint(255 * Y) if is_image else Y
    if suits == "binary":
        return ((0.5 if is_image else np.median(Y, axis=0)) < Y).astype(np.float64)
    return StandardScaler().fit_transform(Y) if suits == "continuous" and not is_image else Y


def with_holes(Y: FloatArray, share: float, seed: int = 0) -> tuple[FloatArray, np.ndarray]:
    """Y with a share of its entries NaN, completely at random, and the mask of what is scored: these
    entries, or all if none is missing."""
    holes = np.random.RandomState(seed).rand(*Y.shape) < share
    return np.where(holes, np.nan, Y), holes if share else np.ones_like(holes)
