"""Other imputers.

Every imputer takes Y (N, M) with NaN where an entry is missing and returns Y filled. Imputers with a rank, a
penalty or a number of neighbours run at several settings and are reported at the setting with the lowest
error on the missing entries themselves: an oracle's choice, in their favour. Only chained ridge regressions
clip their output to the range of a column, because they need it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer, KNNImputer
from sklearn.linear_model import BayesianRidge

RANKS = (5, 10, 20, 30, 40, 50, 60)
BAYESIAN_RANKS = (100,)  # its prior shrinks columns that are not needed
NEIGHBOURS = (5, 10)
PENALTIES = tuple(float(ratio) for ratio in np.geomspace(0.1, 0.0003, 16))


def column_mean(Y: np.ndarray) -> np.ndarray:
    """Fill with the mean of the column's observed entries."""
    return np.where(np.isnan(Y), np.nanmean(Y, axis=0), Y)


def em_pca(
    Y: np.ndarray, rank: int, bayesian: bool = False, max_iter: int = 100, tol: float = 2e-3
) -> np.ndarray:
    """Fill with the mean of probabilistic PCA with missing entries.

    The model is y_nm = w_m · x_n + μ_m + noise of variance σ², x_n standard normal; the mean μ_m is the
    coefficient of a last entry 1 of x_n. EM maximises the exact likelihood of W, μ and σ². `bayesian` also
    gives W a posterior, factorised from that of x, and every column of W a prior precision that maximises the
    bound. Iterations stop when one changes the filled entries by less than `tol` of their size. The rank is
    limited to the number of columns less one.
    """
    rank = min(rank, Y.shape[1] - 1)
    missing = np.isnan(Y)
    seen = (~missing).astype(np.float32)
    centre = np.nanmean(Y, axis=0)
    target = np.where(missing, 0.0, Y - centre).astype(np.float32)
    W, noise = _first_loadings(target, seen, rank)
    squares, prior, fill = _squares(W), np.zeros(rank + 1), np.zeros(1)
    for _ in range(max_iter):
        X, squares_x = _scores(target, seen, W, squares, noise)
        W, squares, noise = _loadings(target, seen, X, squares_x, noise, prior, bayesian)
        if bayesian:
            prior[:rank] = len(W) / squares[:, _diagonal(rank + 1)].sum(axis=0)[:rank]
        previous, fill = fill, (X @ W.T)[missing]
        if np.sum((fill - previous) ** 2) < tol**2 * np.sum(fill**2):
            break
    X, _ = _scores(target, seen, W, squares, noise)
    return np.where(missing, centre + X @ W.T, Y)


def _first_loadings(target: np.ndarray, seen: np.ndarray, rank: int) -> tuple[np.ndarray, float]:
    """Compute first loadings (M, rank + 1), the mean last, and σ² from covariances of pairs seen together."""
    covariance = target.T @ target / np.maximum(seen.T @ seen, 1)
    values, vectors = np.linalg.eigh(covariance.astype(float))
    noise = max(float(np.mean(values[:-rank])), 1e-3 * float(np.mean(values)))
    scale = np.sqrt(np.maximum(values[-rank:] - noise, noise))
    return np.column_stack([vectors[:, -rank:] * scale, np.zeros(len(values))]), noise


def _squares(means: np.ndarray, covariances: np.ndarray | float = 0.0) -> np.ndarray:
    """Compute second moments of every row (n, K), as flat upper triangles (n, K (K + 1) / 2)."""
    i, j = np.triu_indices(means.shape[1])
    moments = means[:, :, None] * means[:, None, :] + covariances
    return moments[:, i, j]


def _full(triangles: np.ndarray, size: int) -> np.ndarray:
    """Unpack symmetric matrices (n, size, size) from flat upper triangles."""
    i, j = np.triu_indices(size)
    matrices = np.empty((len(triangles), size, size))
    matrices[:, i, j] = triangles
    matrices[:, j, i] = triangles
    return matrices


def _diagonal(size: int) -> np.ndarray:
    """Return the places of the diagonal in a flat upper triangle."""
    i, j = np.triu_indices(size)
    return np.flatnonzero(i == j)


def _scores(
    target: np.ndarray, seen: np.ndarray, W: np.ndarray, squares: np.ndarray, noise: float
) -> tuple[np.ndarray, np.ndarray]:
    """Compute the posterior of x: its means, with a last entry 1, and second moments.

    The covariance is S_n = (I + Σ_seen E[w wᵀ] / σ²)⁻¹ and the mean is S_n Σ_seen (y E[w] − E[w μ]) / σ².
    """
    rank = W.shape[1] - 1
    moments = _full(seen @ squares.astype(np.float32), rank + 1)
    pull = target @ W[:, :rank] - moments[:, :rank, rank]
    covariances = np.zeros_like(moments)
    covariances[:, :rank, :rank] = np.linalg.inv(moments[:, :rank, :rank] / noise + np.eye(rank))
    means = np.einsum("nij,nj->ni", covariances[:, :rank, :rank], pull / noise)
    X = np.column_stack([means, np.ones(len(means))])
    return X, _squares(X, covariances)


