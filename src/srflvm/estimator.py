"""SRFLVM, the estimator: checks input, calls the rest, owns the fitted attributes."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from srflvm import _validation as check
from srflvm import fitting
from srflvm._types import FloatArray
from srflvm.embedding import embed
from srflvm.fitted import record, stationary_kernel, stationary_spectral_density
from srflvm.posterior import Decoded, Posterior
from srflvm.progress import PrintProgress
from srflvm.scoring import draw_rows, log_density


class SRFLVM(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Scalable random feature latent variable model.

    Explains the rows of Y (N x M) by low-dimensional latents through a nonlinear function with a learned
    stationary kernel: y_n = H'phi(x_n) + noise, where phi are random Fourier features whose frequencies
    follow a Dirichlet-process mixture. Inference is variational; the weights H are integrated out.

    Parameters
    ----------
    n_components : int, default=2
        Number of latent dimensions Q.
    likelihood : {"gaussian"}, default="gaussian"
        The distribution of an entry around the function.
    n_frequencies : int or "auto", default="auto"
        Number of frequencies, half the number of features. "auto" takes a third of the rows, at least
        25 and at most 300. More frequencies follow finer structure; a step costs their square.
    n_mixture : int, default=10
        Truncation of the Dirichlet process: the largest number of mixture components.
    frequency_sampling : {"mixture", "moment"}, default="mixture"
        Draw frequencies from the mixture itself, or from the Gaussian with its moments as in the paper.
    covariance_type : {"full", "diag"}, default="full"
        Covariances of the mixture components.
    latent_covariance_type : {"full", "diag"}, default="full"
        Covariances of the latents' variational distributions.
    n_samples : int, default=1
        Monte Carlo draws per gradient step.
    compression : int, "auto" or "all", default="auto"
        Leading directions of the columns used while fitting: "all" loses nothing, "auto" keeps at
        most 100. Decoding always uses all columns.
    max_iter : int, default=25
        Sweeps over the blocks; a sweep makes five gradient steps.
    tol : float, default=1e-3
        Stop when the bound per entry rises by less than this a sweep, averaged over five sweeps. 0 never
        stops early.
    n_init : int, default=1
        How many times each kind of start is tried; the best bound goes on.
    init : {"auto", "pca", "neighbors", "random"} or array of shape (N, n_components), default="auto"
        The start decides which optimum is reached. "auto" runs a PCA start and a neighbour-embedding
        start for a few sweeps and goes on with the one whose bound is higher. (With fewer than 12 rows
        a random start replaces the neighbours; with more than 5000 the race is run on 5000 landmarks,
        whose model places the other rows before the last sweeps on all of them.)
    learning_rate : float, default=0.02
        Step size of the gradient steps, decaying along a cosine.
    dtype : {"float32", "float64"}, default="float32"
        Precision of the large matrix products of the fit. The algebra between them, and everything
        after the fit, is in float64 either way.
    random_state : int, RandomState instance or None, default=None
        Seed. The same seed gives the same result on the same machine.
    verbose : int, default=0
        Print progress; larger is more often.
    callbacks : sequence of callables, default=None
        Called after each sweep with a `srflvm.Progress`; one that returns True ends the fit.
    warm_start : bool, default=False
        Begin a further `fit` of as many rows where the last one ended.

    Attributes
    ----------
    embedding_ : ndarray (N, n_components)
        Latents of the training rows under the frozen model; equal to `transform` of them.
    embedding_std_ : ndarray (N, n_components)
        Their standard deviations.
    elbo_ : float
        The evidence lower bound (a smoothed stochastic estimate), a total in nats over all entries of Y.
    elbo_history_ : ndarray (n_iter_,)
        The bound at each sweep of the winning start.
    n_iter_ : int
        Sweeps made by the winning start, on all rows.
    converged_ : bool
        Whether `tol` was reached.
    interrupted_ : bool
        Whether the fit was ended early by Ctrl-C; the best state so far was kept.
    start_ : str
        Which start won.
    start_elbos_ : dict
        The bound that each start had reached when it was last compared (scaled to all rows, if the race
        was run on landmarks).
    n_rejected_steps_ : int
        Steps that were not finite; they were dropped and retried more carefully.
    noise_variance_, amplitude_ : float
        Noise variance and prior variance of the function, in squared units of Y.
    frequencies_ : ndarray (n_frequencies, n_components)
        The frozen frequencies.
    mixture_weights_, mixture_means_, mixture_covariances_ : ndarrays (K,), (K, Q), (K, Q, Q)
        The learned mixture over frequencies.
    concentration_ : float
        Posterior mean of the Dirichlet process's concentration.
    n_features_in_ : int
        Number of columns M.
    feature_names_in_ : ndarray of str
        Names of the columns, if Y had string names.

    References
    ----------
    "Scalable random feature latent variable models", which extends G. W. Gundersen, M. M. Zhang and
    B. E. Engelhardt, "Latent variable modeling with random features", AISTATS 2021.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from srflvm import SRFLVM
    >>> Y = load_iris().data
    >>> model = SRFLVM(n_components=2, random_state=0)
    >>> Z = model.fit_transform(Y)
    >>> Z.shape
    (150, 2)
    >>> Y_hat, Y_std = model.inverse_transform(Z, return_std=True)
    """

    embedding_: FloatArray
    embedding_std_: FloatArray
    elbo_: float
    elbo_history_: FloatArray
    n_iter_: int
    converged_: bool
    interrupted_: bool
    start_: str
    start_elbos_: dict[str, float]
    n_rejected_steps_: int
    noise_variance_: float
    amplitude_: float
    frequencies_: FloatArray
    mixture_weights_: FloatArray
    mixture_means_: FloatArray
    mixture_covariances_: FloatArray
    concentration_: float
    n_features_in_: int
    _posterior: Posterior
    _state: Any

    def __init__(
        self,
        n_components: int = 2,
        *,
        likelihood: str = "gaussian",
        n_frequencies: int | str = "auto",
        n_mixture: int = 10,
        frequency_sampling: str = "mixture",
        covariance_type: str = "full",
        latent_covariance_type: str = "full",
        n_samples: int = 1,
        compression: int | str = "auto",
        max_iter: int = 25,
        tol: float = 1e-3,
        n_init: int = 1,
        init: Any = "auto",
        learning_rate: float = 0.02,
        dtype: Any = "float32",
        random_state: Any = None,
        verbose: int = 0,
        callbacks: Any = None,
        warm_start: bool = False,
    ):
        self.n_components = n_components
        self.likelihood = likelihood
        self.n_frequencies = n_frequencies
        self.n_mixture = n_mixture
        self.frequency_sampling = frequency_sampling
        self.covariance_type = covariance_type
        self.latent_covariance_type = latent_covariance_type
        self.n_samples = n_samples
        self.compression = compression
        self.max_iter = max_iter
        self.tol = tol
        self.n_init = n_init
        self.init = init
        self.learning_rate = learning_rate
        self.dtype = dtype
        self.random_state = random_state
        self.verbose = verbose
        self.callbacks = callbacks
        self.warm_start = warm_start

    def fit(self, Y: Any, y: Any = None) -> SRFLVM:
        """Fit the model to the rows of Y.

        Parameters
        ----------
        Y : array-like of shape (N, M)
            Complete numeric data.
        y : ignored
        """
        check.check_parameters(self)
        Y = self._check_data(Y, reset=True)
        options, rng = self._options(Y), check_random_state(self.random_state)
        state = getattr(self, "_state", None) if self.warm_start else None
        if state is not None:
            check.check_warm_state(state, options, len(Y))
        fitted = fitting.fit(Y, options, rng, state)
        record(self, fitted)
        if self.tol > 0 and not (fitted.converged or fitted.interrupted or fitted.stopped):
            self._warn_not_converged()
        return self

    def fit_transform(self, Y: Any, y: Any = None) -> FloatArray:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Fit and return the embedding of Y, the same as `fit(Y).transform(Y)`."""
        return self.fit(Y).embedding_.copy()

    def transform(self, Y: Any, return_std: bool = False):
        """Embed rows, each on its own: the answer does not depend on the other rows given.

        Parameters
        ----------
        Y : array-like of shape (n, M)
        return_std : bool, default=False

        Returns
        -------
        Z : ndarray (n, n_components)
        Z_std : ndarray (n, n_components), if `return_std`
        """
        check_is_fitted(self)
        Y = self._check_data(Y, reset=False)
        placed = embed(self._posterior, self._posterior.columns.scores(Y))
        if not return_std:
            return placed.mean
        return placed.mean, np.sqrt(np.sum(placed.cholesky**2, axis=-1))

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
        Y, Z = draw_rows(self._posterior, n_samples, self._posterior.frequencies.shape[1], rng)
        return (Y, Z) if return_latents else Y

    def score_samples(self, Y: Any) -> FloatArray:
        """Log density of each row under the fitted model, in nats.

        An importance-weighted estimate with 64 quasi-random draws around the row's embedding: in
        expectation a lower bound. It is deterministic and a row's value does not depend on the others.
        """
        check_is_fitted(self)
        return log_density(self._posterior, self._check_data(Y, reset=False))

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
        save(self, path)

    @property
    def _n_features_out(self) -> int:
        return self.embedding_.shape[1]

    def _check_data(self, Y: Any, *, reset: bool) -> FloatArray:
        check.refuse_masked(Y)
        Y = validate_data(
            self,
            Y,
            reset=reset,
            dtype=[np.float64, np.float32],
            ensure_all_finite=False,
            ensure_min_samples=2 if reset else 1,
        )
        check.check_finite(Y, "Y", getattr(self, "feature_names_in_", None))
        return Y

    def _options(self, Y: FloatArray) -> fitting.Options:
        n_frequencies = self.n_frequencies
        if n_frequencies == "auto":
            n_frequencies = int(np.clip(len(Y) // 3, 25, 300))
        init = self.init
        if not isinstance(init, str):
            init = check.check_initial_latents(init, len(Y), self.n_components)
        callbacks = tuple(self.callbacks or ())
        if self.verbose:
            callbacks = (*callbacks, PrintProgress(int(self.verbose)))
        return fitting.Options(
            n_components=int(self.n_components),
            n_frequencies=int(n_frequencies),
            n_mixture=int(self.n_mixture),
            frequency_sampling=self.frequency_sampling,
            covariance_type=self.covariance_type,
            latent_covariance_type=self.latent_covariance_type,
            n_samples=int(self.n_samples),
            n_directions=self.compression,
            max_iter=int(self.max_iter),
            tol=float(self.tol),
            n_init=int(self.n_init),
            init=init,
            learning_rate=float(self.learning_rate),
            dtype=np.dtype(self.dtype),
            callbacks=callbacks,
        )

    def _warn_not_converged(self) -> None:
        warnings.warn(
            f"The bound was still rising by more than tol={self.tol} per entry and sweep when "
            f"max_iter={self.max_iter} was reached. Increase max_iter or tol.",
            ConvergenceWarning,
            stacklevel=3,
        )
