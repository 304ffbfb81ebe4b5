"""Compilation of the long programs, whose time small data would otherwise spend mostly waiting for, and the
threads that must not stand in their way."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
from threadpoolctl import ThreadpoolController

# XLA's older code generator for the CPU, and fewer passes of LLVM: half the time to compile, and programs
# that run as fast.
_QUICK = {"xla_cpu_use_fusion_emitters": False, "xla_backend_optimization_level": 2}


def quickly_compiled(function: Callable[..., Any], **arguments: Any) -> Callable[..., Any]:
    """`jax.jit` of the function, made when it is first called, with options that shorten compilation."""

    @lru_cache(maxsize=1)
    def compiled() -> Any:
        return jax.jit(function, compiler_options=_quick_options(), **arguments)

    def call(*args: Any, **kwargs: Any) -> Any:
        return compiled()(*args, **kwargs)

    return call


@lru_cache(maxsize=1)
def _quick_options() -> dict[str, Any] | None:
    """The options that XLA_FLAGS leaves open, or none where this version of XLA does not know them."""
    options = {name: value for name, value in _QUICK.items() if name not in os.environ.get("XLA_FLAGS", "")}
    try:
        jax.jit(partial(jnp.zeros, ()), compiler_options=options)()
    except (jax.errors.JaxRuntimeError, ValueError):
        return None
    return options


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """What programs with factorisations run under: jaxlib calls SciPy's LAPACK, whose threads go on spinning
    after each call, on the cores where the program's own threads would do its matrix products."""
    with _thread_pools().limit(limits=1, user_api="blas"):
        yield


@lru_cache(maxsize=1)
def _thread_pools() -> ThreadpoolController:
    return ThreadpoolController()
