"""The scopes in which JAX computes: their precision, and that they are not entered where JAX cannot work.

JAX computes with threads, and a fork copies none of them: in a forked process whose parent has used JAX, a
computation would wait for them for ever. A fork before JAX's first computation does no harm.
"""

from __future__ import annotations

import os
from contextlib import AbstractContextManager

import jax

# Can only be changed before JAX has started, which tells whether it has.
_FIXED_ONCE_STARTED = "jax_num_cpu_devices"

_is_cut_off = False


def in_float64() -> AbstractContextManager[object]:
    """Compute with float64 where it is asked for."""
    _refuse_if_cut_off()
    return jax.enable_x64(True)


def in_float32() -> AbstractContextManager[object]:
    """Compute with float32 throughout."""
    _refuse_if_cut_off()
    return jax.enable_x64(False)


def _refuse_if_cut_off() -> None:
    if _is_cut_off:
        raise RuntimeError(
            f"Process {os.getpid()} was forked from one that had already used JAX, whose threads are missing "
            'here: the computation would hang. Start processes with multiprocessing.get_context("spawn") or '
            '"forkserver", or with joblib\'s backend "loky", or fork before the first computation.'
        )


def _note_fork() -> None:
    global _is_cut_off
    _is_cut_off = _is_cut_off or _has_started()


def _has_started() -> bool:
    """Whether JAX has computed anything, or looked for devices; it starts nothing."""
    value = getattr(jax.config, _FIXED_ONCE_STARTED)
    try:
        jax.config.update(_FIXED_ONCE_STARTED, 2 if value == 1 else 1)
    except RuntimeError:
        return True
    jax.config.update(_FIXED_ONCE_STARTED, value)
    return False


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_note_fork)
