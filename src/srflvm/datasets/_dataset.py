"""What a loader returns."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from srflvm._types import FloatArray


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
        """The rows of `index`, in its order."""
        labels = None if self.labels is None else self.labels[index]
        return self._replace(Y=self.Y[index], labels=labels)


def images(
    pixels: npt.NDArray[np.uint8], labels: Any, name: str, image_shape: tuple[int, int] | None
) -> Dataset:
    """A data set of pixels 0 to 255 (N, M), scaled to [0, 1]."""
    if labels is not None:
        labels = np.asarray(labels).astype(np.int64)
    return Dataset(pixels.astype(np.float32) / np.float32(255), labels, name, "gaussian", image_shape)


def counts(Y: Any, labels: Any, name: str) -> Dataset:
    """A data set of counts (N, M)."""
    return Dataset(
        np.asarray(Y).astype(np.float64), np.asarray(labels).astype(np.int64), name, "negative_binomial"
    )


def check_subset(subset: str | None) -> bool:
    """Whether the paper's subset is asked for."""
    if subset not in (None, "paper"):
        raise ValueError(f'subset is None (all rows) or "paper", not {subset!r}.')
    return subset == "paper"
