import os

# Two test processes share the cores: one thread each, before anything starts a thread pool.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"
    os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"
os.environ.setdefault("MPLBACKEND", "Agg")

import jax
import pytest


@pytest.fixture(autouse=True)
def double_precision():
    with jax.enable_x64(True):
        yield
