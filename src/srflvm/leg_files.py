"""One leg of a fit, a run of sweeps, to and from a file.

A file holds everything that the next sweep needs, bit for bit: the state, Adam's memories, the best state
(only where it is another one), the bounds so far and the flags. Its header says which fit and which leg it
belongs to. Nothing is pickled.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from safetensors import SafetensorError

from srflvm import bcd
from srflvm._containers import decode_header, encode, open_container
from srflvm._model_schema import Tensors, require
from srflvm.fingerprints import Fingerprint

FORMAT = "srflvm-checkpoint"

# What reading a file raises if it is damaged, cut short or not a checkpoint (SchemaError is a ValueError).
UNREADABLE = (SafetensorError, ValueError, OSError)

_SUFFIX = "srflvm-checkpoint"
_NUMBERS = ("smoothed", "best", "seconds")


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
        **_named("carry", run.carry),
    }
    if run.state is not run.carry.state:
        tensors |= _named("best", run.state)
    return encode(header, tensors)


def read_fit(path: Path) -> Fingerprint:
    """Which fit a file belongs to."""
    fit: Any = decode_header(open_container(path).metadata, FORMAT).get("fit")
    require(isinstance(fit, dict), "it does not say which fit it belongs to")
    return fit


def read_leg(path: Path, label: str, begun: bcd.Run) -> Leg:
    """The leg with this label that went on from `begun`, whose arrays say how those of the file must be."""
    container = open_container(path)
    header = decode_header(container.metadata, FORMAT)
    tensors = container.read(header)
    require(header["leg"] == label, f"it holds {header['leg']} where this fit makes {label}")
    carry = _restored("carry", begun.carry, tensors)
    has_another_best = any(name.startswith("best") for name in tensors)
    run = bcd.Run(
        carry=carry,
        state=_restored("best", begun.state, tensors) if has_another_best else carry.state,
        history=tuple(tensors["history"].tolist()),
        n_rejected=header["n_rejected"],
        converged=header["converged"],
        **dict(zip(_NUMBERS, tensors["numbers"].tolist(), strict=True)),
    )
    return Leg(run, header["finished"])


def _named(prefix: str, tree: Any) -> Tensors:
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {prefix + jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in leaves}


def _restored(prefix: str, tree: Any, tensors: Tensors) -> Any:
    def restore(path: Any, leaf: Any) -> jax.Array:
        name = prefix + jax.tree_util.keystr(path)
        found = tensors.get(name)
        fits = found is not None and found.shape == leaf.shape and found.dtype == leaf.dtype
        require(fits, f"its {name} is not an array of shape {leaf.shape} and type {leaf.dtype}")
        return jnp.array(found)

    return jax.tree_util.tree_map_with_path(restore, tree)
