"""Description of the machine that makes a fit."""

from __future__ import annotations

import os
import platform
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PACKAGES = ("srflvm", "jax", "jaxlib", "numpy", "scipy", "scikit-learn", "umap-learn", "hpfrec", "GPy")


@lru_cache(maxsize=1)
def machine() -> str:
    """Return the cores, the processor, and the versions of Python and of the packages.

    Sums are rounded in another order on another processor, which can lead a fit to another optimum.
    """
    found = []
    for package in PACKAGES:
        try:
            found.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            continue
    cores = f"{os.cpu_count()} cores ({_processor()}, {platform.system()})"
    return f"{cores}, Python {platform.python_version()}, {', '.join(found)}"


def _processor() -> str:
    """Return the model of the processor where Linux tells it, or else the architecture."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.machine()
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{models[0]}, {platform.machine()}" if models else platform.machine()
