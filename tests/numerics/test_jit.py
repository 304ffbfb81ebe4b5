"""Threads that programs run with, and what is compiled."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from threadpoolctl import threadpool_info

from srflvm import SRFLVM
from srflvm.numerics import jit
from srflvm.numerics.jit import one_blas_thread


def _blas_threads() -> list[int]:
    return [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]


def test_one_blas_thread_is_given_back():
    before = _blas_threads()
    with one_blas_thread():
        assert set(_blas_threads()) == {1}
    assert _blas_threads() == before


def test_sweeps_run_with_one_blas_thread():
    before, during = _blas_threads(), []
    Y = np.random.RandomState(0).standard_normal((30, 4))
    model = SRFLVM(n_frequencies=3, max_iter=2, tol=0, random_state=0)
    model.set_params(callbacks=[lambda progress: during.append(set(_blas_threads()))])
    model.fit(Y)
    assert during
    assert all(threads == {1} for threads in during)
    assert _blas_threads() == before


def test_programs_of_few_numbers_that_run_rarely_are_not_optimised_and_compute_the_same(monkeypatch):
    monkeypatch.setattr(jit, "_FEW_NUMBERS", 10)
    asked = []
    options = jit._quick_options
    monkeypatch.setattr(jit, "_quick_options", lambda is_small: asked.append(is_small) or options(is_small))
    rare = jit.quickly_compiled(lambda x: jnp.sum(jnp.sin(x)), is_rare=True)
    for size in (5, 50, 5):
        x = np.arange(float(size))
        np.testing.assert_allclose(rare(x), np.sum(np.sin(x)), rtol=1e-13)
    assert asked == [True, False]
    heavy = jit.quickly_compiled(lambda x: 2.0 * x, is_rare=True, is_heavy=True)
    assert heavy(np.ones(50)).shape == (50,)
    assert asked == [True, False]


def test_a_fit_compiles_few_programs_and_a_second_one_of_the_same_shape_none():
    compiled = []

    def note(event: str, duration_secs: float, **facts) -> None:
        if event == "/jax/core/compile/backend_compile_duration":
            compiled.append(facts.get("fun_name"))

    jax.monitoring.register_event_duration_secs_listener(note)
    try:
        Y = np.random.RandomState(0).poisson(5.0, (31, 3)).astype(float)
        model = SRFLVM(likelihood="negative_binomial", n_frequencies=3, max_iter=2, tol=0, random_state=0)
        model.fit(Y)
        assert len(compiled) <= 16, sorted(compiled)
        compiled.clear()
        model.fit(Y)
        assert compiled == []
    finally:
        jax.monitoring.unregister_event_duration_listener(note)
