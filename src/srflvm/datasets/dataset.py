"""Rows with their labels, and the handwritten digits of scikit-learn."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from srflvm._typing import FloatArray


class Dataset(NamedTuple):
    """Rows with their labels.

    Attributes
    ----------
    Y : array (N, M)
        Images in [0, 1], float32; counts as they are, float64.
    labels : array (N,) of int, or None
    name : str
    likelihood : str
        The value of `likelihood` that suits Y.
    image_shape : (height, width), or None
        For images: `Y[n].reshape(image_shape)` is upright.
    """

    Y: FloatArray
    labels: npt.NDArray[np.integer[Any]] | None
    name: str
    likelihood: str
    image_shape: tuple[int, int] | None = None

    def rows(self, index: npt.NDArray[np.integer[Any]]) -> Dataset:
        """Return the rows of `index`, in its order."""
        labels = None if self.labels is None else self.labels[index]
        return self._replace(Y=self.Y[index], labels=labels)


def load_digits() -> Dataset:
    """Load the 1797 handwritten digits that come with scikit-learn, 8 x 8, in [0, 1]. Needs no files."""
    from sklearn.datasets import load_digits as bundled

    Y, labels = bundled(return_X_y=True)
    return Dataset(
        (np.asarray(Y) / 16).astype(np.float32),
        np.asarray(labels).astype(np.int64),
        "digits",
        "gaussian",
        (8, 8),
    )