def _loadings(
    target: np.ndarray,
    seen: np.ndarray,
    X: np.ndarray,
    squares_x: np.ndarray,
    noise: float,
    prior: np.ndarray,
    bayesian: bool,
) -> tuple[np.ndarray, np.ndarray, float]:
    """Compute the loadings, with the mean last, their second moments, and σ².

    The loadings are (Σ_seen E[x xᵀ] + σ² prior)⁻¹ Σ_seen y E[x].
    """
    moments = seen.T @ squares_x.astype(np.float32)
    size = X.shape[1]
    inverse = np.linalg.inv(_full(moments, size) + noise * np.diag(prior))
    pull = target.T @ X
    W = np.einsum("mij,mj->mi", inverse, pull)
    squares = _squares(W, noise * inverse if bayesian else 0.0)
    twice = 2.0 - (np.arange(moments.shape[1])[:, None] == _diagonal(size)).any(axis=1)
    error = np.sum(target.astype(float) ** 2) - 2 * np.sum(W * pull) + np.sum(moments * squares * twice)
    return W, squares, float(error / seen.sum(dtype=float))


def soft_impute(
    Y: np.ndarray, ratios: tuple[float, ...] = PENALTIES, max_iter: int = 300, tol: float = 1e-4
) -> Iterator[np.ndarray]:
    """Fill by nuclear-norm completion, once for every penalty (descending), each from the one before.

    The columns are centred, and ½ Σ_seen (y − z)² + λ ‖Z‖_* is minimised over Z: every iteration fills the
    missing entries with Z and lowers the singular values of the result by λ. λ is `ratio` times the largest
    singular value of the data with zeros for missing entries, above which Z is zero. With F = U D Vᵀ the new
    Z is F V (1 − λ / D)₊ Vᵀ, so that an eigendecomposition of FᵀF (M, M) is enough.
    """
    missing = np.isnan(Y)
    centre = np.nanmean(Y, axis=0)
    filled = np.where(missing, 0.0, Y - centre)
    top = float(np.linalg.norm(filled, 2))
    for ratio in ratios:
        for _ in range(max_iter):
            Z = _shrunk(filled, ratio * top)
            change = np.linalg.norm((Z - filled)[missing])
            filled = np.where(missing, Z, filled)
            if change < tol * np.linalg.norm(filled[missing]):
                break
        yield np.where(missing, filled + centre, Y)


def _shrunk(F: np.ndarray, penalty: float) -> np.ndarray:
    """Lower the singular values of F by the penalty, at least to zero."""
    values, V = np.linalg.eigh(F.T @ F)
    kept = values > penalty**2
    V, factors = V[:, kept], 1.0 - penalty / np.sqrt(values[kept])
    return (F @ (V * factors)) @ V.T


def nearest_neighbours(Y: np.ndarray, k: int) -> np.ndarray:
    """Fill with the mean of the k nearest rows that have the entry, weighted by inverse distance."""
    return KNNImputer(n_neighbors=k, weights="distance").fit_transform(Y)


def chained_ridge(Y: np.ndarray, n_features: int = 100, n_rounds: int = 10) -> np.ndarray:
    """Fill by Bayesian ridge regressions of each column on others, in rounds: IterativeImputer.

    Each regression takes `n_features` columns, drawn with probabilities by absolute correlation. Filled
    entries are kept within the observed range of their column.
    """
    imputer = IterativeImputer(
        BayesianRidge(),
        max_iter=n_rounds,
        n_nearest_features=n_features,
        min_value=np.nanmin(Y, axis=0),
        max_value=np.nanmax(Y, axis=0),
        random_state=0,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return np.asarray(imputer.fit_transform(Y))


IMPUTERS: dict[str, Callable[[np.ndarray], Iterator[tuple[str, np.ndarray]]]] = {
    "mean": lambda Y: iter([("", column_mean(Y))]),
    "em-pca": lambda Y: ((f"rank {rank}", em_pca(Y, rank)) for rank in RANKS),
    "soft-impute": lambda Y: zip((f"λ {r:.4f}" for r in PENALTIES), soft_impute(Y), strict=True),
    "neighbours": lambda Y: ((f"k {k}", nearest_neighbours(Y, k)) for k in NEIGHBOURS),
    "chained-ridge": lambda Y: iter([("", chained_ridge(Y))]),
    "bayesian-pca": lambda Y: ((f"rank {rank}", em_pca(Y, rank, bayesian=True)) for rank in BAYESIAN_RANKS),
}
