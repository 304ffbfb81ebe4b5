"""SRFLVMImputer: missing entries filled in, as a scikit-learn transformer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin, clone
from sklearn.utils.validation import check_is_fitted

from srflvm._typing import FloatArray
from srflvm.data.reading import empty_rows_are_known, read_data
from srflvm.data.sources import NamedTable
from srflvm.estimator import SRFLVM
from srflvm.likelihoods.base import Summary
from srflvm.likelihoods.columns import Choice, choose
from srflvm.selection import CANDIDATES, Selection, choose_n_components


class SRFLVMImputer(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """Fill missing entries (NaN) by a latent variable model, for use in a pipeline.

    Continuous columns (Gaussian and Student's t) are standardised for the model, so that their units do not
    matter and each counts alike.

    Parameters
    ----------
    estimator : SRFLVM, default=None
        The model and its parameters, such as `likelihood`; None means `SRFLVM()`.
    n_components : int, "auto" or None, default="auto"
        Number of latent dimensions. "auto" chooses it by entries held out of the fit, which costs several
        fits; None keeps that of `estimator`.
    candidates : sequence of int, default=(1, 2, 3, 5, 8, 16, 32, 64, 128)
        What "auto" chooses from; see `choose_n_components`.
    standardize : bool, default=True
        Whether to standardise continuous columns. Use False for columns in the same units whose spread is
        their weight, such as pixels: those at the edge of images hardly vary, and should not count as much.
    random_state : int, RandomState instance or None, default=None
        Seed, of the model too unless that has one.

    Attributes
    ----------
    estimator_ : SRFLVM
        The fitted model, of standardised columns: (y - location_) / scale_.
    location_, scale_ : ndarrays (M,)
        Mean and standard deviation of the observed entries of continuous columns, if they are standardised; 0
        and 1 for all others.
    n_components_ : int
        The number of latent dimensions used.
    selection_ : Selection or None
        How it was chosen, if it was.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.datasets import load_iris
    >>> from srflvm import SRFLVMImputer
    >>> Y = load_iris().data
    >>> Y[3, 1] = np.nan
    >>> filled = SRFLVMImputer(n_components=2, random_state=0).fit_transform(Y)
    >>> bool(np.isnan(filled).any())
    False
    """

    estimator_: SRFLVM
    location_: FloatArray
    scale_: FloatArray
    n_components_: int
    selection_: Selection | None

    def __init__(
        self,
        estimator: SRFLVM | None = None,
        *,
        n_components: Any = "auto",
        candidates: Sequence[int] = CANDIDATES,
        standardize: bool = True,
        random_state: Any = None,
    ):
        self.estimator = estimator
        self.n_components = n_components
        self.candidates = candidates
        self.standardize = standardize
        self.random_state = random_state

    def fit(self, Y: Any, y: Any = None) -> SRFLVMImputer:
        """Fit the model to the observed entries of Y."""
        values = read_data(self, Y, reset=True)
        model: Any = SRFLVM() if self.estimator is None else clone(self.estimator)
        names = getattr(self, "feature_names_in_", None)
        choice = choose(model.likelihood, values.shape[1], names)
        self.location_, self.scale_ = _units(values, choice if self.standardize else Choice())
        with empty_rows_are_known():
            self._fit_model(model, self._standardised(values))
        return self

    def _fit_model(self, model: Any, Y: Any) -> None:
        if model.random_state is None:
            model.set_params(random_state=self.random_state)
        self.selection_ = None
        if self.n_components == "auto":
            self.selection_ = choose_n_components(model, Y, self.candidates, random_state=self.random_state)
            model.set_params(n_components=self.selection_.n_components)
        elif self.n_components is not None:
            model.set_params(n_components=self.n_components)
        self.estimator_ = model.fit(Y)
        self.n_components_ = model.n_components

    def transform(self, Y: Any, return_std: bool = False) -> Any:
        """Fill the missing entries of Y; observed entries are returned as they are.

        Parameters
        ----------
        Y : array-like of shape (n, M)
        return_std : bool, default=False
            Also return the predictive standard deviations of filled entries, 0 for observed ones.

        Returns
        -------
        Y_filled : ndarray (n, M)
        Y_std : ndarray (n, M), if `return_std`
        """
        check_is_fitted(self)
        values = read_data(self, Y, reset=False)
        with empty_rows_are_known():
            mean, std = self.estimator_.impute(self._standardised(values), return_std=True)
        filled = np.where(np.isnan(values), self.location_ + self.scale_ * mean, values)
        return (filled, self.scale_ * std) if return_std else filled

    def _standardised(self, values: FloatArray) -> Any:
        """Return rows as the model takes them, with the names of their columns if there are any."""
        standard = (values - self.location_) / self.scale_
        names = getattr(self, "feature_names_in_", None)
        return standard if names is None else NamedTable(standard, list(names))

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags


def _units(values: FloatArray, choice: Choice) -> tuple[FloatArray, FloatArray]:
    """Return mean and standard deviation of the columns with a continuous likelihood, 0 and 1 for others."""
    location, scale = np.zeros(values.shape[1]), np.ones(values.shape[1])
    for likelihood, columns in choice:
        if likelihood.has_units:
            _, mean, variance = Summary.of(np.asarray(values[:, columns], np.float64))
            location[columns] = mean
            scale[columns] = np.where(variance > 0.0, np.sqrt(variance), 1.0)
    return location, scale
