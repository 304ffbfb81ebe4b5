"""Diagnostics of chains: R-hat, effective sample size, and the rotations that align their draws."""

from __future__ import annotations

import numpy as np

from srflvm._typing import FloatArray


def split_rhat(chains: FloatArray) -> float:
    """Compute split R-hat (Gelman et al., 2013) of draws (chains, n).

    Every chain is cut in two halves. With W the mean variance within the halves of length n, and B that of
    their means, R-hat is sqrt((n - 1) / n + B / W). It is one where nothing moves.
    """
    halves = _halves(chains)
    length = halves.shape[1]
    within = np.mean(np.var(halves, axis=1, ddof=1))
    between = np.var(np.mean(halves, axis=1), ddof=1)
    if within == 0.0:
        return 1.0 if between == 0.0 else np.inf
    return float(np.sqrt((length - 1.0) / length + between / within))


def effective_sample_size(chains: FloatArray) -> float:
    """Compute the effective sample size of draws (chains, n) from the halves of the chains.

    With s^2_j the autocovariance at lag j averaged over the halves, W and B as in `split_rhat` and
    V = W (n - 1) / n + B, the autocorrelation is rho_j = 1 - (W - s^2_j n / (n - 1)) / V. It is summed as in
    Geyer (1992): sums of neighbours rho_2t + rho_2t+1 are kept while positive, and made to fall.
    """
    halves = _halves(chains)
    n_halves, length = halves.shape
    within = np.mean(np.var(halves, axis=1, ddof=1))
    if within == 0.0:
        return float(halves.size)
    total = within * (length - 1.0) / length + np.var(np.mean(halves, axis=1), ddof=1)
    unbiased = _autocovariance(halves).mean(axis=0) * length / (length - 1.0)
    correlation = 1.0 - (within - unbiased) / total
    neighbours = correlation[: length // 2 * 2].reshape(-1, 2).sum(axis=1)
    neighbours = neighbours[: np.argmax(np.append(neighbours, -1.0) <= 0.0)]
    time = 2.0 * np.sum(np.minimum.accumulate(neighbours)) - 1.0
    return float(n_halves * length / max(time, 1.0 / np.log10(n_halves * length)))


def _halves(chains: FloatArray) -> FloatArray:
    """Cut (chains, n) into (2 chains, n // 2), without the first draw if n is odd."""
    half = chains.shape[1] // 2
    return chains[:, chains.shape[1] - 2 * half :].reshape(2 * len(chains), half)


def _autocovariance(rows: FloatArray) -> FloatArray:
    """Compute the autocovariance of every row at all lags by Fourier transforms.

    At lag j it is sum_i (x_i - mean) (x_(i + j) - mean) / n.
    """
    length = rows.shape[1]
    centred = rows - rows.mean(axis=1, keepdims=True)
    spectrum = np.abs(np.fft.rfft(centred, 2 * length)) ** 2
    return np.fft.irfft(spectrum, 2 * length)[:, :length] / length


def alignments(draws: FloatArray, target: FloatArray) -> FloatArray:
    """Compute orthogonal matrices (n, Q, Q) that bring each draw (n, N, Q) nearest to the target (N, Q).

    The model does not change when X and W turn together. With the singular value decomposition
    X'target = U S V', U V' is the orthogonal matrix that brings X nearest.
    """
    left, _, right = np.linalg.svd(np.einsum("dnq,np->dqp", draws, target))
    return left @ right
