"""Scopes and compilation of JAX programs: precision, threads, and options that shorten compilation.

JAX computes with threads, and a fork copies none of them: in a forked process whose parent has used JAX, a
computation would wait for them for ever. A fork before JAX's first computation does no harm. So the
scope `in_float64`, in which everything is computed, is refused after such a fork.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from threadpoolctl import ThreadpoolController

# XLA's older code generator for the CPU, fewer passes of LLVM, and a program in one part for each core, not
# in up to 32: half the time to compile, and programs that run as fast.
_QUICK = {
    "xla_cpu_use_fusion_emitters": False,
    "xla_backend_optimization_level": 2,
    "xla_llvm_disable_expensive_passes": True,
    "xla_cpu_parallel_codegen_split_count": os.cpu_count() or 1,
}

# Programs that run a few times on so few numbers are not worth optimising.
_WITHOUT_OPTIMISATION = {"xla_backend_optimization_level": 0}
_FEW_NUMBERS = 1_000_000

# This setting can only be changed before JAX has started, which tells whether it has.
_FIXED_ONCE_STARTED = "jax_num_cpu_devices"

_is_cut_off = False


def in_float64() -> AbstractContextManager[object]:
    """Open a scope in which JAX computes with float64 where arrays are of that type."""
    _refuse_if_cut_off()
    return jax.enable_x64(True)


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Open a scope for programs with factorisations, in which BLAS has one thread.

    jaxlib calls SciPy's LAPACK, whose threads go on spinning after each call, on the cores where the
    program's own threads would do its matrix products.
    """
    with _thread_pools().limit(limits=1, user_api="blas"):
        yield


def quickly_compiled(
    function: Callable[..., Any], *, is_rare: bool = False, is_heavy: bool = False, **arguments: Any
) -> Callable[..., Any]:
    """Wrap a function in `jax.jit` when it is first called, with options that shorten compilation.

    A function that `is_rare` is called a few times in a fit. For few numbers it is compiled without
    optimisation, which takes less than half the time and is not made up for by so few calls. One that
    `is_heavy` is otherwise compiled to run fast.
    """

    @lru_cache(maxsize=2)
    def compiled(is_small: bool) -> Any:
        options = None if is_heavy and not is_small else _quick_options(is_small)
        return jax.jit(function, compiler_options=options, **arguments)

    def call(*args: Any, **kwargs: Any) -> Any:
        return compiled(is_rare and _are_few(args))(*args, **kwargs)

    return call


def _are_few(arguments: Any) -> bool:
    return sum(np.size(leaf) for leaf in jax.tree.leaves(arguments) if hasattr(leaf, "shape")) <= _FEW_NUMBERS


@lru_cache(maxsize=1)
def _thread_pools() -> ThreadpoolController:
    return ThreadpoolController()


@lru_cache(maxsize=2)
def _quick_options(is_small: bool) -> dict[str, Any] | None:
    """Return the options that XLA_FLAGS leaves open, or None where this version of XLA lacks them."""
    wanted = _QUICK | (_WITHOUT_OPTIMISATION if is_small else {})
    options = {name: value for name, value in wanted.items() if name not in os.environ.get("XLA_FLAGS", "")}
    try:
        jax.jit(partial(jnp.zeros, ()), compiler_options=options)()
    except (jax.errors.JaxRuntimeError, ValueError):
        return None
    return options


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
    """Tell whether JAX has computed anything or looked for devices, without starting it."""
    value = getattr(jax.config, _FIXED_ONCE_STARTED)
    try:
        jax.config.update(_FIXED_ONCE_STARTED, 2 if value == 1 else 1)
    except RuntimeError:
        return True
    jax.config.update(_FIXED_ONCE_STARTED, value)
    return False


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_note_fork)
