"""Systems of other packages: scikit-learn, umap-learn, hpfrec and GPy."""

from __future__ import annotations

import warnings
from importlib import import_module
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state

from srflvm._typing import FloatArray
from srflvm.exceptions import DataError

_ROWS_AT_ONCE = 2000


class _System:
    """Base that keeps the parameters of all systems, and passes others on to the package."""

    def __init__(self, n_components: int = 2, random_state: Any = None, **settings: Any) -> None:
        self.n_components = n_components
        self.random_state = random_state
        self.settings = settings


class PCA(_System):
    """Principal component analysis of the columns, centred and not scaled."""

    def fit_transform(self, Y: Any) -> FloatArray:
        from sklearn import decomposition

        model = decomposition.PCA(self.n_components, random_state=self.random_state, **self.settings)
        return model.fit_transform(_entries(Y))


class LDA(_System):
    """Latent Dirichlet allocation: the topic proportions of rows of whole numbers."""

    def fit_transform(self, Y: Any) -> FloatArray:
        from sklearn.decomposition import LatentDirichletAllocation

        model = LatentDirichletAllocation(self.n_components, random_state=self.random_state, **self.settings)
        return model.fit_transform(_counts(Y, "LDA"))


class Isomap(_System):
    """Isomap with five neighbours, of rows as they are.

    Distances along the graph of N rows take 8 N^2 bytes. If there are more than `max_rows` rows, as many are
    drawn and embedded, and the others are embedded by their distances along the graph to those. Only then is
    the result random.
    """

    def __init__(
        self, n_components: int = 2, random_state: Any = None, max_rows: int = 10_000, **settings: Any
    ) -> None:
        super().__init__(n_components, random_state, **settings)
        self.max_rows = max_rows

    def fit_transform(self, Y: Any) -> FloatArray:
        from sklearn import manifold

        Y = _entries(Y)
        model = manifold.Isomap(n_components=self.n_components, **self.settings)
        with warnings.catch_warnings():  # separate groups of rows are joined at their nearest points
            warnings.filterwarnings("ignore", "The number of connected components")
            warnings.filterwarnings("ignore", category=_sparse_efficiency_warning())
            if len(Y) <= self.max_rows:
                return model.fit_transform(Y)
            drawn = check_random_state(self.random_state).permutation(len(Y))[: self.max_rows]
            model.fit(Y[drawn])
            starts = range(0, len(Y), _ROWS_AT_ONCE)
            return np.vstack([model.transform(Y[start : start + _ROWS_AT_ONCE]) for start in starts])


class NMF(_System):
    """Non-negative matrix factorisation of the entries divided by their mean."""

    def fit_transform(self, Y: Any) -> FloatArray:
        from sklearn import decomposition

        Y = _non_negative(Y, "NMF")
        components: Any = self.n_components
        settings = {"init": "nndsvdar", "max_iter": 1000, **self.settings}
        model = decomposition.NMF(n_components=components, random_state=self.random_state, **settings)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            return model.fit_transform(Y / max(float(Y.mean()), np.finfo(float).tiny))


class TSNE(_System):
    """t-SNE with scikit-learn's settings, of rows as they are."""

    def fit_transform(self, Y: Any) -> FloatArray:
        from sklearn import manifold

        Y = _entries(Y)
        settings = {"perplexity": min(30.0, (len(Y) - 1) / 3), **self.settings}
        settings.setdefault("method", "barnes_hut" if self.n_components < 4 else "exact")
        model = manifold.TSNE(self.n_components, random_state=self.random_state, **settings)
        return model.fit_transform(Y).astype(np.float64)


class UMAP(_System):
    """UMAP with its package's settings, of rows as they are."""

    def fit_transform(self, Y: Any) -> FloatArray:
        package = _import_optional("umap", "umap-learn")
        seed = None if self.random_state is None else _seed(self.random_state)
        with warnings.catch_warnings():  # about one thread with a seed, and about groups of rows
            warnings.simplefilter("ignore")
            model = package.UMAP(n_components=self.n_components, random_state=seed, **self.settings)
            return np.asarray(model.fit_transform(_entries(Y)), np.float64)


class HPF(_System):
    """Hierarchical Poisson factorisation: the expected preferences of rows of whole numbers."""

    def fit_transform(self, Y: Any) -> FloatArray:
        from scipy.sparse import coo_matrix

        Y = _counts(Y, "HPF")
        package = _import_optional("hpfrec", "hpfrec")
        settings = {"ncores": 1, "use_float": False, "verbose": False, **self.settings}
        model = package.HPF(
            k=self.n_components,
            keep_data=False,
            produce_dicts=False,
            random_seed=_seed(self.random_state),
            **settings,
        )
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            model.fit(coo_matrix(Y))
        return np.asarray(model.Theta, np.float64)


