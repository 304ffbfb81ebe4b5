"""SRFLVM, the estimator: checks input, calls the rest, owns the fitted attributes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sklearn.exceptions import ConvergenceWarning

from srflvm import _likelihood_choice as choosing
from srflvm import _validation as check
from srflvm import fitting, parallel, resolving, stochastic, streams
from srflvm._inputs import read_source
from srflvm._types import FloatArray
from srflvm.exceptions import FallingBoundWarning, NotInMemoryError
from srflvm.fit_contract import Fitted
from srflvm.fitted import record
from srflvm.journal import open_journal
from srflvm.memory import Memory
from srflvm.posing import check_processes, kind_of_fit, pose
from srflvm.queries import Queries
from srflvm.row_tables import RowTable
from srflvm.sources import Source
from srflvm.units import warn_of_units
from srflvm.warning_location import warn_caller


class SRFLVM(Queries):
    """Scalable random feature latent variable model.

    Explains the rows of Y (N x M) by low-dimensional latents through a nonlinear function with a learned
    stationary kernel: y_n = H'phi(x_n) + noise, where phi are random Fourier features whose frequencies
    follow a Dirichlet-process mixture. Inference is variational; the weights H are integrated out.

    Parameters
    ----------
    n_components : int, default=2
        Number of latent dimensions Q.
    likelihood : str, Likelihood or mapping, default="gaussian"
        The distribution of an entry around the function: "gaussian", "bernoulli", "negative_binomial",
        "poisson", "student_t", "ordinal", "categorical", "multinomial" (hyphens do for underscores), an
        instance of a class of `srflvm.likelihoods`, or for mixed data a mapping from columns (names,
        indices, or tuples of them) to these.
    inference : {"auto", "sites", "polya_gamma", "polya_gamma_sampled", "gradient"}, default="auto"
        How the weights of non-Gaussian columns are treated. "auto" is exact for Gaussian columns with one
        noise and "sites" for all others; see the page on theory.
    size_factors : {"auto", "totals", "ratios"} or None, default="auto"
        Whether the mean of a row's counts is proportional to a size of the row: "totals" takes the row's
        total, "ratios" the median ratio of its counts to the column means. "auto" takes ratios where there
        are at least 5 columns of counts with a typical mean of at least 5, else totals where there are at
        least 50 columns; and none if sizes estimated from the two halves of the columns do not agree.
        `fit` and the other methods also take `sizes` of your own.
    n_frequencies : int or "auto", default="auto"
        Number of frequencies, half the number of features. "auto" takes a quarter of the rows, at least
        25 and at most 300 (50 where every entry has a site of its own). More frequencies follow finer
        structure; a step costs their square.
    n_mixture : int, default=10
        Truncation of the Dirichlet process: the largest number of mixture components.
    frequency_sampling : {"mixture", "moment"}, default="mixture"
        Draw frequencies from the mixture itself, or from the Gaussian with its moments as in the paper.
    covariance_type : {"full", "diag"}, default="full"
        Covariances of the mixture components.
    latent_covariance_type : {"auto", "full", "diag"}, default="auto"
        Covariances of the latents' variational distributions; "auto" is full up to 8 components. Those that
        the fitted model reports are always full.
    n_samples : int, default=1
        Monte Carlo draws per gradient step.
    compression : int, "auto" or "all", default="auto"
        Leading directions of the columns used while fitting complete Gaussian data and for starts: "all"
        loses nothing, "auto" keeps at most 100. Decoding always uses all columns.
    batch_size : int, "auto" or None, default="auto"
        Rows that are seen at a time. None fits all rows at once. A number fits landmarks, a random subset of
        the rows, and then passes over all rows in random batches of that many. "auto" is None for arrays in
        memory, and for complete Gaussian data with one noise; other data in files and sparse matrices are
        then fitted in batches of 2048.
    max_iter : int or "auto", default="auto"
        Sweeps over the blocks; a sweep makes five gradient steps. "auto" makes 12 for complete Gaussian data
        with one noise and 25 for all others, and up to four times as many for less than 1000 rows: the
        length of a schedule of step sizes, without a warning if the bound could still rise. In batches:
        epochs, that is passes over all rows; "auto" makes at most 10, and fewer for more than 20 000 rows,
        down to 2.
    tol : float, default=1e-3
        Stop when the bound rises by less than this share of what the entries tell in a sweep, averaged over
        five sweeps (three, where less than 20 are to be made), or in batches in an epoch. Entries tell what
        the bound is above the log likelihood of columns that stay at their levels, and at most a nat each:
        Gaussian data with one noise count as a nat an entry, sparse counts as far less. Of a `max_iter` of
        20 or more for complete Gaussian data, nine tenths are always made; of small tables with sites also of
        "auto". 0 never stops early.
    n_init : int, default=1
        How many times each kind of start is tried; the best bound goes on.
    init : {"auto", "pca", "neighbors", "random"} or array of shape (N, n_components), default="auto"
        The start decides which optimum is reached. "auto" runs a PCA start and a neighbour-embedding
        start for a few sweeps and goes on with the one whose bound is higher; in more than three dimensions
        it is PCA alone. With fewer than 12 rows a random start replaces the neighbours.
    n_landmarks : int or "auto", default="auto"
        With more rows than this, the race between starts is run on a random subset of so many, the
        landmarks, whose model places the other rows before the last sweeps on all of them. More landmarks
        keep neighbours better and cost time and memory. "auto" is 5000, and 2000 in batches where every
        entry has a site.
    learning_rate : float or "auto", default="auto"
        Step size of the gradient steps, decaying along a cosine. "auto" is 0.05 for Gaussian data with one
        noise and for small tables with sites, that is less than 1000 rows of other likelihoods and at most
        128 columns of each, and 0.02 for all others.
    dtype : {"float32", "float64"}, default="float32"
        Precision of the large matrix products of the fit, and with sites of the weights that follow from
        them. Factorisations, sums over all entries and everything after the fit are in float64 either way.
    random_state : int, RandomState instance or None, default=None
        Seed. The same seed gives the same result on the same machine.
    verbose : int, default=0
        Print progress; larger is more often.
    callbacks : sequence of callables, default=None
        Called after each sweep with a `srflvm.Progress`; one that returns True ends the fit.
    warm_start : bool, default=False
        Begin a further `fit` of as many rows where the last one ended.
    checkpoint_dir : path or None, default=None
        A folder, made if need be, in which the progress of this one fit is kept. A fit that was killed and is
        started again with the same data and parameters goes on from there, to the same result bit for bit.

    Attributes
    ----------
    embedding_ : ndarray (N, n_components)
        Latents of the training rows under the frozen model; equal to `transform` of them.
    embedding_std_ : ndarray (N, n_components)
        Their standard deviations.
    elbo_ : float
        The evidence lower bound (a smoothed stochastic estimate), a total in nats over all entries of Y. In
        batches it is not an estimate: it is summed over all rows at the end, for the frozen frequencies.
    elbo_history_ : ndarray (n_iter_,)
        The bound at each sweep of the winning start; in batches, its estimate in each epoch.
    n_iter_ : int
        Sweeps made by the winning start, on all rows; in batches, epochs.
    n_samples_seen_ : int
        Rows that the model has learned from, over all calls of `partial_fit`.
    converged_ : bool
        Whether `tol` was reached; never if the bound fell by more than its noise.
    interrupted_ : bool
        Whether the fit was ended early by Ctrl-C; the best state so far was kept.
    start_ : str
        Which start won.
    start_elbos_ : dict
        The bound that each start had reached when it was last compared (scaled to all rows, if the race
        was run on landmarks). Fits by sites race on a Gaussian pilot of the data: its starts are shown as far
        behind the first bound of the fit as they were behind the pilot's winner.
    n_rejected_steps_ : int
        Steps that were not finite; they were dropped and retried more carefully.
    noise_variance_ : float or ndarray (M,)
        Noise variance, in squared units of Y, if any column is Gaussian; NaN for the others.
    likelihood_parameters_ : dict of ndarrays (M,)
        What was learned about each column's likelihood, such as "dispersion"; NaN where a column has none.
    size_factors_ : ndarray (N,)
        Size factors of the training rows, if any column is of counts; ones if rows have no sizes.
    amplitude_ : float
        Prior variance of the function, in squared units of Y for Gaussian columns with one noise, else a
        mean over the columns.
    relevance_ : ndarray (n_components,)
        Information in nats that a row gives about each latent coordinate, on average: the divergence of its
        posterior from the prior. Near zero for a dimension that is not used.
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
    Y. Li, Z. Lin, Y. Liu, M. M. Zhang, P. M. Olmos and P. M. Djurić, "Scalable random feature latent
    variable models", arXiv:2410.17700, 2024, which extends G. W. Gundersen, M. M. Zhang and
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
    likelihood_parameters_: dict[str, FloatArray]
    relevance_: FloatArray
    frequencies_: FloatArray
    mixture_weights_: FloatArray
    mixture_means_: FloatArray
    mixture_covariances_: FloatArray
    concentration_: float
    n_features_in_: int
    n_samples_seen_: int
    size_factors_: FloatArray
    _stream: Any

    def __init__(
        self,
        n_components: int = 2,
        *,
        likelihood: Any = "gaussian",
        inference: str = "auto",
        size_factors: str | None = "auto",
        n_frequencies: int | str = "auto",
        n_mixture: int = 10,
        frequency_sampling: str = "mixture",
        covariance_type: str = "full",
        latent_covariance_type: str = "auto",
        n_samples: int = 1,
        compression: int | str = "auto",
        batch_size: int | str | None = "auto",
        max_iter: int | str = "auto",
        tol: float = 1e-3,
        n_init: int = 1,
        init: Any = "auto",
        n_landmarks: int | str = "auto",
        learning_rate: float | str = "auto",
        dtype: Any = "float32",
        random_state: Any = None,
        verbose: int = 0,
        callbacks: Any = None,
        warm_start: bool = False,
        checkpoint_dir: Any = None,
    ):
        self.n_components = n_components
        self.likelihood = likelihood
        self.inference = inference
        self.size_factors = size_factors
        self.n_frequencies = n_frequencies
        self.n_mixture = n_mixture
        self.frequency_sampling = frequency_sampling
        self.covariance_type = covariance_type
        self.latent_covariance_type = latent_covariance_type
        self.n_samples = n_samples
        self.compression = compression
        self.batch_size = batch_size
        self.max_iter = max_iter
        self.tol = tol
        self.n_init = n_init
        self.init = init
        self.n_landmarks = n_landmarks
        self.learning_rate = learning_rate
        self.dtype = dtype
        self.random_state = random_state
        self.verbose = verbose
        self.callbacks = callbacks
        self.warm_start = warm_start
        self.checkpoint_dir = checkpoint_dir

    def fit(self, Y: Any, y: Any = None, *, mask: Any = None, sizes: Any = None) -> SRFLVM:
        """Fit the model to the rows of Y.

        Parameters
        ----------
        Y : array-like, sparse matrix or path, of shape (N, M)
            Numeric data; NaN, NA and masked entries are missing and are not used. Zeros of a sparse matrix
            are data. Also the path of a .npy, .npz (SciPy sparse), .zarr, .parquet or .h5ad file, an
            `np.memmap` or a Zarr array: such data are read in pieces and never held as a whole. An AnnData
            object stands for its X, also if that is in a file (`backed`); other methods find its variables
            by name, in any order and among others.
        y : ignored
        mask : boolean array of shape (N, M), default=None
            True where an entry is to be taken as missing. Only for arrays in memory.
        sizes : array of shape (N,), default=None
            Size factors of the rows, for counts.
        """
        check.check_parameters(self)
        source = read_source(self, Y, mask, reset=True)
        choice = choosing.choose(self.likelihood, source.n_columns, getattr(self, "feature_names_in_", None))
        check_processes(self, choice, source.n_rows)
        warn_of_units(source, choice, getattr(self, "feature_names_in_", None))
        with parallel.guarded(self.checkpoint_dir):
            fitted = self._fitted_by_processes(source, choice, sizes)
        record(self, fitted)
        self._warn_of_end(fitted)
        return self

    def partial_fit(self, Y: Any, y: Any = None, *, mask: Any = None, sizes: Any = None) -> SRFLVM:
        """Take further rows of a stream into the model; the first call fits it.

        The first call learns the frequencies, the units of the columns and the start from its rows, so it
        should be given some hundreds of rows like those to come. Each further call places its rows
        and updates the weights and the likelihoods' parameters: what was learned from all rows before is the
        prior. Rows are not kept. `embedding_` has the rows of the last call, as the updated model places
        them; `transform` embeds any others.

        Parameters
        ----------
        Y : array-like of shape (n, M)
            The first call needs at least 10 rows, the others one.
        y, mask, sizes
            As in `fit`.
        """
        streams.partial_fit(self, Y, mask, sizes)
        return self

    def _fitted_by_processes(self, source: Source, choice: choosing.Choice, sizes: Any) -> Fitted:
        """Many rows are dealt out over the processes; a few are left to the first."""
        if source.n_rows > resolving.n_landmarks(self):
            return self._fitted(source, choice, sizes)
        return parallel.by_first(lambda: self._fitted(source, choice, sizes))

    def _fitted(self, source: Source, choice: choosing.Choice, sizes: Any) -> Fitted:
        state = getattr(self, "_state", None) if self.warm_start else None
        journal, rng = open_journal(self, source, choice, sizes, state)
        table = RowTable(self, source, sizes)
        if stochastic.wants_batches(self.batch_size, source, kind_of_fit(self, choice, holes=False)):
            return stochastic.fit_estimator(table, choice, journal, rng)
        try:
            problem = pose(self, source, choice, sizes)
        except NotInMemoryError:
            if self.batch_size is None:
                raise
            return stochastic.fit_estimator(table, choice, journal, rng)
        options = replace(resolving.options(self, problem), journal=journal)
        if state is not None:
            check.check_warm_state(state, options, source.n_rows)
            check.check_warm_layer(self._posterior, state, problem)
        return fitting.fit(problem, options, rng, state)

    def fit_transform(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, Y: Any, y: Any = None, *, mask: Any = None, sizes: Any = None
    ) -> FloatArray:
        """Fit and return the embedding of Y, the same as `fit(Y).transform(Y)`."""
        return self.fit(Y, mask=mask, sizes=sizes).embedding_.copy()

    @property
    def _n_features_out(self) -> int:
        return self.embedding_.shape[1]

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.sparse = True
        return tags

    def predict_memory(self, n_rows: int, n_columns: int, *, holes: bool = False) -> Memory:
        """The memory, in bytes, that a fit of data of this shape would need at its peak.

        `fit` asks for it too, and refuses what does not fit before it starts.

        Parameters
        ----------
        n_rows, n_columns : int
        holes : bool, default=False
            Whether entries are missing.

        Returns
        -------
        Memory
            With the attributes `total` and `parts`: beyond Y and what the process holds already.
        """
        check.check_parameters(self)
        choice = choosing.choose(self.likelihood, n_columns, None)
        return resolving.memory_needed(self, kind_of_fit(self, choice, holes), n_rows, n_columns)

    def _warn_of_end(self, fitted: Fitted) -> None:
        """Warn of a bound that fell, or that was still rising when the sweeps asked for were made."""
        if fitted.falls:
            fall = max(fitted.falls, key=lambda one: one.drop)
            warn_caller(
                f"The bound fell by {fall.drop:.3g} nats an entry in the stage {fall.stage!r}, more than its "
                "noise. The best state was kept, but it may be far from what the data allow. Use a smaller "
                "learning_rate (a fifth of the present one, and a larger max_iter), dtype='float64', or "
                "another likelihood for columns that do not suit theirs.",
                FallingBoundWarning,
            )
            return
        ended = fitted.converged or fitted.interrupted or fitted.stopped
        if self.max_iter != "auto" and self.tol > 0 and not ended:
            warn_caller(
                f"The bound was still rising by more than tol={self.tol} of what the entries tell in a sweep "
                f"(in batches: in an epoch) after {len(fitted.history)} of them, when "
                f"max_iter={self.max_iter} was reached. Increase max_iter or tol.",
                ConvergenceWarning,
            )
