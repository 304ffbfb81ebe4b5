"""What a fitted model answers: the methods of `SRFLVM` that need a fit and change nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from srflvm import _likelihood_choice as choosing
from srflvm import _validation as check
from srflvm._inputs import read_data
from srflvm._types import FloatArray
from srflvm.fitted import stationary_kernel, stationary_spectral_density
from srflvm.imputation import draw_filled, fill, held_out_scores
from srflvm.posing import log_sizes as estimated_sizes
from srflvm.posterior import Decoded, Posterior


class Queries(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """See `SRFLVM`."""

    amplitude_: float
    _posterior: Posterior

    def transform(self, Y: Any, return_std: bool = False, *, mask: Any = None, sizes: Any = None):
        """Embed rows, each on its own: the answer does not depend on the other rows given.

        Parameters
        ----------
        Y : array-like of shape (n, M)
            Holes are allowed, as in `fit`.
        return_std : bool, default=False
        mask, sizes
            As in `fit`.

        Returns
        -------
        Z : ndarray (n, n_components)
        Z_std : ndarray (n, n_components), if `return_std`
        """
        Y, log_sizes = self._read_rows(Y, mask, sizes)
        placed = self._posterior.place(Y, log_sizes)
        if not return_std:
            return placed.mean
        return placed.mean, np.sqrt(np.sum(placed.cholesky**2, axis=-1))

    def impute(
        self,
        Y: Any,
        *,
        return_std: bool = False,
        n_draws: int | None = None,
        mask: Any = None,
        sizes: Any = None,
        random_state: Any = None,
    ):
        """Fill the missing entries of training rows or new ones; observed entries are returned as they are.

        Parameters
        ----------
        Y : array-like of shape (n, M)
        return_std : bool, default=False
            Also the predictive standard deviation of the filled entries (0 for observed ones).
        n_draws : int, default=None
            Return this many filled copies drawn from the predictive distribution, (n_draws, n, M), for
            multiple imputation, in place of the means.
        mask, sizes
            As in `fit`.
        random_state : int, RandomState instance or None, default=None
            Seed of the draws.

        Returns
        -------
        Y_filled : ndarray (n, M), or (n_draws, n, M)
        Y_std : ndarray (n, M), if `return_std`
        """
        Y, log_sizes = self._read_rows(Y, mask, sizes)
        if n_draws is not None:
            check.check_count("n_draws", n_draws)
            return draw_filled(self._posterior, Y, log_sizes, n_draws, check_random_state(random_state))
        filled, std = fill(self._posterior, Y, log_sizes)
        return (filled, std) if return_std else filled

    def score_entries(self, Y: Any, Y_true: Any, *, mask: Any = None, sizes: Any = None) -> FloatArray:
        """Log predictive density of entries that are missing in Y and given in `Y_true`.

        Returns
        -------
        scores : ndarray (n, M)
            In nats; NaN where Y is observed or `Y_true` is not.
        """
        Y, log_sizes = self._read_rows(Y, mask, sizes)
        truth = read_data(self, Y_true, reset=False)
        if truth.shape != Y.shape:
            raise ValueError(f"Y_true has shape {truth.shape} but Y has {Y.shape}.")
        return held_out_scores(self._posterior, Y, truth, log_sizes)

    def inverse_transform(self, Z: Any, return_std: bool = False):
        """Decode latent points to rows of data.

        Parameters
        ----------
        Z : array-like of shape (n, n_components)
        return_std : bool, default=False
            Also the standard deviation of an observation there: of the function and of the noise.
            `decode` tells them apart and takes uncertain latents.

        Returns
        -------
        Y : ndarray (n, M)
        Y_std : ndarray (n, M), if `return_std`
        """
        decoded = self.decode(Z)
        return (decoded.mean, np.sqrt(decoded.variance)) if return_std else decoded.mean

    def decode(self, Z: Any, Z_std: Any = None) -> Decoded:
        """Decode latent points with latent, weight and noise variances told apart.

        Parameters
        ----------
        Z : array-like of shape (n, n_components)
        Z_std : array-like of shape (n, n_components), default=None
            Standard deviations of the latents; none means that Z is known exactly.
        """
        check_is_fitted(self)
        latents = check.check_latents(Z, self._posterior.frequencies.shape[1])
        if Z_std is None:
            return self._posterior.decode(latents)
        stds = check.check_latents(Z_std, latents.shape[1])
        if stds.shape != latents.shape or np.any(stds < 0):
            raise ValueError(f"Z_std must be non-negative and of the shape of Z, {latents.shape}.")
        return self._posterior.decode(latents, stds[:, :, None] * np.eye(latents.shape[1]))

    def sample(self, n_samples: int = 1, *, random_state: Any = None, return_latents: bool = False):
        """Draw new rows from the model: latents from their prior, one function, then noise.

        Returns
        -------
        Y : ndarray (n_samples, M)
        Z : ndarray (n_samples, n_components), if `return_latents`
        """
        check_is_fitted(self)
        check.check_count("n_samples", n_samples)
        rng = check_random_state(random_state)
        Z = rng.standard_normal((n_samples, self._posterior.frequencies.shape[1]))
        Y = self._posterior.draw(Z, rng)
        return (Y, Z) if return_latents else Y

    def score_samples(self, Y: Any, *, mask: Any = None, sizes: Any = None) -> FloatArray:
        """Log density of each row's observed entries under the fitted model, in nats.

        An importance-weighted estimate with 64 quasi-random draws around the row's embedding: in
        expectation a lower bound. It is deterministic and a row's value does not depend on the others.
        """
        rows, log_sizes = self._read_rows(Y, mask, sizes)
        return self._posterior.log_density(rows, log_sizes)

    def score(self, Y: Any, y: Any = None) -> float:
        """The mean of `score_samples`."""
        return float(np.mean(self.score_samples(Y)))

    def kernel(self, Z: Any, Z2: Any = None, *, method: str = "mixture") -> FloatArray:
        """The learned kernel between latent points, scaled by the amplitude.

        Parameters
        ----------
        Z, Z2 : array-like of shape (n, n_components), (n2, n_components)
            `Z2=None` means Z.
        method : {"mixture", "features"}, default="mixture"
            The kernel of the mixture in closed form, or its estimate by the frozen frequencies.

        Returns
        -------
        K : ndarray (n, n2)
        """
        check_is_fitted(self)
        check.check_choice("method", method, ("mixture", "features"))
        left = check.check_latents(Z, self._posterior.frequencies.shape[1])
        right = left if Z2 is None else check.check_latents(Z2, left.shape[1])
        if method == "features":
            return self.amplitude_ * self._posterior.features(left) @ self._posterior.features(right).T
        return self.amplitude_ * stationary_kernel(self, left[:, None, :] - right[None, :, :])

    def spectral_density(self, frequencies: Any) -> FloatArray:
        """The density of the learned mixture over frequencies (symmetric, integrating to one), (n,)."""
        check_is_fitted(self)
        points = check.check_latents(frequencies, self._posterior.frequencies.shape[1])
        return stationary_spectral_density(self, points)

    def save(self, path: Any) -> None:
        """Write the fitted model to one file that `srflvm.load` reads."""
        from srflvm.persistence import save

        check_is_fitted(self)
        save(self, path)  # pyright: ignore[reportArgumentType]

    def _read_rows(self, Y: Any, mask: Any, sizes: Any) -> tuple[FloatArray, FloatArray | None]:
        """Rows for a fitted model, checked, and the logarithms of their sizes."""
        check_is_fitted(self)
        values = read_data(self, Y, mask, reset=False)
        groups = [(group.likelihood, group.columns) for group in self._posterior.layout.groups]
        choosing.check_columns(groups, values, getattr(self, "feature_names_in_", None))
        return values, estimated_sizes(self, values, self._posterior.layout, sizes)
