"""Texts of newsgroups as their publisher distributes them, and the words in them counted."""

from __future__ import annotations

import tarfile
import zlib
from pathlib import Path, PurePosixPath
from typing import Any

from srflvm.datasets._folder import find, places
from srflvm.exceptions import DataError

ARCHIVE = "20news-bydate.tar"
PARTS = ("20news-bydate-train", "20news-bydate-test")
GROUPS = ("alt.atheism", "comp.sys.mac.hardware", "sci.med")
N_TEXTS = 2752

Place = tuple[str, str, str]  # part, group, and the name of the file


def read_texts(folder: Path) -> dict[Place, bytes]:
    """The texts of the three groups, of the archive or else of the folders it unpacks to; those for training
    first, then by group and by name. Empty if there is neither."""
    archive = find(folder, ARCHIVE)
    texts = _in_folders(folder) if archive is None else _in_archive(archive)
    return {place: texts[place] for place in sorted(texts, key=_rank)}


def count_words(texts: list[bytes]) -> Any:
    """How often each text has each of the words that are in 10 to 90 % of the texts, (N, M)."""
    from sklearn.feature_extraction.text import CountVectorizer

    shares: dict[str, Any] = {"min_df": 0.1, "max_df": 0.9}
    counted: Any = CountVectorizer(encoding="latin-1", **shares).fit_transform(texts)
    return counted.toarray()


def _rank(place: Place) -> tuple[int, str, str]:
    part, group, name = place
    return PARTS.index(part), group, name


def _in_archive(archive: Path) -> dict[Place, bytes]:
    texts: dict[Place, bytes] = {}
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


def _in_folders(folder: Path) -> dict[Place, bytes]:
    """Of the folder itself, or of the first folder in it that has both parts."""
    for place in places(folder):
        if all((place / part).is_dir() for part in PARTS):
            return {
                (part, group, file.name): file.read_bytes()
                for part in PARTS
                for group in GROUPS
                for file in (place / part / group).glob("[0-9]*")
            }
    return {}
