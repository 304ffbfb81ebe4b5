"""SRFLVMImputer: missing entries filled in, as a scikit-learn transformer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin, clone
from sklearn.utils.validation import check_is_fitted

from srflvm._entry_checks import empty_rows_are_known
from srflvm._inputs import read_data
from srflvm._types import FloatArray
from srflvm.estimator import SRFLVM
from srflvm.named import with_names_of
from srflvm.selection import CANDIDATES, Selection, choose_n_components


class SRFLVMImputer(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """Fill missing entries (NaN) by a latent variable model, for use in a pipeline.

    Parameters
    ----------
    estimator : SRFLVM, default=None
        The model and its parameters, such as `likelihood`; None means `SRFLVM()`.
    n_components : int, "auto" or None, default="auto"
        Number of latent dimensions. "auto" chooses it by entries held out of the fit, which costs several
        fits; None keeps that of `estimator`.
    candidates : sequence of int, default=(2, 8, 32, 128)
        What "auto" chooses from; see `choose_n_components`.
    random_state : int, RandomState instance or None, default=None
        Seed, of the model too unless that has one.

    Attributes
    ----------
    estimator_ : SRFLVM
        The fitted model.
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
    n_components_: int
    selection_: Selection | None

    def __init__(
        self,
        estimator: SRFLVM | None = None,
        *,
        n_components: Any = "auto",
        candidates: Sequence[int] = CANDIDATES,
        random_state: Any = None,
    ):
        self.estimator = estimator
        self.n_components = n_components
        self.candidates = candidates
        self.random_state = random_state

    def fit(self, Y: Any, y: Any = None) -> SRFLVMImputer:
        """Fit the model to the observed entries of Y."""
        read_data(self, Y, reset=True)
        with empty_rows_are_known():
            self._fit_model(Y)
        return self

    def _fit_model(self, Y: Any) -> None:
        model: Any = SRFLVM() if self.estimator is None else clone(self.estimator)
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

    def transform(self, Y: Any) -> FloatArray:
        """Y with its missing entries filled; observed entries are returned as they are."""
        check_is_fitted(self)
        read_data(self, Y, reset=False)
        with empty_rows_are_known():
            filled: Any = self.estimator_.impute(with_names_of(self.estimator_, Y))
        return filled

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags
