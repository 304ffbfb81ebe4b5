"""Data drawn from a Gaussian process latent variable model with known latents."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.special import expit
from sklearn.datasets import make_s_curve
from sklearn.utils import check_random_state

from srflvm._typing import FloatArray
from srflvm.likelihoods.columns import standard_name

_KINDS = ("gaussian", "bernoulli", "poisson", "negative_binomial")
_PERIOD = 4.5


class SCurve(NamedTuple):
    """Data drawn on an S-shaped manifold, with the latents and functions behind them.

    Attributes
    ----------
    Y : array (N, M)
        Observations.
    X : array (N, 2)
        Latents.
    F : array (N, M)
        Functions of the latents, before noise.
    position : array (N,)
        Distance along the S.
    """

    Y: FloatArray
    X: FloatArray
    F: FloatArray
    position: FloatArray

    def kernel(self) -> FloatArray:
        """Return the covariance of a column of F between all pairs of rows (N, N)."""
        return _kernel(self.X)


def make_s_curve_gp(
    n_samples: int = 500,
    n_features: int = 100,
    *,
    likelihood: str = "gaussian",
    noise: float = 0.1,
    dispersion: float = 10.0,
    random_state: Any = None,
) -> SCurve:
    """Draw data on the S-shaped manifold of the paper's appendix.

    Latents lie on an S in the plane, each coordinate of unit variance. Every column of F is a draw from a
    Gaussian process over them whose kernel is half radial basis function, exp(-|d|^2 / 2), and half
    periodic, exp(-2 sum_q sin^2(d_q / 4.5)), with d the difference of two latents. Y is F with noise, or
    binary with log odds F, or counts with log means F.

    Parameters
    ----------
    n_samples, n_features : int
    likelihood : {"gaussian", "bernoulli", "poisson", "negative_binomial"}, default="gaussian"
        How Y is drawn given F.
    noise : float, default=0.1
        Standard deviation of Gaussian noise; the functions have variance one.
    dispersion : float, default=10.0
        r of negative binomial counts, whose variance is mean + mean^2 / r.
    random_state : int, RandomState instance or None, default=None
    """
    kind = standard_name(likelihood)
    if kind not in _KINDS:
        listed = ", ".join(repr(known) for known in _KINDS)
        raise ValueError(f"likelihood={likelihood!r} is not known. Choose one of {listed}.")
    rng = check_random_state(random_state)
    points, position = make_s_curve(n_samples, random_state=rng)
    X = points[:, [0, 2]]
    X = X / X.std(axis=0)
    root = np.linalg.cholesky(_kernel(X) + 1e-8 * np.eye(n_samples))
    F = root @ rng.standard_normal((n_samples, n_features))
    return SCurve(_observe(F, kind, noise, dispersion, rng), X, F, position)


def _observe(
    F: FloatArray, likelihood: str, noise: float, dispersion: float, rng: np.random.RandomState
) -> FloatArray:
    """Draw Y given F."""
    if likelihood == "gaussian":
        return F + noise * rng.standard_normal(F.shape)
    if likelihood == "bernoulli":
        return (rng.uniform(size=F.shape) < expit(F)).astype(np.float64)
    mean = np.exp(F)
    if likelihood == "negative_binomial":
        mean = mean * rng.gamma(dispersion, 1.0 / dispersion, F.shape)
    return rng.poisson(mean).astype(np.float64)


def _kernel(X: FloatArray) -> FloatArray:
    """Compute the kernel matrix (N, N) behind `make_s_curve_gp`."""
    differences = X[:, None, :] - X[None, :, :]
    smooth = np.exp(-0.5 * np.sum(differences**2, axis=-1))
    periodic = np.exp(-2.0 * np.sum(np.sin(differences / _PERIOD) ** 2, axis=-1))
    return 0.5 * smooth + 0.5 * periodic
