import os
from pathlib import Path

# Two test processes share the cores: one thread each, before anything starts a thread pool. Programs run
# a few times only, so they are compiled as quickly as can be.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"
    os.environ["XLA_FLAGS"] = (
        "--xla_cpu_multi_thread_eigen=false --xla_backend_optimization_level=0 "
        "--xla_llvm_disable_expensive_passes=true"
    )
os.environ.setdefault("MPLBACKEND", "Agg")

# Test processes, and those that tests start, find what another one has compiled.
os.environ.setdefault(
    "JAX_COMPILATION_CACHE_DIR", str(Path(__file__).resolve().parents[1] / ".test-programs")
)

import jax
import pytest
from model_files import fit_briefly, some_rows


@pytest.fixture(autouse=True)
def double_precision():
    with jax.enable_x64(True):
        yield


@pytest.fixture(scope="session")
def model():
    return fit_briefly(some_rows())


@pytest.fixture(scope="session")
def saved(model, tmp_path_factory):
    """A file that tests read but do not change."""
    path = tmp_path_factory.mktemp("saved") / "model.srflvm"
    model.save(path)
    return path


@pytest.fixture
def target(tmp_path):
    return tmp_path / "model.srflvm"


@pytest.fixture
def store(tmp_path):
    """Of fits of `srflvm bench`, empty."""
    from srflvm.bench.store import Store

    opened = Store(tmp_path / "deep" / "fits.sqlite")
    yield opened
    opened.close()
