"""Texts of three newsgroups from the files of their publisher, and counts of their words."""

from __future__ import annotations

import tarfile
import zlib
from pathlib import Path, PurePosixPath
from typing import Any

from srflvm.exceptions import DataError
from srflvm_bench.datasets.folder import find, search_path

ARCHIVE = "20news-bydate.tar"
PARTS = ("20news-bydate-train", "20news-bydate-test")
GROUPS = ("alt.atheism", "comp.sys.mac.hardware", "sci.med")
N_TEXTS = 2752

Key = tuple[str, str, str]  # part, group, and the name of the file


def read_texts(folder: Path) -> dict[Key, bytes]:
    """Read the texts of the three groups from the archive, or else from the folders that it unpacks to.

    The texts for training come first; then they are sorted by group and by name. The result is empty if there
    is neither the archive nor the folders.
    """
    archive = find(folder, ARCHIVE)
    texts = _read_folders(folder) if archive is None else _read_archive(archive)
    return {key: texts[key] for key in sorted(texts, key=_rank)}


def count_words(texts: list[bytes]) -> Any:
    """Count in each text the words that occur in 10 to 90 % of the texts, (N, M)."""
    from sklearn.feature_extraction.text import CountVectorizer

    shares: dict[str, Any] = {"min_df": 0.1, "max_df": 0.9}
    counted: Any = CountVectorizer(encoding="latin-1", **shares).fit_transform(texts)
    return counted.toarray()


def _rank(key: Key) -> tuple[int, str, str]:
    """Return the key by which texts are sorted."""
    part, group, name = key
    return PARTS.index(part), group, name


def _read_archive(archive: Path) -> dict[Key, bytes]:
    """Read the texts of an archive."""
    texts: dict[Key, bytes] = {}
    try:
        with tarfile.open(archive) as members:
            for member in members:
                part, group, name = ("", "", "", *PurePosixPath(member.name).parts)[-3:]
                file = members.extractfile(member) if part in PARTS and group in GROUPS else None
                if file is not None:
                    texts[part, group, name] = file.read()
    except (tarfile.TarError, OSError, EOFError, zlib.error) as error:
        reason = " ".join(str(error).split())
        raise DataError(f"{archive} cannot be read ({reason}): fetch it again.") from error
    return texts


def _read_folders(folder: Path) -> dict[Key, bytes]:
    """Read the texts of the folder itself, or of the first folder in it that has both parts."""
    for parent in search_path(folder):
        if all((parent / part).is_dir() for part in PARTS):
            return {
                (part, group, file.name): file.read_bytes()
                for part in PARTS
                for group in GROUPS
                for file in (parent / part / group).glob("[0-9]*")
            }
    return {}
