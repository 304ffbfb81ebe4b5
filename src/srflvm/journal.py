"""The journal of a fit: what makes a fit that was killed end as if it had not been.

Given its seed, the course of a fit is deterministic. Its costly parts, the *legs*, are runs of sweeps; they
are numbered in the order in which they are made, over all starts, subsets and attempts. A journal stores each
leg when it ends, and now and then while it is under way. When the fit is started again, its course is
followed again from the beginning: legs that are stored are not computed, the one that was under way goes on
from its last stored sweep, and what lies between legs is computed anew. A leg that is missing or damaged is
just computed, so no file depends on another.

A leg ended early, by a callback or by Ctrl-C, is stored as under way, and what follows it in that fit is not
stored, for a fit that is not stopped has no such legs.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from sklearn.utils import check_random_state

from srflvm import bcd, leg_files, parallel
from srflvm._containers import write_whole
from srflvm._inputs import read_sizes
from srflvm._likelihood_choice import Choice
from srflvm._model_schema import require
from srflvm.fingerprints import Fingerprint, differences, draws_its_seed, fingerprint
from srflvm.leg_files import Leg
from srflvm.sources import Source
from srflvm.warning_location import warn_caller
from srflvm.whole_files import in_use

# While a leg is under way there are so many seconds between writes, and so many times what a write takes:
# writing then costs at most a twentieth of the time.
SHORTEST_PAUSE = 1.0
PAUSE_PER_SECOND_OF_WRITING = 20.0

_DRAWN_SEED = "the seed that was drawn"
_SEEDS_BELOW = 2**31 - 1

Advance = Callable[[bcd.Run, int, Sequence[bcd.Callback]], bcd.Run]
Collect = Callable[[bcd.Run], bcd.Run]


def whole(run: bcd.Run) -> bcd.Run:
    """A run whose arrays are whole already."""
    return run


class Journal(Protocol):
    """What the course of a fit asks for: `advance(run, n_sweeps, more_callbacks)`, or what it once gave.

    `collect` makes the arrays of a run whole where they are spread over processes. What a leg returns may be
    whole or spread.
    """

    def leg(
        self, label: str, run: bcd.Run, n_sweeps: int, advance: Advance, collect: Collect = whole
    ) -> bcd.Run: ...


class NoJournal:
    """Every leg is computed and none is stored."""

    def leg(
        self, label: str, run: bcd.Run, n_sweeps: int, advance: Advance, collect: Collect = whole
    ) -> bcd.Run:
        return advance(run, n_sweeps, ())


class FolderJournal:
    """Legs in the files of a folder. `fit` says which fit they belong to, `stored` which there are.

    Of several processes only the first reads and writes; the others take part in what that needs.
    """

    def __init__(self, folder: Path, fit: Fingerprint, stored: Collection[Path]):
        self.folder, self.fit, self.stored = folder, fit, stored
        self._n_legs = 0
        self._ended_early = False
        self._can_write = True
        self._last_write = time.monotonic()
        self._seconds_of_writing = 0.0

    def leg(
        self, label: str, run: bcd.Run, n_sweeps: int, advance: Advance, collect: Collect = whole
    ) -> bcd.Run:
        """The run `n_sweeps` further, as far as possible from what is stored."""
        if parallel.from_first(self._ended_early):
            return advance(run, n_sweeps, ())
        path = leg_files.path_of(self.folder, self._n_legs)
        self._n_legs += 1
        stored = self._read(path, label, run, collect)
        if stored.finished:
            return stored.run
        n_made = stored.run.n_sweeps - run.n_sweeps
        n_left = 0 if n_made and stored.run.converged else n_sweeps - n_made
        run = advance(stored.run, n_left, [self._recorder(path, label, collect)])
        try:
            self._write(path, label, Leg(collect(run), finished=not run.ended_early))
        except KeyboardInterrupt:
            run = replace(run, interrupted=True)
        self._ended_early = run.ended_early
        return run

    def _read(self, path: Path, label: str, begun: bcd.Run, collect: Collect) -> Leg:
        """The leg as far as it is stored; at its beginning, if it is not."""
        found = None
        if parallel.from_first(path in self.stored):
            found = parallel.from_first(self._read_file(path, label, collect(begun)))
        return found or Leg(begun, finished=False)

    def _read_file(self, path: Path, label: str, begun: bcd.Run) -> Leg | None:
        if not parallel.is_first():
            return None
        try:
            with parallel.apart():
                return leg_files.read_leg(path, label, begun)
        except leg_files.UNREADABLE as error:
            _warn_of_file(path, error)
            return None

    def _recorder(self, path: Path, label: str, collect: Collect) -> bcd.Callback:
        def record(run: bcd.Run) -> None:
            pause = max(SHORTEST_PAUSE, PAUSE_PER_SECOND_OF_WRITING * self._seconds_of_writing)
            if parallel.from_first(time.monotonic() - self._last_write >= pause):
                self._write(path, label, Leg(collect(run), finished=False))

        return record

    def _write(self, path: Path, label: str, leg: Leg) -> None:
        """Store a leg. A fit does not end because it cannot be stored."""
        if not self._can_write or not parallel.is_first():
            return
        started = time.monotonic()
        try:
            with parallel.apart():
                write_whole(path, leg_files.encode_leg(self.fit, label, leg))
        except OSError as error:
            self._can_write = False
            warn_caller(
                f"No checkpoint could be written to {self.folder} ({error}). The fit goes on without further "
                "checkpoints; what was stored before is kept."
            )
        self._last_write = time.monotonic()
        self._seconds_of_writing = self._last_write - started


def open_journal(
    estimator: Any, source: Source, choice: Choice, sizes: Any, state: Any
) -> tuple[Journal, np.random.RandomState]:
    """The journal that an estimator asks for, and the random numbers of the fit.

    Where the seed is left to chance it is drawn once and stored, so that a fit started again has the same.
    """
    if estimator.checkpoint_dir is None:
        return NoJournal(), parallel.from_first(check_random_state(estimator.random_state))
    log_sizes = None if sizes is None else read_sizes(sizes, source.n_rows)
    own = fingerprint(estimator, source, choice, log_sizes, state)
    folder, stored, seed = parallel.together(lambda: _open_folder(estimator, own))
    return FolderJournal(folder, own, stored), parallel.from_first(check_random_state(seed))


def _open_folder(estimator: Any, own: Fingerprint) -> tuple[Path, list[Path], Any]:
    """The folder, its files that belong to this fit, and the seed. Only the first process looks at it."""
    folder, seed = Path(estimator.checkpoint_dir), estimator.random_state
    if not parallel.is_first():
        return folder, [], seed
    _make_folder(folder)
    stored = _stored_fits(folder)
    if draws_its_seed(seed):
        drawn = [int(fit[_DRAWN_SEED]) for fit in stored.values() if _DRAWN_SEED in fit]
        seed = drawn[0] if drawn else int(check_random_state(None).randint(_SEEDS_BELOW))
        own[_DRAWN_SEED] = str(seed)
    return folder, [path for path, fit in stored.items() if _is_of_this_fit(path, fit, own)], seed


def _make_folder(folder: Path) -> None:
    """Make it if need be, and remove what a killed process may have left half written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(
            f"checkpoint_dir={str(folder)!r} cannot be made ({error}). Give a folder that can be written to."
        ) from error
    for unfinished in folder.glob(".srflvm-*.tmp"):
        if not in_use(unfinished):
            with contextlib.suppress(OSError):
                unfinished.unlink()


