"""Loaders of images: MNIST, CIFAR-10, and the faces of Yale and of Brendan Frey."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from srflvm.datasets import Dataset
from srflvm_bench.datasets.folder import Source, data_folder, find, missing_files, read_archive
from srflvm_bench.datasets.published import Pixels, read_cifar_batch, read_idx, read_mat, shrink, to_grey

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


def _image_dataset(pixels: Pixels, labels: Any, name: str, image_shape: tuple[int, int]) -> Dataset:
    """Return a data set of pixels 0 to 255 (N, M), scaled to [0, 1]."""
    if labels is not None:
        labels = np.asarray(labels).astype(np.int64)
    return Dataset(pixels.astype(np.float32) / np.float32(255), labels, name, "gaussian", image_shape)


def _is_papers_subset(subset: str | None) -> bool:
    """Return whether the paper's subset is asked for, and refuse other names."""
    if subset not in (None, "paper"):
        raise ValueError(f'subset={subset!r} is not known. Give None for all rows, or "paper".')
    return subset == "paper"


def load_mnist(
    folder: Folder = None, *, subset: str | None = None, random_state: Any = 0, verify: bool = True
) -> Dataset:
    """Load the 70 000 handwritten digits of MNIST, 28 x 28, those for training first.

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
    in_paper = _is_papers_subset(subset)
    files = data_folder(folder)
    archive = read_archive(files, _MNIST, verify=verify)
    pixels, labels = (archive["Y"], archive["labels"]) if archive else _read_mnist(files, verify)
    if in_paper:
        index = check_random_state(random_state).permutation(len(pixels))[:1000]
        pixels, labels = pixels[index], labels[index]
    return _image_dataset(pixels, labels, "mnist", (28, 28))


def _read_mnist(folder: Path, verify: bool) -> tuple[Pixels, Pixels]:
    """Read the publisher's four files."""
    parts = []
    for what, dimensions in (("images", 3), ("labels", 1)):
        for part in ("train", "t10k"):
            path = find(
                folder, f"{part}-{what}-idx{dimensions}-ubyte", f"{part}-{what}.idx{dimensions}-ubyte"
            )
            if path is None:
                raise missing_files(folder, _MNIST)
            parts.append(read_idx(path, verify=verify))
    pixels = np.concatenate(parts[:2])
    return pixels.reshape(len(pixels), -1), np.concatenate(parts[2:])


def load_cifar10(
    folder: Folder = None, *, size: int = 20, subset: str | None = None, verify: bool = True
) -> Dataset:
    """Load the 60 000 photographs of CIFAR-10 in grey, those for training first.

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
        raise ValueError(f"size={size!r} is not known. Give 20 or 32.")
    in_paper = _is_papers_subset(subset)
    files = data_folder(folder)
    archive = read_archive(files, _CIFAR[size], verify=verify)
    pixels, labels = (archive["Y"], archive["labels"]) if archive else _read_cifar(files, size, verify)
    if in_paper:
        index = np.concatenate([np.flatnonzero(labels == label)[:400] for label in range(5)])
        pixels, labels = pixels[index], labels[index]
    return _image_dataset(pixels, labels, "cifar-10" if size == 20 else "cifar-10-32", (size, size))


def _read_cifar(folder: Path, size: int, verify: bool) -> tuple[Pixels, Pixels]:
    """Read the publisher's six batches in grey."""
    parts, labels = [], []
    for name in (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"):
        path = find(folder, name, f"{name}.bin")
        if path is None:
            raise missing_files(folder, _CIFAR[size])
        colour, own_labels = read_cifar_batch(path, verify=verify)
        pixels = to_grey(colour)
        parts.append(pixels if size == 32 else shrink(pixels, size))
        labels.append(own_labels)
    pixels = np.concatenate(parts)
    return pixels.reshape(len(pixels), -1), np.concatenate(labels)


def load_yale(folder: Folder = None, *, verify: bool = True) -> Dataset:
    """Load 165 photographs of the faces of 15 people, 32 x 32.

    The paper does not say how it cropped the faces, so its results are not comparable with those of these
    images.

    Parameters
    ----------
    folder : path or None, default=None
        Where the files are; None takes the environment variable SRFLVM_DATA.
    verify : bool, default=True
        Compare the checksum of the .npz file with the known one.
    """
    files = data_folder(folder)
    archive = read_archive(files, _YALE, verify=verify)
    if archive:
        return _image_dataset(archive["Y"], archive["labels"], "yale", (32, 32))
    path = find(files, "Yale_32x32.mat")
    if path is None:
        raise missing_files(files, _YALE)
    pixels, subjects = read_mat(path, "fea", "gnd")
    upright = np.asarray(pixels, np.uint8).reshape(-1, 32, 32).transpose(0, 2, 1)  # MATLAB goes down columns
    return _image_dataset(
        upright.reshape(len(upright), -1), np.ravel(subjects).astype(int) - 1, "yale", (32, 32)
    )


def load_brendan(folder: Folder = None, *, verify: bool = True) -> Dataset:
    """Load 1965 frames of a video of Brendan Frey's face, 28 x 20, in order and without labels.

    Parameters
    ----------
    folder : path or None, default=None
        Where the files are; None takes the environment variable SRFLVM_DATA.
    verify : bool, default=True
        Compare the checksum of the .npz file with the known one.
    """
    files = data_folder(folder)
    archive = read_archive(files, _BRENDAN, verify=verify)
    if archive:
        return _image_dataset(archive["Y"], None, "brendan", (28, 20))
    path = find(files, "frey_rawface.mat")
    if path is None:
        raise missing_files(files, _BRENDAN)
    (pixels,) = read_mat(path, "ff")
    return _image_dataset(np.asarray(pixels, np.uint8).T, None, "brendan", (28, 20))
