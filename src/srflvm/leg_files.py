"""One leg of a fit, a run of sweeps, to and from a file.

A file holds everything that the next sweep needs, bit for bit: the state, Adam's memories, the best state
(only where it is another one), the bounds so far and the flags. Its header says which fit and which leg it
belongs to. Nothing is pickled.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from safetensors import SafetensorError

from srflvm import bcd
from srflvm._containers import decode_header, encode, open_container
from srflvm._model_schema import Described, Tensors, require
from srflvm.fingerprints import Fingerprint

FORMAT = "srflvm-checkpoint"

# What reading a file raises if it is damaged, cut short or not a checkpoint (SchemaError is a ValueError).
UNREADABLE = (SafetensorError, ValueError, OSError)

_SUFFIX = "srflvm-checkpoint"
_NUMBERS = ("smoothed", "best", "seconds")
_CARRY, _BEST = "carry", "best"

# Plain values of a header, and their types.
_ENTRIES = {"leg": str, "finished": bool, "converged": bool, "n_rejected": int}


@dataclass(frozen=True)
class Leg:
    """A run as far as it got, and whether the leg ended there."""

    run: bcd.Run
    finished: bool


def path_of(folder: Path, number: int) -> Path:
    """Where a leg is stored."""
    return folder / f"leg-{number:04d}.{_SUFFIX}"


def paths_in(folder: Path) -> list[Path]:
    """All files that are named like legs, in order."""
    return sorted(folder.glob(f"leg-*.{_SUFFIX}"))


def encode_leg(fit: Fingerprint, label: str, leg: Leg) -> bytes:
    """The content of a file."""
    run = leg.run
    header = {
        "format": FORMAT,
        "fit": fit,
        "leg": label,
        "finished": leg.finished,
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


def read_fit(path: Path) -> Fingerprint:
    """Which fit a file belongs to."""
    fit: Any = decode_header(open_container(path).metadata, FORMAT).get("fit")
    sound = isinstance(fit, dict) and all(isinstance(text, str) for text in fit.values())
    require(sound, "it does not say which fit it belongs to")
    return fit


def read_leg(path: Path, label: str, begun: bcd.Run) -> Leg:
    """The leg with this label that went on from `begun`, whose arrays say how those of the file must be."""
    container = open_container(path)
    header = decode_header(container.metadata, FORMAT)
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
    return Leg(run, header["finished"])


def _check_header(header: Mapping[str, Any], label: str) -> None:
    for name, kind in _ENTRIES.items():
        require(type(header.get(name)) is kind, f"its header has {name}={header.get(name)!r}")
    require(header["n_rejected"] >= 0, f"its header has n_rejected={header['n_rejected']}")
    require(header["leg"] == label, f"it holds {header['leg']} where this fit makes {label}")


def _check_forms(tensors: Described, begun: bcd.Run, has_another_best: bool) -> None:
    """Names, shapes and types, before any number is read."""
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
    """A tree of the same form with the arrays of a file."""
    return jax.tree_util.tree_map_with_path(
        lambda path, _: jnp.array(tensors[prefix + jax.tree_util.keystr(path)]), tree
    )
