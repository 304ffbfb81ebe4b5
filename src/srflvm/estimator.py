"""SRFLVM, the estimator: what users call, from top to bottom.

`fit` gathers facts about the data, plans the fit, builds the problem, runs it, and keeps the result as fitted
attributes. All other methods ask the fitted model and change nothing. There is no mathematics here.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from scipy.special import ndtri
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from srflvm._typing import FloatArray
from srflvm.data.reading import (
    automatic_likelihoods,
    empty_rows_are_known,
    read_sizes,
    read_source,
    refuse_far_entries,
    row_log_sizes,
    warn_of_units,
)
from srflvm.data.schema import Schema, level_frame
from srflvm.data.sources import Source, is_frame, pieces
from srflvm.exceptions import (
    FallingBoundWarning,
    check_choice,
    check_count,
    check_positive,
    warn_caller,
)
from srflvm.inference import full_batch, linear, minibatch, stream
from srflvm.inference.checkpoints import Checkpoints
from srflvm.inference.facts import DataFacts, TrainingData
from srflvm.inference.params import Params, check_finite
from srflvm.inference.plan import (
    FitKind,
    Memory,
    gather_facts,
    is_shared_out,
    plan_fit,
)
from srflvm.inference.result import OPTIONAL_ATTRIBUTES, FitResult
from srflvm.likelihoods.columns import Choice, choose
from srflvm.model import spectral
from srflvm.model.elbo import cholesky_factor
from srflvm.numerics.jit import in_float64
from srflvm.parallel.communicator import Communicator, current
from srflvm.posterior.base import Decoded, Posterior
from srflvm.storage.model_file import StoredModel

# Compute arrays with a row for each of some rows, from where these are in Y, their entries and log sizes.
_OfRows = Callable[[slice, FloatArray, FloatArray | None], tuple[FloatArray, ...]]


class SRFLVM(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Scalable random feature latent variable model.

    Explains the rows of Y (N x M) by low-dimensional latents through a nonlinear function with a learned
    stationary kernel: y_n = H'phi(x_n) + noise, where phi are random Fourier features whose frequencies
    follow a Dirichlet-process mixture. Inference is variational; the weights H are integrated out.

    Parameters
    ----------
    n_components : int or "auto", default=2
        Number of latent dimensions Q. "auto" takes as many as Bayesian PCA of the data finds relevant, and
        one more.
    likelihood : str, Likelihood or mapping, default="auto"
        The distribution of an entry around the function: "gaussian", "bernoulli", "negative_binomial",
        "poisson", "student_t", "ordinal", "categorical", "multinomial" (hyphens do for underscores), an
        instance of a class of `srflvm.likelihoods`, or for mixed data a mapping from columns (names,
        indices, or tuples of them) to these. "auto", and columns that a mapping leaves out: in a data frame
        what the column's type and values say, by the rule of `srflvm.data.schema.Schema`, with a unit and a
        noise for each column of numbers, and a transform of those that are clearly skewed; in an array
        Gaussian, with one unit and one noise for all columns unless some vary so much more than the others
        that they plainly have other units.
    affine : bool or "auto", default="auto"
        Whether an affine map of the latents is added to the kernel's function, with a relevance for each
        dimension. The model then contains Bayesian and logistic PCA. "auto" has it where columns are of
        several kinds or in units of their own; without it the model is that of the paper.
    inference : str, default="auto"
        How the weights are treated: "sites", "shared_basis", "polya_gamma", "polya_gamma_sampled" or
        "gradient". "auto" is exact for Gaussian columns with one noise. For all others it is "sites", a
        covariance of the weights for every column, in small tables, with an affine part and in batches, and
        "shared_basis", one basis for the covariances of all columns, in larger tables, which costs little
        more than Gaussian columns. See the page on theory.
    size_factors : {"auto", "totals", "ratios"} or None, default="auto"
        Whether the mean of a row's counts is proportional to a size of the row: "totals" takes the row's
        total, "ratios" the median ratio of its counts to the column means. "auto" takes ratios where there
        are at least 5 columns of counts with a typical mean of at least 5, else totals where there are at
        least 50 columns; and none if sizes estimated from the two halves of the columns do not agree.
        `fit` and the other methods also take `sizes` of your own.
    unknown_levels : {"error", "missing"}, default="error"
        What to do with a text or category of a data frame that the training data did not have.
    n_frequencies : int or "auto", default="auto"
        Number of frequencies, half the number of features. "auto" takes a quarter of the rows, at least
        25 and at most 300 (50 with sites), and 25 beside an affine part. More
        frequencies follow finer structure; a step costs their square. With `affine=True`, 0 means a linear
        model of Gaussian columns with a noise for each: Bayesian factors over the observed entries alone, of
        which those that tell nothing are dropped, so that `n_components` is the most there may be.
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
        with one noise and 25 for all others, and up to four times as many for less than 1000 rows (with an
        affine part, as many as visit two million entries, from 25 to 200): the length of a schedule of step
        sizes, without a warning if the bound could still rise. In batches: epochs, that is passes over all
        rows; "auto" makes at most 10, and fewer for more than 20 000 rows, down to 2.
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
        The start decides which optimum is reached. "auto" runs a PCA start (Bayesian PCA, if there is an
        affine part) and a neighbour-embedding
        start for a few sweeps and goes on with the one whose bound is higher; in more than three dimensions
        it is PCA alone. With fewer than 12 rows a random start replaces the neighbours.
    n_landmarks : int or "auto", default="auto"
        With more rows than this, starts are compared on a random subset of so many, the landmarks, whose
        model embeds the other rows before the last sweeps on all of them. More landmarks keep neighbours
        better and cost time and memory. "auto" is 5000, and 2000 in batches where every entry has a site.
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
        The bound at each sweep of the best start; in batches, its estimate in each epoch.
    n_iter_ : int
        Sweeps made by the best start, on all rows; in batches, epochs.
    n_samples_seen_ : int
        Rows that the model has learned from, over all calls of `partial_fit`.
    converged_ : bool
        Whether `tol` was reached; never if the bound fell by more than its noise.
    interrupted_ : bool
        Whether the fit was ended early by Ctrl-C; the best state so far was kept.
    start_ : str
        Name of the start with the highest bound.
    start_elbos_ : dict
        The bound that each start had reached when it was last compared, scaled to all rows if landmarks were
        compared. Fits by sites compare starts on a Gaussian pilot of the data: they are shown as far behind
        the first bound of the fit as they were behind the best start of the pilot.
    n_rejected_steps_ : int
        Steps that were not finite; they were dropped and retried more carefully.
    noise_variance_ : float or ndarray (M,)
        Noise variance, in squared units of Y, if any column is Gaussian; NaN for the others. The noise of a
        transformed column grows with the slope of its transform: it is told for the centre of the column.
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
    n_components_ : int
        Number of latent dimensions.
    columns_ : Schema
        What each column was taken as, with its levels and its transform. Only there if the model was fitted
        to a data frame.
    transforms_ : list of str or None
        The transform of each column, "log" or "yeo_johnson"; None for a column that is taken as it is.
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
    columns_: Schema
    n_samples_seen_: int
    size_factors_: FloatArray
    amplitude_: float
    _posterior: Posterior
    _state: Any
    _stream: Any

    def __init__(
        self,
        n_components: int | str = 2,
        *,
        likelihood: Any = "auto",
        affine: bool | str = "auto",
        inference: str = "auto",
        size_factors: str | None = "auto",
        unknown_levels: str = "error",
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
        self.affine = affine
        self.inference = inference
        self.size_factors = size_factors
        self.unknown_levels = unknown_levels
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
        Y : data frame, array-like, sparse matrix or path, of shape (N, M)
            A pandas, polars or pyarrow table with numbers, texts, categories and truth values, or numeric
            data; NaN, NA, null and masked entries are missing and are not used. Zeros of a sparse matrix
            are data. Also the path of a .npy, .npz (SciPy sparse), .zarr, .parquet or .h5ad file, an
            `np.memmap` or a Zarr array: such data are read in pieces and never held as a whole. An AnnData
            object stands for its X, also if that is in a file (`backed`); other methods find its variables
            by name, in any order and among others.
        y : ignored, with a warning
            Labels, also if some are missing, are one more column of Y.
        mask : boolean array of shape (N, M), default=None
            True where an entry is to be taken as missing. Only for arrays in memory.
        sizes : array of shape (N,), default=None
            Size factors of the rows, for counts.
        """
        params = self._params()
        _warn_of_labels(y)
        data = self._training_data(params, Y, mask, sizes)
        params = self._resolved(params, data)
        source, choice, names = data.source, data.choice, data.names
        communicator = current()
        shares_out = is_shared_out(params, choice, source.n_rows, communicator)
        with communicator.guarded(params.checkpoint_dir):
            if communicator.is_first:
                warn_of_units(source, choice, names)
            if shares_out:
                result = self._fit(params, data, communicator)
            else:
                result = communicator.by_first(lambda alone: self._fit(params, data, alone))
        self._keep(result)
        self._warn_of_end(result)
        return self

    def _training_data(self, params: Params, Y: Any, mask: Any, sizes: Any) -> TrainingData:
        """Read the rows to fit, and choose the likelihoods of their columns."""
        source = read_source(self, Y, mask, reset=True)
        names = getattr(self, "feature_names_in_", None)
        automatic = automatic_likelihoods(self, source)
        choice = choose(params.likelihood, source.n_columns, names, automatic)
        return TrainingData(source, choice, names, sizes, params.size_factors)

    def _resolved(self, params: Params, data: TrainingData) -> Params:
        """Return the parameters with the number of components and the affine part decided."""
        n_components = params.n_components
        if n_components == "auto":
            n_components = linear.automatic_components(params, data, np.random.RandomState(0))
        return params.resolved(data.choice, int(n_components))

    def _fit(self, params: Params, data: TrainingData, communicator: Communicator) -> FitResult:
        """Fit by all processes of a communicator: facts, plan, problem, run, result."""
        goes_on = params.warm_start and hasattr(self, "_state")
        earlier = FitResult.of_attributes(vars(self)) if goes_on else None
        checkpoints, seed = None, params.random_state
        if params.checkpoint_dir is not None:
            state = None if earlier is None else earlier.state
            checkpoints, seed = Checkpoints.open(params, data, state, communicator)
        rng = communicator.from_first(check_random_state(seed))
        facts = gather_facts(params, data, communicator)
        plan = plan_fit(params, facts, communicator)
        if plan.batching is not None:
            _refuse_warm_batches(earlier)
            return minibatch.fit(plan, data, facts, rng, checkpoints)
        if plan.kind is FitKind.LINEAR:
            return linear.fit(plan, data, rng)
        problem = plan.build_problem(data, facts)
        options = plan.options(problem, checkpoints)
        return full_batch.fit(problem, options, rng, earlier)

    def partial_fit(self, Y: Any, y: Any = None, *, mask: Any = None, sizes: Any = None) -> SRFLVM:
        """Take further rows of a stream into the model; the first call fits it.

        The first call learns the frequencies, the units of the columns and the start from its rows, so it
        should be given some hundreds of rows like those to come. Each further call embeds its rows
        and updates the weights and the likelihoods' parameters: what was learned from all rows before is the
        prior. Rows are not kept. `embedding_` has the rows of the last call, as the updated model embeds
        them; `transform` embeds any others.

        Parameters
        ----------
        Y : array-like of shape (n, M)
            The first call needs at least 10 rows, the others one.
        y, mask, sizes
            As in `fit`.
        """
        params = self._params()
        _warn_of_labels(y)
        if not hasattr(self, "_posterior"):
            data = self._training_data(params, Y, mask, sizes)
            self._keep(stream.begin(self._resolved(params, data), data))
            return self
        source = self._read(Y, mask)
        values = source.read(0, source.n_rows)
        self._check_entries(slice(0, len(values)), values)
        log_sizes = row_log_sizes(self._posterior.layout, values, sizes, params.size_factors)
        earlier, n_seen = FitResult.of_attributes(vars(self)), int(self.n_samples_seen_)
        self._keep(stream.extend(params, earlier, n_seen, values, log_sizes))
        return self

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
        """Predict the memory, in bytes, that a fit of data of this shape would need at its peak.

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
        params = self._params()
        choice = choose(params.likelihood, n_columns, None)
        n_components = 2 if params.n_components == "auto" else int(params.n_components)
        params = params.resolved(choice, n_components)
        first_missing = (0, 0) if holes else None
        facts = DataFacts(n_rows, n_columns, True, choice.is_plain_gaussian, first_missing)
        return Memory.of_fit(params, FitKind.of(params, facts), n_rows, n_columns, current())

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

        def embed(rows: slice, values: FloatArray, log_sizes: FloatArray | None) -> tuple[FloatArray, ...]:
            embedding = self._posterior.embed(values, log_sizes)
            return embedding.mean, embedding.std

        mean, std = self._by_pieces(embed, self._read(Y, mask), sizes)
        return (mean, std) if return_std else mean

    def impute(
        self,
        Y: Any,
        *,
        return_std: bool = False,
        return_proba: bool = False,
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
        return_proba : bool, default=False
            Also the probabilities of the levels of each column that has levels (binary, ordinal and
            categorical columns): a dictionary from the column's name, or its index, to an array (n, C), or to
            a frame with the levels as columns if Y is a frame.
        n_draws : int, default=None
            Return this many filled copies drawn from the predictive distribution, (n_draws, n, M), or a list
            of frames if Y is one, for multiple imputation, in place of the means. Of the table that the model
            was fitted to, if it is not large, copies differ in latents, weights and noises, drawn jointly; of
            other rows in latents and weights, each as if the other was known.
        mask, sizes
            As in `fit`.
        random_state : int, RandomState instance or None, default=None
            Seed of the draws.

        Returns
        -------
        Y_filled : ndarray (n, M), or (n_draws, n, M); frames for a frame
        Y_std : ndarray (n, M), if `return_std`
        probabilities : dict, if `return_proba`
        """
        source = self._read(Y, mask)
        if n_draws is not None:
            check_count("n_draws", n_draws)
            if return_std or return_proba:
                raise ValueError(
                    "return_std and return_proba go with means, not with draws: use the copies' spread."
                )
            # one function for all rows of a copy, so they are drawn together
            values, log_sizes = self._checked_rows(
                slice(0, source.n_rows), source.read(0, source.n_rows), sizes
            )
            rng = check_random_state(random_state)
            copies = self._posterior.draw_filled(values, log_sizes, n_draws, rng, self.embedding_)
            return [self._as_frame(copy, Y) for copy in copies] if is_frame(Y) else copies

        def filled_rows(
            rows: slice, values: FloatArray, log_sizes: FloatArray | None
        ) -> tuple[FloatArray, ...]:
            posterior = self._posterior
            incomplete = posterior.embed_incomplete(values, log_sizes)
            parts = posterior.fill_missing(values, log_sizes, incomplete)
            if return_proba:
                parts += tuple(posterior.level_probabilities(values, log_sizes, incomplete).values())
            return parts

        filled, std, *tables = self._by_pieces(filled_rows, source, sizes)
        found: list[Any] = [self._as_frame(filled, Y)]
        if return_std:
            found.append(std)
        if return_proba:
            found.append(self._by_column(tables, Y))
        return tuple(found) if len(found) > 1 else found[0]

    def _by_column(self, of_levels: Sequence[FloatArray], Y: Any) -> dict[Any, Any]:
        """Return the probabilities of the levels of each column that has some, by its name or its index."""
        tables = dict(zip(self._posterior.level_columns, of_levels, strict=True))
        schema, names = getattr(self, "columns_", None), getattr(self, "feature_names_in_", None)
        if schema is None or not is_frame(Y):
            return {place if names is None else names[place]: table for place, table in tables.items()}
        return {
            schema.columns[place].name: level_frame(schema.columns[place], table, Y)
            for place, table in tables.items()
        }

    def interval(self, Y: Any, level: float = 0.9, *, mask: Any = None, sizes: Any = None) -> tuple[Any, Any]:
        """Return the ends of predictive intervals of missing numbers: mean and spread as of a normal.

        Those of a transformed column are those of its transform, transformed back.

        Parameters
        ----------
        Y : data frame or array-like of shape (n, M)
        level : float, default=0.9
            The probability with which an interval holds the entry.
        mask, sizes
            As in `fit`.

        Returns
        -------
        low, high : frames like Y, or ndarrays (n, M)
            Both are the entry itself where it is observed. In a frame, columns of texts, categories and truth
            values stay missing: `impute` returns the probabilities of their levels.
        """
        if not check_positive("level", level) < 1.0:
            raise ValueError(f"level={level} must be between 0 and 1.")
        source = self._read(Y, mask)

        def ends(rows: slice, values: FloatArray, log_sizes: FloatArray | None) -> tuple[FloatArray, ...]:
            return self._posterior.ends_of_missing(values, log_sizes, ndtri(0.5 + 0.5 * level))

        low, high = self._by_pieces(ends, source, sizes)
        if not hasattr(self, "columns_") or not is_frame(Y):
            return low, high
        return self.columns_.decode_end(low, Y, upper=False), self.columns_.decode_end(high, Y, upper=True)

    def score_entries(self, Y: Any, Y_true: Any, *, mask: Any = None, sizes: Any = None) -> FloatArray:
        """Return the log predictive density of entries that are missing in Y and given in `Y_true`.

        Returns
        -------
        scores : ndarray (n, M)
            In nats; NaN where Y is observed or `Y_true` is not.
        """
        source = self._read(Y, mask)
        with empty_rows_are_known():
            truth = read_source(self, Y_true, reset=False, unknown_levels=self.unknown_levels)
        if truth.n_rows != source.n_rows:
            raise ValueError(
                f"Y_true has shape ({truth.n_rows}, {truth.n_columns}) but Y has "
                f"({source.n_rows}, {source.n_columns})."
            )

        def score(rows: slice, values: FloatArray, log_sizes: FloatArray | None) -> tuple[FloatArray, ...]:
            with empty_rows_are_known():
                true_values = truth.read(rows.start, rows.stop)
            self._check_entries(rows, true_values)
            return (self._posterior.score_held_out(values, true_values, log_sizes),)

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
        Y : ndarray (n, M), or a frame if the model was fitted to one
        Y_std : ndarray (n, M), if `return_std`
        """
        decoded = self.decode(Z)
        rows = self._as_frame(decoded.mean)
        return (rows, np.sqrt(decoded.variance)) if return_std else rows

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
        """Return the probabilities of the codes of categorical columns at latent points.

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
        check_count("n_samples", n_samples)
        check_choice("latents", latents, ("rows", "prior"))
        rng = check_random_state(random_state)
        rows = rng.randint(len(self._state["latent_mean"]), size=n_samples)
        Z = rng.standard_normal((n_samples, self._posterior.frequencies.shape[1]))
        if latents == "rows":
            mean, factor = (
                self._state[name][rows].astype(float) for name in ("latent_mean", "latent_factor")
            )
            Z = mean + np.einsum("nqr,nr->nq", cholesky_factor(factor), Z)
        Y = self._posterior.draw_independently(Z, rng, self._sizes_to_draw(sizes, rows))
        rows = self._as_frame(Y)
        return (rows, Z) if return_latents else rows

    def _as_frame(self, values: FloatArray, like: Any = None) -> Any:
        """Return rows as a frame if the model was fitted to one: with the entries of `like`, if it is given.

        Arrays in, arrays out.
        """
        schema = getattr(self, "columns_", None)
        if schema is None or not (like is None or is_frame(like)):
            return values
        return schema.decode(values, like)

    def _sizes_to_draw(self, sizes: Any, rows: np.ndarray) -> FloatArray | None:
        """Return logarithms of sizes: those given, or those of the training rows."""
        if sizes is not None:
            given = np.full(len(rows), sizes) if np.ndim(sizes) == 0 else sizes
            return row_log_sizes(self._posterior.layout, rows[:, None], given, self.size_factors)
        own = getattr(self, "size_factors_", None)
        return None if own is None else np.log(own[rows])

    def to_xarray(
        self, Y: Any, n_draws: int = 100, *, mask: Any = None, sizes: Any = None, random_state: Any = None
    ) -> Any:
        """Draw from the posterior of rows, as an xarray data set with the dimensions that ArviZ expects.

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
        check_count("n_draws", n_draws)
        values, log_sizes = self._checked_rows(slice(0, source.n_rows), source.read(0, source.n_rows), sizes)
        rng = check_random_state(random_state)
        components, names = list(self.get_feature_names_out()), getattr(self, "feature_names_in_", None)
        return self._posterior.draw_dataset(values, log_sizes, n_draws, rng, components, names)

    def score_samples(self, Y: Any, *, mask: Any = None, sizes: Any = None) -> FloatArray:
        """Return the log density of each row's observed entries under the fitted model, in nats.

        An importance-weighted estimate with 64 quasi-random draws around the row's embedding: in
        expectation a lower bound. It is deterministic and a row's value does not depend on the others.
        """

        def score(rows: slice, values: FloatArray, log_sizes: FloatArray | None) -> tuple[FloatArray, ...]:
            return (self._posterior.log_density(values, log_sizes),)

        return self._by_pieces(score, self._read(Y, mask), sizes)[0]

    def score(self, Y: Any, y: Any = None) -> float:
        """Return the mean of `score_samples`."""
        return float(np.mean(self.score_samples(Y)))

    def kernel(self, Z: Any, Z2: Any = None, *, method: str = "mixture") -> FloatArray:
        """Return the learned kernel between latent points, scaled by the amplitude.

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
        check_choice("method", method, ("mixture", "features"))
        left = _check_latents(Z, self._posterior.frequencies.shape[1])
        right = left if Z2 is None else _check_latents(Z2, left.shape[1])
        if method == "features":
            return self.amplitude_ * self._posterior.features(left) @ self._posterior.features(right).T
        return self.amplitude_ * self._of_mixture(
            spectral.Mixture.kernel, left[:, None, :] - right[None, :, :]
        )

    def spectral_density(self, frequencies: Any) -> FloatArray:
        """Return the density of the learned mixture at frequencies (symmetric, integrating to one), (n,)."""
        check_is_fitted(self)
        points = _check_latents(frequencies, self._posterior.frequencies.shape[1])
        return self._of_mixture(spectral.Mixture.density, points)

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

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted model to one file that `srflvm.load` reads.

        The file appears whole or not at all: it is written under another name in the same directory and then
        renamed, so a failure leaves an older file at `path` as it was. Everything is stored except
        `callbacks`, `checkpoint_dir` and a `random_state` that is not an integer, which are None after
        loading.

        Parameters
        ----------
        path : str or path
            Where to write; an existing file is replaced.

        Raises
        ------
        ModelFileError
            The model cannot be saved: a likelihood is code of your own, or a parameter has a value that no
            model can be fitted with.
        """
        check_is_fitted(self)
        parameters = self.get_params(deep=False)
        attributes = {name: value for name, value in vars(self).items() if name not in parameters}
        StoredModel(parameters, attributes).write(path)

    def _points(self, Z: Any, Z_std: Any) -> tuple[FloatArray, FloatArray | None]:
        """Check latent points and, if they are uncertain, return the factors of their covariances too."""
        check_is_fitted(self)
        latents = _check_latents(Z, self._posterior.frequencies.shape[1])
        if Z_std is None:
            return latents, None
        stds = _check_latents(Z_std, latents.shape[1])
        if stds.shape != latents.shape or np.any(stds < 0):
            raise ValueError(f"Z_std must be non-negative and of the shape of Z, {latents.shape}.")
        return latents, stds[:, :, None] * np.eye(latents.shape[1])

    def _read(self, Y: Any, mask: Any) -> Source:
        """Read rows for a fitted model."""
        check_is_fitted(self)
        return read_source(self, Y, mask, reset=False, unknown_levels=self.unknown_levels)

    def _by_pieces(self, function: _OfRows, source: Source, sizes: Any) -> tuple[FloatArray, ...]:
        """Apply `function` to the source piece by piece and concatenate the results."""
        if sizes is not None:
            read_sizes(sizes, source.n_rows)
        wholes: tuple[FloatArray, ...] = ()
        for rows, piece in pieces(source):
            parts = function(rows, *self._checked_rows(rows, piece, sizes))
            if len(piece) == source.n_rows:
                return parts
            wholes = wholes or tuple(np.empty((source.n_rows, *a.shape[1:]), a.dtype) for a in parts)
            for whole, part in zip(wholes, parts, strict=True):
                whole[rows] = part
        return wholes

    def _checked_rows(
        self, rows: slice, values: FloatArray, sizes: Any
    ) -> tuple[FloatArray, FloatArray | None]:
        """Check that the likelihoods can have produced some rows, and return them with their log sizes."""
        self._check_entries(rows, values)
        some = None if sizes is None else np.asarray(sizes)[rows]
        return values, row_log_sizes(self._posterior.layout, values, some, self.size_factors)

    def _check_entries(self, rows: slice, values: FloatArray) -> None:
        groups, names = self._posterior.layout.groups, getattr(self, "feature_names_in_", None)
        Choice((g.likelihood, g.columns) for g in groups).check(values, names, rows.start)
        refuse_far_entries(values, groups, names, rows.start)

    def _of_mixture(self, function: Callable[..., Any], points: FloatArray) -> FloatArray:
        """Compute a method of the learned mixture at points, with its weights."""
        with in_float64():
            choleskys = jnp.linalg.cholesky(jnp.asarray(self.mixture_covariances_))
            mixture = spectral.Mixture(jnp.asarray(self.mixture_means_), choleskys)
            return np.asarray(function(mixture, jnp.asarray(points), jnp.asarray(self.mixture_weights_)))

    def _params(self) -> Params:
        """Return the parameters as a checked value."""
        return Params(**self.get_params(deep=False)).check()

    def _keep(self, result: FitResult) -> None:
        """Set all fitted attributes; those that this fit does not have are removed."""
        attributes = result.attributes()
        for name in OPTIONAL_ATTRIBUTES:
            vars(self).pop(name, None)
        vars(self).update(attributes)
        if hasattr(self, "columns_"):
            self.columns_ = self.columns_.with_transforms(self.transforms_)

    @property
    def transforms_(self) -> list[str | None]:
        """Return the transforms through which the model sees its columns, None for those as they are."""
        return self._posterior.transforms

    def _warn_of_end(self, result: FitResult) -> None:
        """Warn of a bound that fell, or that was still rising when the sweeps asked for were made."""
        if result.falls:
            fall = max(result.falls, key=lambda one: one.drop)
            warn_caller(
                f"The bound fell by {fall.drop:.3g} nats an entry in the stage {fall.stage!r}, more than its "
                "noise. The best state was kept, but it may be far from what the data allow. Use a smaller "
                "learning_rate (a fifth of the present one, and a larger max_iter), dtype='float64', or "
                "another likelihood for columns that do not suit theirs.",
                FallingBoundWarning,
            )
            return
        ended = result.converged or result.interrupted or result.stopped
        if self.max_iter != "auto" and self.tol > 0 and not ended:
            warn_caller(
                f"The bound was still rising by more than tol={self.tol} of what the entries tell in a sweep "
                f"(in batches: in an epoch) after {len(result.history)} of them, when "
                f"max_iter={self.max_iter} was reached. Increase max_iter or tol.",
                ConvergenceWarning,
            )


def _warn_of_labels(y: Any) -> None:
    if y is not None:
        warn_caller(
            "y is ignored: the model has no target. To use labels, also if some are missing, make them one "
            "more column of Y."
        )


def _check_latents(Z: Any, n_components: int) -> FloatArray:
    """Return latent points given by the user, after checking their shape."""
    latents = np.asarray(Z, dtype=np.float64)
    if latents.ndim != 2 or latents.shape[1] != n_components:
        raise ValueError(
            f"Z has shape {latents.shape} but must be (n, {n_components}): one row a point of the "
            f"{n_components}-dimensional latent space. A single point z is given as [z]."
        )
    check_finite(latents, "Z")
    return latents


def _refuse_warm_batches(earlier: FitResult | None) -> None:
    if earlier is not None:
        raise ValueError(
            "warm_start=True goes on from the state of all rows, which a fit in batches does not hold. Use "
            "partial_fit to go on with more rows, set warm_start=False to begin anew, or batch_size=None."
        )


def load(path: str | os.PathLike[str]) -> SRFLVM:
    """Read an estimator from a file that `SRFLVM.save` wrote.

    The loaded estimator computes exactly what the saved one did. The file is checked throughout before
    the estimator is built, and no code from it is run.

    Parameters
    ----------
    path : str or path

    Returns
    -------
    SRFLVM

    Raises
    ------
    FileNotFoundError
        There is no such file.
    ModelFileError
        The file is damaged, truncated, not a model file, or of a newer version of the format.
    """
    stored = StoredModel.read(path)
    model = SRFLVM(**stored.parameters)
    vars(model).update(stored.attributes)
    return model
