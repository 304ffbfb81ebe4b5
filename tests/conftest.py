import os

import jax
import pytest

os.environ.setdefault("MPLBACKEND", "Agg")


@pytest.fixture(autouse=True)
def double_precision():
    with jax.enable_x64(True):
        yield
