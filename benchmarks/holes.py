"""Missing entries: the images, the masks and the score of the benchmarks that use them."""

from __future__ import annotations

import numpy as np
from common import cifar_subset, data_folder

SHARES = (0.1, 0.3, 0.6)


def brendan() -> np.ndarray:
    """The Frey faces in [0, 1]: (1965, 560), frames of a video of 28 x 20 pixels."""
    return np.load(data_folder() / "brendan.npz")["Y"].astype(float) / 255


def cifar() -> np.ndarray:
    """Photographs of five classes in [0, 1]: (2000, 400), 20 x 20 grey pixels."""
    return cifar_subset(0)[0].astype(float)


DATA = {"Brendan": brendan, "CIFAR-2000": cifar}


def missing(Y: np.ndarray, share: float, seed: int = 0) -> np.ndarray:
    """A mask of Y's shape, True where an entry is missing, completely at random; the same at every call."""
    return np.random.RandomState(seed).rand(*Y.shape) < share


def with_holes(Y: np.ndarray, share: float, seed: int = 0) -> np.ndarray:
    """A copy of Y with a share of its entries NaN."""
    return np.where(missing(Y, share, seed), np.nan, Y)


def squared_error(Y: np.ndarray, filled: np.ndarray, share: float) -> float:
    """The mean squared error on the entries that `with_holes` removed."""
    holes = missing(Y, share)
    return float(np.mean((filled - Y)[holes] ** 2))
