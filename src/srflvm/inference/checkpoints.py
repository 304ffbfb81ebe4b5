"""Checkpoints: what makes a fit that was killed end as if it had not been.

Given its seed, a fit is deterministic. Its costly parts are *segments*, runs of sweeps; they are numbered in
the order in which they are made, over all starts, subsets and attempts. Each segment is stored when it ends,
and now and then while it is under way. When the fit is started again, it is followed again from the
beginning: segments that are stored are not computed, the one that was under way goes on from its last stored
sweep, and what lies between segments is computed anew. A segment that is missing or damaged is just computed,
so no file depends on another.

A segment ended early, by a callback or by Ctrl-C, is stored as under way, and what follows it in that fit is
not stored, for a fit that is not stopped has no such segments.

A file holds everything that the next sweep needs, bit for bit: the state, Adam's memories, the best state
(only where it is another one), the bounds so far and the flags. Its header says which fit and which segment
it belongs to. Nothing is pickled.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from safetensors import SafetensorError
from sklearn.utils import check_random_state

from srflvm import bcd
from srflvm.data.reading import read_sizes
from srflvm.exceptions import warn_caller
from srflvm.inference.facts import TrainingData
from srflvm.inference.fingerprints import DATA, EARLIER_FIT, SIZES, Fingerprint, fingerprint
from srflvm.inference.params import Params
from srflvm.parallel.communicator import Communicator
from srflvm.storage.atomic import in_use, write_whole
from srflvm.storage.container import Container, TensorForms, Tensors, encode, require

FORMAT = "srflvm-checkpoint"

# What reading a file raises if it is damaged, cut short or not a checkpoint (SchemaError is a ValueError).
_UNREADABLE = (SafetensorError, ValueError, OSError)

_SUFFIX = "srflvm-checkpoint"
_NUMBERS = ("smoothed", "best", "seconds")
_CARRY, _BEST = "carry", "best"

# Plain values of a header, and their types. Files call a segment a leg, as they did from the first on.
_ENTRIES = {"leg": str, "finished": bool, "converged": bool, "n_rejected": int}


@dataclass(frozen=True)
class _Segment:
    """Hold a run as far as it got, and whether its segment ended there."""

    run: bcd.Run
    finished: bool


def _path_of(folder: Path, number: int) -> Path:
    """Return where a segment is stored."""
    return folder / f"leg-{number:04d}.{_SUFFIX}"


def _paths_in(folder: Path) -> list[Path]:
    """Return all files that are named like segments, in order."""
    return sorted(folder.glob(f"leg-*.{_SUFFIX}"))


def _encode_segment(fit: Fingerprint, label: str, segment: _Segment) -> bytes:
    """Return the content of a file."""
    run = segment.run
    header = {
        "format": FORMAT,
        "fit": fit,
        "leg": label,
        "finished": segment.finished,
        "converged": run.converged,
        "n_rejected": run.n_rejected,
    }
    tensors = {
        "history": np.array(run.history, dtype=np.float64),
        "numbers": np.array([getattr(run, name) for name in _NUMBERS], dtype=np.float64),
        **_named(_CARRY, run.carry),
    }
    if run.state is not run.carry.state:
        tensors |= _named(_BEST, run.state)
    return encode(header, tensors)


def _read_fit(path: Path) -> Fingerprint:
    """Read which fit a file belongs to."""
    fit: Any = Container.open(path).header(FORMAT).get("fit")
    sound = isinstance(fit, dict) and all(isinstance(text, str) for text in fit.values())
    require(sound, "it does not say which fit it belongs to")
    return fit


def _read_segment(path: Path, label: str, begun: bcd.Run) -> _Segment:
    """Read the segment with this label that went on from `begun`, whose arrays give names and forms."""
    container = Container.open(path)
    header = container.header(FORMAT)
    _check_header(header, label)
    has_another_best = any(name.startswith(_BEST) for name in container.tensors)
    _check_forms(container.tensors, begun, has_another_best)
    tensors = container.read(header)
    carry = _restored(_CARRY, begun.carry, tensors)
    run = bcd.Run(
        carry=carry,
        state=_restored(_BEST, begun.state, tensors) if has_another_best else carry.state,
        history=tuple(tensors["history"].tolist()),
        n_rejected=header["n_rejected"],
        converged=header["converged"],
        **dict(zip(_NUMBERS, tensors["numbers"].tolist(), strict=True)),
    )
    return _Segment(run, header["finished"])


def _check_header(header: Mapping[str, Any], label: str) -> None:
    for name, kind in _ENTRIES.items():
        require(type(header.get(name)) is kind, f"its header has {name}={header.get(name)!r}")
    require(header["n_rejected"] >= 0, f"its header has n_rejected={header['n_rejected']}")
    require(header["leg"] == label, f"it holds {header['leg']} where this fit makes {label}")


def _check_forms(tensors: TensorForms, begun: bcd.Run, has_another_best: bool) -> None:
    """Check names, shapes and types, before any number is read."""
    trees = {_CARRY: begun.carry} | ({_BEST: begun.state} if has_another_best else {})
    forms = {"numbers": np.empty(len(_NUMBERS))}
    forms |= {name: leaf for prefix, tree in trees.items() for name, leaf in _leaves(prefix, tree).items()}
    for name, form in forms.items():
        found = tensors.get(name)
        fits = found is not None and found.shape == form.shape and found.dtype == form.dtype
        require(fits, f"its {name} is not an array of shape {form.shape} and type {form.dtype}")
    require("history" in tensors, "its history is missing")
    history = tensors["history"]
    fits = len(history.shape) == 1 and history.dtype == np.float64 and history.size >= begun.n_sweeps
    require(fits, f"its history of shape {history.shape} and type {history.dtype} is not that of its sweeps")
    unknown = sorted(tensors.keys() - forms.keys() - {"history"})
    require(not unknown, f"its {', '.join(unknown)} is not known")


def _leaves(prefix: str, tree: Any) -> dict[str, Any]:
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {prefix + jax.tree_util.keystr(path): leaf for path, leaf in leaves}


def _named(prefix: str, tree: Any) -> Tensors:
    return {name: np.asarray(leaf) for name, leaf in _leaves(prefix, tree).items()}


def _restored(prefix: str, tree: Any, tensors: Tensors) -> Any:
    """Return a tree of the same form with the arrays of a file."""
    return jax.tree_util.tree_map_with_path(
        lambda path, _: jnp.array(tensors[prefix + jax.tree_util.keystr(path)]), tree
    )


# While a segment is under way there are so many seconds between writes, and so many times what a write takes:
# writing then costs at most a twentieth of the time.
SHORTEST_PAUSE = 1.0
PAUSE_PER_SECOND_OF_WRITING = 20.0

_DRAWN_SEED = "the seed that was drawn"
_SEEDS_BELOW = 2**31 - 1

Advance = Callable[[bcd.Run, int, Sequence[bcd.Callback]], bcd.Run]
Gather = Callable[[bcd.Run], bcd.Run]


class Checkpoints:
    """Store the segments of one fit in the files of a folder.

    `fit` says which fit they belong to, `stored` which there are. Of several processes only the first reads
    and writes; the others take part in what that needs.
    """

    def __init__(self, folder: Path, fit: Fingerprint, stored: Collection[Path]):
        self.folder, self.fit, self.stored = folder, fit, stored
        self._n_segments = 0
        self._ended_early = False
        self._can_write = True
        self._last_write = time.monotonic()
        self._seconds_of_writing = 0.0

    @classmethod
    def open(
        cls, params: Params, data: TrainingData, state: Any, communicator: Communicator
    ) -> tuple[Checkpoints, Any]:
        """Open the checkpoints of a fit, and return them with its seed.

        A seed that is left to chance is drawn once and stored, so that a fit started again has the same.
        """
        log_sizes = None if data.sizes is None else read_sizes(data.sizes, data.n_rows)
        own = fingerprint(params, data.source, data.choice, log_sizes, state, communicator)
        folder, stored, seed = communicator.together(lambda: _open_folder(params, own, communicator))
        return cls(folder, own, stored), seed

    def run_segment(
        self,
        label: str,
        run: bcd.Run,
        n_sweeps: int,
        advance: Advance,
        communicator: Communicator | None = None,
        gather: Gather = lambda run: run,
    ) -> bcd.Run:
        """Return the run `n_sweeps` further, as far as possible from what is stored.

        `advance(run, n_sweeps, more_callbacks)` computes it, and `gather` makes the arrays of a run whole
        where they are shared out over processes. What is returned may be whole or shared out.
        """
        communicator = communicator or Communicator()
        if communicator.from_first(self._ended_early):
            return advance(run, n_sweeps, ())
        path = _path_of(self.folder, self._n_segments)
        self._n_segments += 1
        stored = self._read(path, label, run, communicator, gather)
        if stored.finished:
            return stored.run
        n_made = stored.run.n_sweeps - run.n_sweeps
        n_left = 0 if n_made and stored.run.converged else n_sweeps - n_made
        run = advance(stored.run, n_left, [self._recorder(path, label, communicator, gather)])
        try:
            self._write(path, label, _Segment(gather(run), finished=not run.ended_early), communicator)
        except KeyboardInterrupt:
            run = replace(run, interrupted=True)
        self._ended_early = run.ended_early
        return run

    def _read(
        self, path: Path, label: str, begun: bcd.Run, communicator: Communicator, gather: Gather
    ) -> _Segment:
        """Return the segment as far as it is stored; at its beginning, if it is not."""
        found = None
        if communicator.from_first(path in self.stored):
            found = communicator.from_first(self._read_file(path, label, gather(begun), communicator))
        return found or _Segment(begun, finished=False)

    def _read_file(
        self, path: Path, label: str, begun: bcd.Run, communicator: Communicator
    ) -> _Segment | None:
        if not communicator.is_first:
            return None
        try:
            with communicator.apart():
                return _read_segment(path, label, begun)
        except _UNREADABLE as error:
            _warn_of_file(path, error)
            return None

    def _recorder(self, path: Path, label: str, communicator: Communicator, gather: Gather) -> bcd.Callback:
        def record(run: bcd.Run) -> None:
            pause = max(SHORTEST_PAUSE, PAUSE_PER_SECOND_OF_WRITING * self._seconds_of_writing)
            if communicator.from_first(time.monotonic() - self._last_write >= pause):
                self._write(path, label, _Segment(gather(run), finished=False), communicator)

        return record

    def _write(self, path: Path, label: str, segment: _Segment, communicator: Communicator) -> None:
        """Store a segment; a fit does not end because it cannot be stored."""
        if not self._can_write or not communicator.is_first:
            return
        started = time.monotonic()
        try:
            with communicator.apart():
                write_whole(path, _encode_segment(self.fit, label, segment))
        except OSError as error:
            self._can_write = False
            warn_caller(
                f"No checkpoint could be written to {self.folder} ({error}). The fit goes on without further "
                "checkpoints; what was stored before is kept."
            )
        self._last_write = time.monotonic()
        self._seconds_of_writing = self._last_write - started


def _open_folder(
    params: Params, own: Fingerprint, communicator: Communicator
) -> tuple[Path, list[Path], Any]:
    """Return the folder, its files that belong to this fit, and the seed; only the first process reads it."""
    folder, seed = Path(params.checkpoint_dir), params.random_state
    if not communicator.is_first:
        return folder, [], seed
    _make_folder(folder)
    stored = _stored_fits(folder)
    if _draws_its_seed(seed):
        drawn = [int(fit[_DRAWN_SEED]) for fit in stored.values() if _DRAWN_SEED in fit]
        seed = drawn[0] if drawn else int(check_random_state(None).randint(_SEEDS_BELOW))
        own[_DRAWN_SEED] = str(seed)
    return folder, [path for path, fit in stored.items() if _is_of_this_fit(path, fit, own)], seed


def _draws_its_seed(random_state: Any) -> bool:
    """Tell whether NumPy's global state is asked for, which a second process does not have."""
    return random_state is None or random_state is np.random


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
    """Read which fits the readable files of the folder belong to."""
    fits: dict[Path, Fingerprint] = {}
    for path in _paths_in(folder):
        try:
            fit = _read_fit(path)
            _check_drawn_seed(fit)
            fits[path] = fit
        except _UNREADABLE as error:
            _warn_of_file(path, error)
    return fits


def _check_drawn_seed(fit: Fingerprint) -> None:
    seed = fit.get(_DRAWN_SEED, "0")
    require(seed.isdecimal() and int(seed) < _SEEDS_BELOW, f"the seed that was drawn is {seed!r}")


def _is_of_this_fit(path: Path, stored: Fingerprint, own: Fingerprint) -> bool:
    """Tell whether a file can be used; one of another fit is an error, since its owner may need it."""
    found = _differences(stored, own)
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


def _differences(stored: Fingerprint, own: Fingerprint) -> list[str]:
    """Return in what two fits differ, with the texts of both unless these are mere checksums.

    What is not stored is no difference.
    """
    return [
        name if name in (DATA, SIZES, EARLIER_FIT) else f"{name} ({stored[name]} there, {value} here)"
        for name, value in own.items()
        if name in stored and stored[name] != value
    ]
