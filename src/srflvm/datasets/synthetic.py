"""Data drawn from a Gaussian process latent variable model with known latents."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from sklearn.datasets import make_s_curve
from sklearn.utils import check_random_state

from srflvm._types import FloatArray

_PERIOD = 4.5


class SCurve(NamedTuple):
    """Observations Y (N, M), latents X (N, 2) and the noiseless functions F (N, M)."""

    Y: FloatArray
    X: FloatArray
    F: FloatArray


def make_s_curve_gp(
    n_samples: int = 500, n_features: int = 100, *, noise: float = 0.1, random_state: Any = None
) -> SCurve:
    """The S-shaped manifold of the paper's appendix.

    Latents lie on an S in the plane, each coordinate of unit variance. Every column of F is a draw from a
    Gaussian process over them whose kernel is half radial basis function, exp(-|d|^2 / 2), and half
    periodic, exp(-2 sum_q sin^2(d_q / 4.5)), with d the difference of two latents. Y adds Gaussian noise.

    Parameters
    ----------
    n_samples, n_features : int
    noise : float, default=0.1
        Standard deviation of the noise; the functions have variance one.
    random_state : int, RandomState instance or None, default=None
    """
    rng = check_random_state(random_state)
    points, _ = make_s_curve(n_samples, random_state=rng)
    X = points[:, [0, 2]]
    X = X / X.std(axis=0)
    root = np.linalg.cholesky(s_curve_kernel(X) + 1e-8 * np.eye(n_samples))
    F = root @ rng.standard_normal((n_samples, n_features))
    return SCurve(F + noise * rng.standard_normal(F.shape), X, F)


def s_curve_kernel(X: FloatArray) -> FloatArray:
    """The kernel matrix behind `make_s_curve_gp`."""
    differences = X[:, None, :] - X[None, :, :]
    smooth = np.exp(-0.5 * np.sum(differences**2, axis=-1))
    periodic = np.exp(-2.0 * np.sum(np.sin(differences / _PERIOD) ** 2, axis=-1))
    return 0.5 * smooth + 0.5 * periodic