class GPLVM(_System):
    """GPLVM of GPy, by maximal likelihood from PCA.

    The kernel is a radial basis function with a scale for each dimension. Columns are centred and all divided
    by one standard deviation.
    """

    def __init__(
        self, n_components: int = 2, random_state: Any = None, max_iter: int = 1000, **settings: Any
    ) -> None:
        super().__init__(n_components, random_state, **settings)
        self.max_iter = max_iter

    def fit_transform(self, Y: Any) -> FloatArray:
        package = _import_optional("GPy", "GPy")
        target, _, _ = _standardised(_entries(Y))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            kernel = package.kern.RBF(self.n_components, ARD=True)
            start = _start(target, self.n_components)
            model = package.models.GPLVM(target, self.n_components, X=start, kernel=kernel, **self.settings)
            model.likelihood.variance = 0.1
            model.optimize(max_iters=self.max_iter)
        return np.array(model.X.values, np.float64)


class BGPLVM(_System):
    """Bayesian GPLVM of GPy (the class that the paper names), variational with inducing points, from PCA.

    Columns are centred and all divided by one standard deviation. Missing entries are NaN.
    """

    def __init__(
        self,
        n_components: int = 2,
        random_state: Any = None,
        n_inducing: int = 50,
        max_iter: int = 1000,
        **settings: Any,
    ) -> None:
        super().__init__(n_components, random_state, **settings)
        self.n_inducing = n_inducing
        self.max_iter = max_iter

    def fit_transform(self, Y: Any) -> FloatArray:
        target, _, _ = _standardised(np.asarray(Y, np.float64))
        model = self._fit(target)
        self._kernel, self._latents = model.kern, np.array(model.X.mean.values, np.float64)
        return self._latents

    def kernel_matrix(self) -> FloatArray:
        """Compute the kernel between all rows (N, N) of the last `fit_transform`, without its amplitude."""
        return np.asarray(self._kernel.K(self._latents) / self._kernel.variance, np.float64)

    def reconstruct(self, Y: Any) -> FloatArray:
        """Fit the entries that are not NaN and return the expected values of all (N, M)."""
        target, centre, scale = _standardised(np.asarray(Y, np.float64))
        model = self._fit(target)
        mean, _ = model.predict(model.X)
        return np.asarray(mean, np.float64) * scale + centre

    def _fit(self, target: FloatArray) -> Any:
        package = _import_optional("GPy", "GPy")
        minibatch = import_module("GPy.models.bayesian_gplvm_minibatch").BayesianGPLVMMiniBatch
        rng = check_random_state(self.random_state)
        start = _start(target, self.n_components)
        inducing = rng.permutation(start)[: self.n_inducing]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = minibatch(
                target,
                self.n_components,
                X=start,
                X_variance=rng.uniform(0.0, 0.1, start.shape),
                Z=inducing,
                kernel=package.kern.RBF(self.n_components, ARD=True),
                num_inducing=len(inducing),
                missing_data=bool(np.isnan(target).any()),
                **self.settings,
            )
            model.likelihood.variance = 0.1
            model.optimize(max_iters=self.max_iter)
        return model


def _entries(Y: Any) -> FloatArray:
    """Return Y in float64, and refuse entries that are not finite."""
    Y = np.asarray(Y, np.float64)
    if not np.isfinite(Y).all():
        raise DataError("This system takes no missing and no infinite entries. Fill them first.")
    return Y


def _non_negative(Y: Any, name: str) -> FloatArray:
    """Return Y in float64, and refuse negative entries."""
    Y = _entries(Y)
    if (Y < 0).any():
        raise DataError(f"{name} takes non-negative entries only; the smallest is {Y.min():g}.")
    return Y


def _counts(Y: Any, name: str) -> FloatArray:
    """Return Y in float64, and refuse entries that are not counts."""
    Y = _non_negative(Y, name)
    if (np.rint(Y) != Y).any():
        raise DataError(f"{name} takes whole numbers only. Multiply and round the entries first.")
    return Y


def _standardised(Y: FloatArray) -> tuple[FloatArray, FloatArray, float]:
    """Centre the columns and divide all by one standard deviation.

    Also returns the means and the deviation.
    """
    centre = np.nanmean(Y, axis=0)
    scale = float(np.nanstd(Y - centre)) or 1.0
    return (Y - centre) / scale, centre, scale


def _start(target: FloatArray, n_components: int) -> FloatArray:
    """Compute principal components of unit variance, with missing entries at zero, the columns' means.

    Components beyond the number of columns are zero.
    """
    U, values, _ = np.linalg.svd(np.nan_to_num(target), full_matrices=False)
    kept = min(n_components, int(np.sum(values > 1e-9 * values[0])))
    scores = np.zeros((len(target), n_components))
    scores[:, :kept] = U[:, :kept] * np.sqrt(len(target))
    return scores


def _sparse_efficiency_warning() -> type[Warning]:
    from scipy.sparse import SparseEfficiencyWarning

    return SparseEfficiencyWarning


def _import_optional(module: str, package: str) -> Any:
    """Import a module of an optional package, or say how to install it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return import_module(module)
        except ImportError as error:
            raise ImportError(f"This needs {package}: pip install srflvm[bench] ({error}).") from error


def _seed(random_state: Any) -> int:
    """Return a whole number above 0, which all packages accept as a seed."""
    return int(check_random_state(random_state).randint(1, 2**31 - 1))
