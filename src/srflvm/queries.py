"""What a fitted model answers: the methods of `SRFLVM` that need a fit and change nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from srflvm import _entry_checks as entry
from srflvm import _likelihood_choice as choosing
from srflvm import _validation as check
from srflvm._inputs import read_sizes, read_source
from srflvm._types import FloatArray
from srflvm.blocks import cholesky_factor
from srflvm.draws import as_dataset, draw_rows
from srflvm.fitted import stationary_kernel, stationary_spectral_density
from srflvm.imputation import draw_filled, fill, held_out_scores
from srflvm.posing import log_sizes as estimated_sizes
from srflvm.posing import refuse_sizes
from srflvm.posterior import Decoded, Posterior
from srflvm.sources import Source, pieces

# From where some rows of Y are, their entries and the logarithms of their sizes: arrays with a row for each.
Answer = Callable[[slice, FloatArray, FloatArray | None], tuple[FloatArray, ...]]


class Queries(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """See `SRFLVM`."""

    amplitude_: float
    _posterior: Posterior
    _state: Any

    def transform(self, Y: Any, return_std: bool = False, *, mask: Any = None, sizes: Any = None):
        """Embed rows, each on its own: the answer does not depend on the other rows given.

        Parameters
        ----------
        Y : array-like, sparse matrix or path, of shape (n, M)
            Holes are allowed in all of them; otherwise as in `fit`.
        return_std : bool, default=False
        mask, sizes
            As in `fit`.

        Returns
        -------
        Z : ndarray (n, n_components)
        Z_std : ndarray (n, n_components), if `return_std`
        """

        def place(rows: slice, values: FloatArray, log_sizes: FloatArray | None) -> tuple[FloatArray, ...]:
            placed = self._posterior.place(values, log_sizes)
            return placed.mean, np.sqrt(np.sum(placed.cholesky**2, axis=-1))

        mean, std = self._by_pieces(place, self._read(Y, mask), sizes)
        return (mean, std) if return_std else mean

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
        Y : array-like, sparse matrix or path, of shape (n, M)
            What is returned is dense.
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
        source = self._read(Y, mask)
        if n_draws is not None:
            check.check_count("n_draws", n_draws)
            if return_std:
                raise ValueError("return_std goes with means, not with draws: the copies' spread is the std.")
            # one function for all rows of a copy, so they are drawn together
            values, log_sizes = self._checked_rows(
                slice(0, source.n_rows), source.read(0, source.n_rows), sizes
            )
            return draw_filled(self._posterior, values, log_sizes, n_draws, check_random_state(random_state))

        def filled_rows(
            rows: slice, values: FloatArray, log_sizes: FloatArray | None
        ) -> tuple[FloatArray, ...]:
            return fill(self._posterior, values, log_sizes)[: 2 if return_std else 1]

        filled = self._by_pieces(filled_rows, source, sizes)
        return filled if return_std else filled[0]

    def score_entries(self, Y: Any, Y_true: Any, *, mask: Any = None, sizes: Any = None) -> FloatArray:
        """Log predictive density of entries that are missing in Y and given in `Y_true`.

        Returns
        -------
        scores : ndarray (n, M)
            In nats; NaN where Y is observed or `Y_true` is not.
        """
        source = self._read(Y, mask)
        with entry.empty_rows_are_known():
            truth = read_source(self, Y_true, reset=False)
        if truth.n_rows != source.n_rows:
            raise ValueError(
                f"Y_true has shape ({truth.n_rows}, {truth.n_columns}) but Y has "
                f"({source.n_rows}, {source.n_columns})."
            )

        def score(rows: slice, values: FloatArray, log_sizes: FloatArray | None) -> tuple[FloatArray, ...]:
            with entry.empty_rows_are_known():
                true_values = truth.read(rows.start, rows.stop)
            self._check_entries(rows, true_values)
            return (held_out_scores(self._posterior, values, true_values, log_sizes),)

        return self._by_pieces(score, source, sizes)[0]

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
        latents, cholesky = self._points(Z, Z_std)
        return self._posterior.decode(latents, cholesky)

    def category_probabilities(self, Z: Any, Z_std: Any = None) -> dict[Any, FloatArray]:
        """Probabilities of the codes of categorical columns at latent points.

        Parameters
        ----------
        Z, Z_std
            As in `decode`. For rows of data: `category_probabilities(*transform(Y, return_std=True))`.

        Returns
        -------
        dict
            From the name of each categorical column, or its index if columns have no names, to an array
            (n, C) with a probability for each code 0, ..., C - 1.
        """
        latents, cholesky = self._points(Z, Z_std)
        tables = self._posterior.category_probabilities(latents, cholesky)
        names = getattr(self, "feature_names_in_", None)
        return {column if names is None else str(names[column]): table for column, table in tables.items()}

    def sample(
        self,
        n_samples: int = 1,
        *,
        latents: str = "rows",
        sizes: Any = None,
        random_state: Any = None,
        return_latents: bool = False,
    ):
        """Draw new rows from the predictive distribution, each independent of the others.

        Parameters
        ----------
        n_samples : int, default=1
        latents : {"rows", "prior"}, default="rows"
            Where latents come from. "rows" draws each from the posterior of a training row picked at random,
            so that rows are like the data. "prior" draws them from N(0, I), as the model is written down;
            training rows may be spread otherwise.
        sizes : float or array of shape (n_samples,), default=None
            Size factors of the rows, for counts. None takes those of training rows: of the rows that the
            latents are from, or of rows picked at random.
        random_state : int, RandomState instance or None, default=None
            Seed of the draws.
        return_latents : bool, default=False

        Returns
        -------
        Y : ndarray (n_samples, M)
        Z : ndarray (n_samples, n_components), if `return_latents`
        """
        check_is_fitted(self)
        check.check_count("n_samples", n_samples)
        check.check_choice("latents", latents, ("rows", "prior"))
        rng = check_random_state(random_state)
        rows = rng.randint(len(self._state["latent_mean"]), size=n_samples)
        Z = rng.standard_normal((n_samples, self._posterior.frequencies.shape[1]))
        if latents == "rows":
            mean, factor = (
                self._state[name][rows].astype(float) for name in ("latent_mean", "latent_factor")
            )
            Z = mean + np.einsum("nqr,nr->nq", cholesky_factor(factor), Z)
        Y = self._posterior.draw_independently(Z, rng, self._sizes_to_draw(sizes, rows))
        return (Y, Z) if return_latents else Y

    def _sizes_to_draw(self, sizes: Any, rows: np.ndarray) -> FloatArray | None:
        """Return logarithms of sizes: those given, or those of the training rows."""
        if sizes is not None:
            if len(self._posterior.layout.count_columns) == 0:
                refuse_sizes(self, sizes)
            return read_sizes(np.full(len(rows), sizes) if np.ndim(sizes) == 0 else sizes, len(rows))
        own = getattr(self, "size_factors_", None)
        return None if own is None else np.log(own[rows])

    def to_xarray(
        self, Y: Any, n_draws: int = 100, *, mask: Any = None, sizes: Any = None, random_state: Any = None
    ) -> Any:
        """Draws from the posterior of rows, as an xarray data set with the dimensions that ArviZ expects.

        Parameters
        ----------
        Y : array-like of shape (n, M)
            Training rows or new ones.
        n_draws : int, default=100
        mask, sizes
            As in `fit`.
        random_state : int, RandomState instance or None, default=None
            Seed of the draws.

        Returns
        -------
        xarray.Dataset
            `latent` (chain, draw, row, component), and `observation` (chain, draw, row, column): rows that
            might have been seen there, for posterior predictive checks. There is one chain.
        """
        source = self._read(Y, mask)
        check.check_count("n_draws", n_draws)
        values, log_sizes = self._checked_rows(slice(0, source.n_rows), source.read(0, source.n_rows), sizes)
        rng = check_random_state(random_state)
        latents, rows = draw_rows(self._posterior, values, log_sizes, n_draws, rng)
        names = getattr(self, "feature_names_in_", None)
        return as_dataset(latents, rows, list(self.get_feature_names_out()), names)

    def score_samples(self, Y: Any, *, mask: Any = None, sizes: Any = None) -> FloatArray:
        """Log density of each row's observed entries under the fitted model, in nats.

        An importance-weighted estimate with 64 quasi-random draws around the row's embedding: in
        expectation a lower bound. It is deterministic and a row's value does not depend on the others.
        """

        def score(rows: slice, values: FloatArray, log_sizes: FloatArray | None) -> tuple[FloatArray, ...]:
            return (self._posterior.log_density(values, log_sizes),)

        return self._by_pieces(score, self._read(Y, mask), sizes)[0]

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

    def explore(self, path: Any, **options: Any) -> Path:
        """Write one self-contained web page to explore the model in, offline.

        The page shows the latents of the training rows, and decodes live wherever one points.

        Parameters
        ----------
        path : str or path
            The HTML file to write.
        **options
            `data`, `labels`, `ids`, `dims`, `image_shape`, `title` and `max_megabytes`, as in
            `srflvm.explore.write_page`.

        Returns
        -------
        Path
            Where the page is.
        """
        from srflvm.explore import write_page

        return write_page(self, path, **options)

    def save(self, path: Any) -> None:
        """Write the fitted model to one file that `srflvm.load` reads."""
        from srflvm.persistence import save

        check_is_fitted(self)
        save(self, path)  # pyright: ignore[reportArgumentType]

    def _points(self, Z: Any, Z_std: Any) -> tuple[FloatArray, FloatArray | None]:
        """Latent points of a fitted model and, if they are uncertain, the factors of their covariances."""
        check_is_fitted(self)
        latents = check.check_latents(Z, self._posterior.frequencies.shape[1])
        if Z_std is None:
            return latents, None
        stds = check.check_latents(Z_std, latents.shape[1])
        if stds.shape != latents.shape or np.any(stds < 0):
            raise ValueError(f"Z_std must be non-negative and of the shape of Z, {latents.shape}.")
        return latents, stds[:, :, None] * np.eye(latents.shape[1])

    def _read(self, Y: Any, mask: Any) -> Source:
        """Rows for a fitted model."""
        check_is_fitted(self)
        return read_source(self, Y, mask, reset=False)

    def _by_pieces(self, answer: Answer, source: Source, sizes: Any) -> tuple[FloatArray, ...]:
        """What `answer` says of some rows at a time, put together."""
        if sizes is not None:
            read_sizes(sizes, source.n_rows)
        wholes: tuple[FloatArray, ...] = ()
        for rows, piece in pieces(source):
            parts = answer(rows, *self._checked_rows(rows, piece, sizes))
            if len(piece) == source.n_rows:
                return parts
            wholes = wholes or tuple(np.empty((source.n_rows, *a.shape[1:]), a.dtype) for a in parts)
            for whole, part in zip(wholes, parts, strict=True):
                whole[rows] = part
        return wholes

    def _checked_rows(
        self, rows: slice, values: FloatArray, sizes: Any
    ) -> tuple[FloatArray, FloatArray | None]:
        """Rows that the likelihoods can have produced, and the logarithms of their sizes."""
        self._check_entries(rows, values)
        some = None if sizes is None else np.asarray(sizes)[rows]
        return values, estimated_sizes(self, values, self._posterior.layout, some)

    def _check_entries(self, rows: slice, values: FloatArray) -> None:
        groups, names = self._posterior.layout.groups, getattr(self, "feature_names_in_", None)
        choosing.check_columns([(g.likelihood, g.columns) for g in groups], values, names, rows.start)
        entry.refuse_far_entries(values, groups, names, rows.start)
