"""Loaders of counts: bicycles in New York and Montreal, words in newsgroups."""

from __future__ import annotations

import datetime
import os
from pathlib import Path
from typing import Any

import numpy as np

from srflvm.datasets import Dataset
from srflvm.exceptions import DataError
from srflvm_bench.datasets import newsgroups
from srflvm_bench.datasets.folder import Source, data_folder, find, missing_files, read_archive
from srflvm_bench.datasets.published import parse_numbers, read_columns

Folder = str | os.PathLike[str] | None

_BRIDGES = Source(
    "bridges.npz",
    "bridges.csv (columns Date, Brooklyn Bridge, Manhattan Bridge, Williamsburg Bridge, Queensboro Bridge)",
    "data.cityofnewyork.us, Bicycle Counts for East River Bridges, 2017",
)
_MONTREAL = Source("montreal.npz", "comptagesvelo2015.csv", "donnees.montreal.ca, comptage velo, 2015")
_NEWSGROUPS = Source(
    "newsgroups.npz",
    "20news-bydate.tar.gz (nor the folders that it unpacks to, 20news-bydate-train and 20news-bydate-test)",
    "qwone.com/~jason/20Newsgroups",
)

_BRIDGE_NAMES = ("Brooklyn", "Manhattan", "Williamsburg", "Queensboro")
_LANES = (
    "Berri1",
    "Maisonneuve_2",
    "Maisonneuve_3",
    "Rachel / Hôtel de Ville",
    "Rachel / Papineau",
    "René-Lévesque",
    "Totem_Laurier",
    "University",
)
_LAST_DAY = datetime.date(2015, 11, 15)
_SATURDAY = 5


def _count_dataset(Y: Any, labels: Any, name: str) -> Dataset:
    """Return a data set of counts (N, M)."""
    return Dataset(
        np.asarray(Y).astype(np.float64), np.asarray(labels).astype(np.int64), name, "negative_binomial"
    )


def load_bridges(folder: Folder = None, *, verify: bool = True) -> Dataset:
    """Load bicycles a day on the four East River bridges of New York, April to October 2017: 214 x 4.

    Labels: 0 weekend, 1 weekday.

    Parameters
    ----------
    folder : path or None, default=None
        Where the files are; None takes the environment variable SRFLVM_DATA.
    verify : bool, default=True
        Compare the checksum of the .npz file with the known one.
    """
    files = data_folder(folder)
    archive = read_archive(files, _BRIDGES, verify=verify)
    if archive:
        return _count_dataset(archive["Y"], archive["labels"], "bridges")
    path = _find_table(files, _BRIDGES, "bridges.csv")
    dates, *columns = read_columns(path, "Date", *_BRIDGE_NAMES)
    weekday = [_parse_day(path, text, month_first=True).weekday() < _SATURDAY for text in dates]
    return _count_dataset(parse_numbers(path, columns), weekday, "bridges")


def load_montreal(folder: Folder = None, *, verify: bool = True) -> Dataset:
    """Load cyclists a day on eight lanes of Montreal, 1 January to 15 November 2015: 319 x 8.

    Labels: 0 winter (December to February), 1 spring, 2 summer, 3 autumn. The lanes are those without
    gaps and with at most one day of no cyclist.

    Parameters
    ----------
    folder : path or None, default=None
        Where the files are; None takes the environment variable SRFLVM_DATA.
    verify : bool, default=True
        Compare the checksum of the .npz file with the known one.
    """
    files = data_folder(folder)
    archive = read_archive(files, _MONTREAL, verify=verify)
    if archive:
        return _count_dataset(archive["Y"], archive["labels"], "montreal")
    path = _find_table(files, _MONTREAL, "comptagesvelo2015.csv")
    dates, *columns = read_columns(path, "Date", *_LANES)
    days = [_parse_day(path, text, month_first=False) for text in dates]
    kept = [index for index, day in enumerate(days) if day <= _LAST_DAY]
    seasons = [days[index].month % 12 // 3 for index in kept]
    return _count_dataset(
        parse_numbers(path, [[column[i] for i in kept] for column in columns]), seasons, "montreal"
    )


def load_newsgroups(folder: Folder = None, *, verify: bool = True) -> Dataset:
    """Load counts of 183 words in 2752 texts of three newsgroups.

    Labels: 0 alt.atheism, 1 comp.sys.mac.hardware, 2 sci.med. The words are those in 10 to 90 % of the texts.

    Parameters
    ----------
    folder : path or None, default=None
        Where the files are; None takes the environment variable SRFLVM_DATA.
    verify : bool, default=True
        Compare the checksum of the .npz file with the known one, and the number of texts in the publisher's
        files with that of all.
    """
    files = data_folder(folder)
    archive = read_archive(files, _NEWSGROUPS, verify=verify)
    if archive:
        return _count_dataset(archive["Y"], archive["labels"], "newsgroups")
    texts = newsgroups.read_texts(files)
    if not texts:
        raise missing_files(files, _NEWSGROUPS)
    if verify and len(texts) != newsgroups.N_TEXTS:
        raise DataError(
            f"{files} has {len(texts)} texts of {', '.join(newsgroups.GROUPS)}, and there are "
            f"{newsgroups.N_TEXTS}. Fetch them again, or pass verify=False to count the words of these."
        )
    labels = [newsgroups.GROUPS.index(group) for _, group, _ in texts]
    return _count_dataset(newsgroups.count_words(list(texts.values())), labels, "newsgroups")


def _find_table(folder: Path, source: Source, name: str) -> Path:
    """Return the publisher's table, or refuse a folder that lacks it."""
    path = find(folder, name)
    if path is None:
        raise missing_files(folder, source)
    return path


def _parse_day(path: Path, text: str, *, month_first: bool) -> datetime.date:
    """Parse a date such as 2017-04-01, 4/1/2017 or 1/4/2017."""
    slashed = ("%m/%d/%Y", "%m/%d/%y") if month_first else ("%d/%m/%Y", "%d/%m/%y")
    for form in ("%Y-%m-%d", *slashed):
        try:
            return datetime.datetime.strptime(text.split(" ")[0].split("T")[0], form).date()
        except ValueError:
            continue
    raise DataError(f"{path} has the date {text!r}, which is none of 2017-04-01 and {slashed[0]}.")
