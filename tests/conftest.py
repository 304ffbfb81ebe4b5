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

import hypothesis
import jax
import pytest

# The same examples in every run, without a limit of time that a busy machine would miss, and no files.
hypothesis.settings.register_profile("repeatable", derandomize=True, deadline=None, database=None)
hypothesis.settings.load_profile("repeatable")

_TESTS = Path(__file__).parent

# Linux allows a process 65 530 memory maps; a compiled program takes several.
_MOST_MEMORY_MAPS = 20_000


def pytest_collection_modifyitems(items):
    """Mark the tests that `tools/slow_tests.py` has measured as slow."""
    slow = set((_TESTS / "slow.txt").read_text().split())
    for item in items:
        name = getattr(item, "originalname", item.name)
        if f"{item.path.relative_to(_TESTS).as_posix()}::{name}" in slow:
            item.add_marker(pytest.mark.slow)


@pytest.fixture(autouse=True, scope="module")
def few_compiled_programs():
    """Forget compiled programs before they use up the memory maps of the process, which would end it."""
    yield
    maps = Path("/proc/self/maps")
    if maps.exists() and maps.read_text().count("\n") > _MOST_MEMORY_MAPS:
        jax.clear_caches()


@pytest.fixture(autouse=True)
def double_precision():
    with jax.enable_x64(True):
        yield


@pytest.fixture(scope="session")
def model():
    from helpers.model_files import fit_briefly, some_rows

    return fit_briefly(some_rows())


@pytest.fixture(scope="session")
def saved(model, tmp_path_factory):
    """Return a file that tests read but do not change."""
    path = tmp_path_factory.mktemp("saved") / "model.srflvm"
    model.save(path)
    return path


@pytest.fixture
def target(tmp_path):
    return tmp_path / "model.srflvm"


@pytest.fixture
def store(tmp_path):
    """Open an empty store of fits of `srflvm bench`."""
    from srflvm_bench.store import Store

    opened = Store(tmp_path / "deep" / "fits.sqlite")
    yield opened
    opened.close()
