"""Folder of data files: its place, the files in it, and their checksums."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from srflvm.exceptions import DataError

VARIABLE = "SRFLVM_DATA"

# SHA-256 of the archives that the results in docs/results were measured on.
KNOWN_SUMS = {
    "brendan.npz": "13fa09c059e84d52fb56686d3957106e94ef1b4b9b31ce583b5ba46c76c8ad1f",
    "bridges.npz": "1fed0eab515fa9fee3b1faab19f4f30d85cc80b2286dea04dd4b8f2b405b1a93",
    "cifar10_gray20.npz": "ac2bb8c5af988374da8d91f0adff115d4af5f59a1bb074965814acf660635131",
    "cifar10_gray32.npz": "b448145ef2b95cb87190a2e8772af0fbb5291aa557a6cf080f1f13ea97b620bd",
    "mnist.npz": "364f13968a99b6cef132c3e4f3aec86bc2aa3639c44ff6fd569ace296c066cb0",
    "montreal.npz": "b6380e832f5add5b5e6668dfb8c199a70d6b311473c99e584bb68749b2d0a960",
    "newsgroups.npz": "029f1d33918428145fe906da25e33439e39f522be1c8b13963c6c09912af5471",
    "yale.npz": "848cb65c41a9313ccaf4300c3fff8b233bac1d50a30e55fb7b0a9ad61aef8924",
}


class Source(NamedTuple):
    """Files of one data set: the .npz archive, the publisher's files, and where these are published."""

    archive: str
    published: str
    address: str


def data_folder(folder: str | os.PathLike[str] | None) -> Path:
    """Return the folder that is given, or else that of the environment variable SRFLVM_DATA."""
    named = folder if folder is not None else os.environ.get(VARIABLE)
    if not named:
        raise FileNotFoundError(
            f"The folder of data files is not known: give the argument folder, or set {VARIABLE}."
        )
    path = Path(named)
    if not path.is_dir():
        raise FileNotFoundError(f"The folder of data files, {path}, does not exist.")
    return path


def read_archive(folder: Path, source: Source, *, verify: bool) -> dict[str, Any] | None:
    """Read the arrays of the .npz file; return None if there is no such file."""
    path = folder / source.archive
    if not path.is_file():
        return None
    if verify and source.archive in KNOWN_SUMS:
        with path.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
        check_sum(path, "SHA-256", found, KNOWN_SUMS[source.archive])
    with np.load(path, allow_pickle=False) as archive:
        return {key: archive[key] for key in archive.files}


def search_path(folder: Path) -> list[Path]:
    """Return the folders in which files are searched: the given one and those right below it."""
    return [folder, *sorted(child for child in folder.iterdir() if child.is_dir())]


def find(folder: Path, *names: str) -> Path | None:
    """Return the first of these files that exists, plain or .gz, or None."""
    for parent in search_path(folder):
        for name in names:
            for path in (parent / name, parent / f"{name}.gz"):
                if path.is_file():
                    return path
    return None


def missing_files(folder: Path, source: Source) -> FileNotFoundError:
    """Return an error that names the missing files and where they are published."""
    return FileNotFoundError(
        f"{folder} has neither {source.archive} nor {source.published}. "
        f"The data are published at {source.address}."
    )


def check_sum(path: Path, kind: str, found: str, known: str) -> None:
    """Refuse a file whose checksum differs from the known one."""
    if found != known:
        raise DataError(
            f"{path} has the {kind} sum {found}, and the known file has {known}. "
            "Fetch it again, or pass verify=False to read it as it is."
        )
