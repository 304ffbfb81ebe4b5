"""Counts: bicycles in New York and Montreal, words in newsgroups."""

from __future__ import annotations

import datetime
import os
from pathlib import Path

from srflvm.datasets import _newsgroups
from srflvm.datasets._dataset import Dataset, counts
from srflvm.datasets._folder import Source, data_folder, find, missing, read_archive
from srflvm.datasets._published import read_columns, whole_numbers
from srflvm.exceptions import DataError

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


def load_bridges(folder: Folder = None, *, verify: bool = True) -> Dataset:
    """Bicycles a day on the four East River bridges of New York, April to October 2017: 214 x 4.

    Labels: 0 weekend, 1 weekday.

    Parameters
    ----------
    folder : path or None, default=None
        Where the files are; None takes the environment variable SRFLVM_DATA.
    verify : bool, default=True
        Compare the checksum of the .npz file with the known one.
    """
    place = data_folder(folder)
    archive = read_archive(place, _BRIDGES, verify=verify)
    if archive:
        return counts(archive["Y"], archive["labels"], "bridges")
    path = _published_table(place, _BRIDGES, "bridges.csv")
    dates, *columns = read_columns(path, "Date", *_BRIDGE_NAMES)
    weekday = [_day(path, text, month_first=True).weekday() < _SATURDAY for text in dates]
    return counts(whole_numbers(path, columns), weekday, "bridges")


def load_montreal(folder: Folder = None, *, verify: bool = True) -> Dataset:
    """Cyclists a day on eight lanes of Montreal, 1 January to 15 November 2015: 319 x 8.

    Labels: 0 winter (December to February), 1 spring, 2 summer, 3 autumn. The lanes are those without
    gaps and with at most one day of no cyclist.

    Parameters
    ----------
    folder : path or None, default=None
        Where the files are; None takes the environment variable SRFLVM_DATA.
    verify : bool, default=True
        Compare the checksum of the .npz file with the known one.
    """
    place = data_folder(folder)
    archive = read_archive(place, _MONTREAL, verify=verify)
    if archive:
        return counts(archive["Y"], archive["labels"], "montreal")
    path = _published_table(place, _MONTREAL, "comptagesvelo2015.csv")
    dates, *columns = read_columns(path, "Date", *_LANES)
    days = [_day(path, text, month_first=False) for text in dates]
    kept = [index for index, day in enumerate(days) if day <= _LAST_DAY]
    seasons = [days[index].month % 12 // 3 for index in kept]
    return counts(whole_numbers(path, [[column[i] for i in kept] for column in columns]), seasons, "montreal")


def load_newsgroups(folder: Folder = None, *, verify: bool = True) -> Dataset:
    """Counts of 183 words in 2752 texts of three newsgroups.

    Labels: 0 alt.atheism, 1 comp.sys.mac.hardware, 2 sci.med. The words are those in 10 to 90 % of the texts.

    Parameters
    ----------
    folder : path or None, default=None
        Where the files are; None takes the environment variable SRFLVM_DATA.
    verify : bool, default=True
        Compare the checksum of the .npz file with the known one, and the number of texts in the publisher's
        files with that of all.
    """
    place = data_folder(folder)
    archive = read_archive(place, _NEWSGROUPS, verify=verify)
    if archive:
        return counts(archive["Y"], archive["labels"], "newsgroups")
    texts = _newsgroups.read_texts(place)
    if not texts:
        raise missing(place, _NEWSGROUPS)
    if verify and len(texts) != _newsgroups.N_TEXTS:
        raise DataError(
            f"{place} has {len(texts)} texts of {', '.join(_newsgroups.GROUPS)}, and there are "
            f"{_newsgroups.N_TEXTS}. Fetch them again, or pass verify=False to count the words of these."
        )
    labels = [_newsgroups.GROUPS.index(group) for _, group, _ in texts]
    return counts(_newsgroups.count_words(list(texts.values())), labels, "newsgroups")


def _published_table(folder: Path, source: Source, name: str) -> Path:
    path = find(folder, name)
    if path is None:
        raise missing(folder, source)
    return path


def _day(path: Path, text: str, *, month_first: bool) -> datetime.date:
    slashed = ("%m/%d/%Y", "%m/%d/%y") if month_first else ("%d/%m/%Y", "%d/%m/%y")
    for form in ("%Y-%m-%d", *slashed):
        try:
            return datetime.datetime.strptime(text.split(" ")[0].split("T")[0], form).date()
        except ValueError:
            continue
    raise DataError(f"{path} has the date {text!r}, which is none of 2017-04-01 and {slashed[0]}.")
