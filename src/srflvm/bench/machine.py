"""On what fits are made."""

from __future__ import annotations

import os
import platform
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version

PACKAGES = ("srflvm", "jax", "jaxlib", "numpy", "scipy", "scikit-learn", "umap-learn", "hpfrec", "GPy")


@lru_cache(maxsize=1)
def machine() -> str:
    """Cores, Python and the versions of what is installed."""
    found = []
    for package in PACKAGES:
        try:
            found.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            continue
    cores = f"{os.cpu_count()} cores ({platform.machine()}, {platform.system()})"
    return f"{cores}, Python {platform.python_version()}, {', '.join(found)}"
