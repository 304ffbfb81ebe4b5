"""Threads that programs run with."""

from __future__ import annotations

import numpy as np
from threadpoolctl import threadpool_info

from srflvm import SRFLVM
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
