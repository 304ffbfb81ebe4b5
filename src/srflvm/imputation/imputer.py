"""SRFLVMImputer: missing entries filled in, as a scikit-learn transformer."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin, clone
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from srflvm.data.schema import Schema
from srflvm.data.sources import is_frame
from srflvm.estimator import SRFLVM
from srflvm.likelihoods.columns import OWN_UNITS
from srflvm.numerics.matrix_factors import MatrixFactors


class SRFLVMImputer(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """Fill missing entries by a latent variable model, for use on a data frame or in a pipeline.

    Takes pandas, polars and pyarrow frames as they are, with numbers in any units, texts, categories and
    truth values, and arrays of numbers. What comes back is of the same kind, with observed entries untouched.

    Parameters
    ----------
    estimator : SRFLVM, default=None
        The model and its parameters, such as `likelihood`. None means a model with an affine part, in which
        every continuous column has its own unit and noise, and a transform if it is clearly skewed; and for
        arrays of more than 64 columns, such as images, a linear model over the observed entries alone,
        `SRFLVM(affine=True, n_frequencies=0)`. Where an array is too large for that, and where it is sparse
        or in a file, it is `SRFLVM()` itself, which fills missing entries in every sweep.
    n_components : int, "auto" or None, default="auto"
        Number of latent dimensions. "auto" takes as many as a linear model of the table finds relevant, and
        one more; of a linear model itself, at most 200. None keeps that of `estimator`.
    random_state : int, RandomState instance or None, default=None
        Seed, of the model too unless that has one.

    Attributes
    ----------
    estimator_ : SRFLVM
        The fitted model.
    n_components_ : int
        The number of latent dimensions used.
    columns_ : Schema
        What the columns of a frame were taken as. Only there if the imputer was fitted to a frame.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.datasets import load_iris
    >>> from srflvm import SRFLVMImputer
    >>> Y = load_iris().data
    >>> Y[3, 1] = np.nan
    >>> filled = SRFLVMImputer(random_state=0).fit_transform(Y)
    >>> bool(np.isnan(filled).any())
    False
    """

    estimator_: SRFLVM
    n_components_: int
    columns_: Schema
    n_features_in_: int

    def __init__(
        self, estimator: SRFLVM | None = None, *, n_components: Any = "auto", random_state: Any = None
    ):
        self.estimator = estimator
        self.n_components = n_components
        self.random_state = random_state

    def fit(self, Y: Any, y: Any = None) -> SRFLVMImputer:
        """Fit the model to the observed entries of Y.

        Parameters
        ----------
        Y : data frame or array-like of shape (N, M)
            Missing entries are NaN, None, NA or null.
        y : ignored
            Without a warning, since pipelines pass the target of their last step to every step.
        """
        model: Any = _default_model(Y) if self.estimator is None else clone(self.estimator)
        if self.n_components is not None:
            model.set_params(n_components=self.n_components)
        if model.random_state is None:
            seed = self.random_state
            model.set_params(
                random_state=seed if seed is None else check_random_state(seed).randint(2**31 - 1)
            )
        self.estimator_ = model.fit(Y)
        self.n_components_ = model.n_components_
        for name in ("columns_", "feature_names_in_", "n_features_in_"):
            vars(self).pop(name, None)
            if hasattr(model, name):
                setattr(self, name, getattr(model, name))
        return self

    def transform(self, Y: Any, return_std: bool = False, return_proba: bool = False) -> Any:
        """Fill the missing entries of Y; observed entries are returned as they are.

        Numbers are filled by their means. Columns whose type holds only levels are filled by the most
        probable one, or by the one nearest to the mean if levels are ordered.

        Parameters
        ----------
        Y : data frame or array-like of shape (n, M)
        return_std : bool, default=False
            Also return the predictive standard deviations of filled entries, 0 for observed ones; of a column
            with levels, in steps from one level to the next.
        return_proba : bool, default=False
            Also return the probabilities of the levels of binary, ordinal and categorical columns, as
            `SRFLVM.impute` does.

        Returns
        -------
        Y_filled : as Y
        Y_std : ndarray (n, M), if `return_std`
        probabilities : dict, if `return_proba`
        """
        check_is_fitted(self)
        return self.estimator_.impute(Y, return_std=return_std, return_proba=return_proba)

    def interval(self, Y: Any, level: float = 0.9) -> tuple[Any, Any]:
        """Return the ends of predictive intervals of missing numbers.

        Parameters
        ----------
        Y : data frame or array-like of shape (n, M)
        level : float, default=0.9
            The probability with which an interval holds the entry.

        Returns
        -------
        low, high : as Y
            Both are the entry itself where it is observed, and stay missing in columns of texts, categories
            and truth values, whose probabilities `transform` returns.
        """
        check_is_fitted(self)
        return self.estimator_.interval(Y, level)

    def draw(self, Y: Any, n_draws: int = 20, *, random_state: Any = None) -> Any:
        """Return filled copies of Y for multiple imputation, drawn from the predictive distribution.

        Each copy has one draw of the latents, of the function, and of the noise.

        Parameters
        ----------
        Y : data frame or array-like of shape (n, M)
        n_draws : int, default=20
        random_state : int, RandomState instance or None, default=None
            Seed of the draws.

        Returns
        -------
        list of frames, or ndarray (n_draws, n, M)
        """
        check_is_fitted(self)
        return self.estimator_.impute(Y, n_draws=n_draws, random_state=random_state)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.sparse = True
        return tags


# A regression for every column on waves and latents, over the rows where it is observed, is affordable in
# tables. Arrays with more columns than this are taken as matrices in one unit, such as images.
_MOST_COLUMNS = 64


def _default_model(Y: Any) -> SRFLVM:
    if is_frame(Y):
        return SRFLVM(affine=True, init="pca")
    values = Y if hasattr(Y, "shape") else np.asarray(Y, dtype=object)
    if len(values.shape) == 2 and values.shape[1] > _MOST_COLUMNS:
        in_memory = isinstance(values, np.ndarray) and not isinstance(values, np.memmap)
        if in_memory and MatrixFactors.affordable_components(*values.shape):
            return SRFLVM(affine=True, n_frequencies=0)
        return SRFLVM()
    return SRFLVM(likelihood=OWN_UNITS, affine=True, init="pca")