def _stored_fits(folder: Path) -> dict[Path, Fingerprint]:
    """Which fits the readable files of the folder belong to."""
    fits: dict[Path, Fingerprint] = {}
    for path in leg_files.paths_in(folder):
        try:
            fit = leg_files.read_fit(path)
            _check_drawn_seed(fit)
            fits[path] = fit
        except leg_files.UNREADABLE as error:
            _warn_of_file(path, error)
    return fits


def _check_drawn_seed(fit: Fingerprint) -> None:
    seed = fit.get(_DRAWN_SEED, "0")
    require(seed.isdecimal() and int(seed) < _SEEDS_BELOW, f"the seed that was drawn is {seed!r}")


def _is_of_this_fit(path: Path, stored: Fingerprint, own: Fingerprint) -> bool:
    """Whether a file can be used; one of another fit is an error, since its owner may need it."""
    found = differences(stored, own)
    if found:
        raise ValueError(
            f"checkpoint_dir={str(path.parent)!r} holds the checkpoint of another fit, which differs in "
            f"{', '.join(found)}. Give this fit a folder of its own, or delete that one if it is not needed."
        )
    missing = [name for name in own if name not in stored]
    if missing:
        _warn_of_file(path, f"of its fit it does not say {', '.join(missing)}")
    return not missing


def _warn_of_file(path: Path, error: Exception | str) -> None:
    warn_caller(
        f"The checkpoint {path} is damaged, cut short or foreign and is not used ({error}). That part of the "
        "fit is computed again."
    )
