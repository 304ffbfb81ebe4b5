"""Continuous data: y_nm = f_nm + noise, with one noise variance for all columns.

The weights are integrated out in closed form (`srflvm.evidence`), so this file has nothing to compute.
"""

from __future__ import annotations


class Gaussian:
    """The Gaussian likelihood."""

    name = "gaussian"
