"""Images: MNIST, CIFAR-10, Yale and Brendan Frey's faces, and the digits of scikit-learn."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from srflvm.datasets._dataset import Dataset, check_subset, images
from srflvm.datasets._folder import Source, data_folder, find, missing, read_archive
from srflvm.datasets._published import Pixels, grey, read_cifar_batch, read_idx, read_mat, shrink

Folder = str | os.PathLike[str] | None

_MNIST = Source(
    "mnist.npz",
    "train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte and t10k-labels-idx1-ubyte "
    "(plain or .gz)",
    "yann.lecun.com/exdb/mnist",
)
_CIFAR = {
    size: Source(
        f"cifar10_gray{size}.npz",
        "data_batch_1 to data_batch_5 and test_batch (for Python, or .bin)",
        "www.cs.toronto.edu/~kriz/cifar.html",
    )
    for size in (20, 32)
}
_YALE = Source("yale.npz", "Yale_32x32.mat", "www.cad.zju.edu.cn/home/dengcai/Data/FaceData.html")
_BRENDAN = Source("brendan.npz", "frey_rawface.mat", "cs.nyu.edu/~roweis/data.html")


def load_mnist(
    folder: Folder = None, *, subset: str | None = None, random_state: Any = 0, verify: bool = True
) -> Dataset:
    """The 70 000 handwritten digits of MNIST, 28 x 28, those for training first.

    Parameters
    ----------
    folder : path or None, default=None
        Where the files are; None takes the environment variable SRFLVM_DATA.
    subset : "paper" or None, default=None
        The paper's subset: 1000 images, drawn from all by `random_state`.
    random_state : int, RandomState instance or None, default=0
    verify : bool, default=True
        Compare the checksums of files with the known ones.
    """
    chosen = check_subset(subset)
    place = data_folder(folder)
    archive = read_archive(place, _MNIST, verify=verify)
    pixels, labels = (archive["Y"], archive["labels"]) if archive else _mnist_files(place, verify)
    if chosen:
        index = check_random_state(random_state).permutation(len(pixels))[:1000]
        pixels, labels = pixels[index], labels[index]
    return images(pixels, labels, "mnist", (28, 28))


def _mnist_files(folder: Path, verify: bool) -> tuple[Pixels, Pixels]:
    parts = []
    for what, dimensions in (("images", 3), ("labels", 1)):
        for part in ("train", "t10k"):
            path = find(
                folder, f"{part}-{what}-idx{dimensions}-ubyte", f"{part}-{what}.idx{dimensions}-ubyte"
            )
            if path is None:
                raise missing(folder, _MNIST)
            parts.append(read_idx(path, verify=verify))
    pixels = np.concatenate(parts[:2])
    return pixels.reshape(len(pixels), -1), np.concatenate(parts[2:])


def load_cifar10(
    folder: Folder = None, *, size: int = 20, subset: str | None = None, verify: bool = True
) -> Dataset:
    """The 60 000 photographs of CIFAR-10 in grey, those for training first.

    Parameters
    ----------
    folder : path or None, default=None
        Where the files are; None takes the environment variable SRFLVM_DATA.
    size : 20 or 32, default=20
        Height and width; 20 is the paper's for its small and for one of its large experiments.
    subset : "paper" or None, default=None
        The paper's subset: 400 images of each of five classes. Here the first 400 of classes 0 to 4, as
        the paper does not say which.
    verify : bool, default=True
        Compare the checksums of files with the known ones; batches in the binary form have none.
    """
    if size not in _CIFAR:
        raise ValueError(f"size is 20 or 32, not {size!r}.")
    chosen = check_subset(subset)
    place = data_folder(folder)
    archive = read_archive(place, _CIFAR[size], verify=verify)
    pixels, labels = (archive["Y"], archive["labels"]) if archive else _cifar_files(place, size, verify)
    if chosen:
        index = np.concatenate([np.flatnonzero(labels == label)[:400] for label in range(5)])
        pixels, labels = pixels[index], labels[index]
    return images(pixels, labels, "cifar-10" if size == 20 else "cifar-10-32", (size, size))


def _cifar_files(folder: Path, size: int, verify: bool) -> tuple[Pixels, Pixels]:
    parts, labels = [], []
    for name in (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"):
        path = find(folder, name, f"{name}.bin")
        if path is None:
            raise missing(folder, _CIFAR[size])
        colour, own_labels = read_cifar_batch(path, verify=verify)
        pixels = grey(colour)
        parts.append(pixels if size == 32 else shrink(pixels, size))
        labels.append(own_labels)
    pixels = np.concatenate(parts)
    return pixels.reshape(len(pixels), -1), np.concatenate(labels)


def load_yale(folder: Folder = None, *, verify: bool = True) -> Dataset:
    """165 photographs of the faces of 15 people, 32 x 32.

    The paper does not say how it cropped the faces, so its numbers are not those of these images.

    Parameters
    ----------
    folder : path or None, default=None
        Where the files are; None takes the environment variable SRFLVM_DATA.
    verify : bool, default=True
        Compare the checksum of the .npz file with the known one.
    """
    place = data_folder(folder)
    archive = read_archive(place, _YALE, verify=verify)
    if archive:
        return images(archive["Y"], archive["labels"], "yale", (32, 32))
    path = find(place, "Yale_32x32.mat")
    if path is None:
        raise missing(place, _YALE)
    pixels, subjects = read_mat(path, "fea", "gnd")
    upright = np.asarray(pixels, np.uint8).reshape(-1, 32, 32).transpose(0, 2, 1)  # MATLAB goes down columns
    return images(upright.reshape(len(upright), -1), np.ravel(subjects).astype(int) - 1, "yale", (32, 32))


def load_brendan(folder: Folder = None, *, verify: bool = True) -> Dataset:
    """1965 frames of a video of Brendan Frey's face, 28 x 20, in order and without labels.

    Parameters
    ----------
    folder : path or None, default=None
        Where the files are; None takes the environment variable SRFLVM_DATA.
    verify : bool, default=True
        Compare the checksum of the .npz file with the known one.
    """
    place = data_folder(folder)
    archive = read_archive(place, _BRENDAN, verify=verify)
    if archive:
        return images(archive["Y"], None, "brendan", (28, 20))
    path = find(place, "frey_rawface.mat")
    if path is None:
        raise missing(place, _BRENDAN)
    (pixels,) = read_mat(path, "ff")
    return images(np.asarray(pixels, np.uint8).T, None, "brendan", (28, 20))


def load_digits() -> Dataset:
    """The 1797 handwritten digits that come with scikit-learn, 8 x 8, in [0, 1]. Needs no files."""
    from sklearn.datasets import load_digits as bundled

    Y, labels = bundled(return_X_y=True)
    return Dataset(
        (np.asarray(Y) / 16).astype(np.float32),
        np.asarray(labels).astype(np.int64),
        "digits",
        "gaussian",
        (8, 8),
    )
