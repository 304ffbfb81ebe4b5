"""Parameters of a fit: those of `SRFLVM` as one checked value, and the options that they resolve to."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from srflvm._typing import FloatArray
from srflvm.exceptions import DataError, check_choice, check_count, check_positive
from srflvm.inference.progress import Callback
from srflvm.likelihoods.columns import AUTO, INFERENCES, Choice, check_likelihood
from srflvm.model.spectral import SAMPLERS

if TYPE_CHECKING:
    from srflvm.inference.checkpoints import Checkpoints

DTYPES = ("float32", "float64")

# Starts by name, and those that are made on landmarks where there are many rows.
STARTS = ("pca", "neighbors", "random")
LANDMARK_STARTS = ("auto", "neighbors")

_COVARIANCE_TYPES = ("full", "diag")

# Ways to treat the weights that leave room for an affine part.
AFFINE_INFERENCES = ("auto", "sites", "shared_basis")

# With more latents than this, full covariances come to cost as much as the matrix products of a step.
_MOST_CORRELATED_LATENTS = 8


@dataclass(frozen=True, kw_only=True)
class Params:
    """Hold the parameters of a fit; `SRFLVM` documents them. `check` refuses what no fit can work with."""

    n_components: Any = 2
    likelihood: Any = AUTO
    affine: Any = AUTO
    inference: Any = "auto"
    size_factors: Any = "auto"
    unknown_levels: Any = "error"
    n_frequencies: Any = "auto"
    n_mixture: Any = 10
    frequency_sampling: Any = "mixture"
    covariance_type: Any = "full"
    latent_covariance_type: Any = "auto"
    n_samples: Any = 1
    compression: Any = "auto"
    batch_size: Any = "auto"
    max_iter: Any = "auto"
    tol: Any = 1e-3
    n_init: Any = 1
    init: Any = "auto"
    n_landmarks: Any = "auto"
    learning_rate: Any = "auto"
    dtype: Any = "float32"
    random_state: Any = None
    verbose: Any = 0
    callbacks: Any = None
    warm_start: Any = False
    checkpoint_dir: Any = None

    def check(self) -> Params:
        """Refuse parameters that can be judged without data, and return the others as they are."""
        for name in ("n_mixture", "n_samples", "n_init"):
            check_count(name, getattr(self, name))
        open_ones = {"n_components": ("auto",), "max_iter": ("auto",), "batch_size": ("auto", None)}
        for name, other in open_ones.items():
            if getattr(self, name) not in other:
                check_count(name, getattr(self, name))
        check_likelihood(self.likelihood)
        check_choice("inference", self.inference, INFERENCES)
        if self.affine is not True and self.affine is not False:
            check_choice("affine", self.affine, (AUTO,))
        if self.affine is True and self.inference not in AFFINE_INFERENCES:
            raise ValueError(
                f"affine=True is for inference='auto', 'sites' or 'shared_basis', and "
                f"inference={self.inference!r} has no affine part. Set affine=False."
            )
        check_choice("unknown_levels", self.unknown_levels, ("error", "missing"))
        if self.size_factors is not None:
            check_choice("size_factors", self.size_factors, ("auto", "totals", "ratios"))
        check_choice("frequency_sampling", self.frequency_sampling, tuple(SAMPLERS))
        check_choice("covariance_type", self.covariance_type, _COVARIANCE_TYPES)
        check_choice("latent_covariance_type", self.latent_covariance_type, ("auto", *_COVARIANCE_TYPES))
        fewest = 0 if self.affine is True else 1
        for name, smallest in {"n_frequencies": fewest, "n_landmarks": 10}.items():
            if getattr(self, name) != "auto":
                check_count(name, getattr(self, name), smallest)
        if self.compression not in ("auto", "all"):
            check_count("compression", self.compression)
        if self.learning_rate != "auto":
            check_positive("learning_rate", self.learning_rate)
        check_positive("tol", self.tol, allow_zero=True)
        if self.init is None or isinstance(self.init, str):
            check_choice("init", self.init, ("auto", *STARTS))
        self._check_dtype()
        self._check_callbacks()
        if not isinstance(self.checkpoint_dir, str | os.PathLike | None):
            raise ValueError(f"checkpoint_dir={self.checkpoint_dir!r} must be the path of a folder, or None.")
        return self

    def resolved(self, choice: Choice, n_components: int) -> Params:
        """Return the parameters with what depends on the columns decided.

        Left open, tables of several kinds of columns, or of columns in units of their own, have an affine
        part: most of what their columns have in common is linear, and the kernel has the rest to explain.
        """
        affine = self.affine
        if affine == AUTO:
            affine = choice.is_table and self.inference in AFFINE_INFERENCES
        return replace(self, n_components=n_components, affine=affine)

    def _check_dtype(self) -> None:
        try:
            name = np.dtype(self.dtype).name
        except TypeError:
            name = repr(self.dtype)
        check_choice("dtype", name, DTYPES)

    def _check_callbacks(self) -> None:
        for callback in self.callbacks or ():
            if not callable(callback):
                raise TypeError(f"callbacks: {callback!r} cannot be called. Give functions of one argument.")

    @property
    def is_linear(self) -> bool:
        """Tell whether the function is to have no waves."""
        return self.affine is True and self.n_frequencies == 0

    def refuse_linear_batches(self, is_stream: bool = False) -> None:
        """Refuse to fit a model without waves in batches or from a stream."""
        if self.is_linear and (is_stream or self.batch_size not in ("auto", None)):
            raise ValueError(
                "n_frequencies=0, a linear model, is fitted to all rows at once. Leave out batch_size, call "
                "fit in place of partial_fit, or give n_frequencies='auto'."
            )

    @property
    def init_name(self) -> str:
        """Return the name of the start, "array" for latents that are given."""
        return self.init if isinstance(self.init, str) else "array"

    @property
    def resolved_covariance_type(self) -> str:
        """Return the type of the latents' covariances, "full" or "diag"."""
        if self.latent_covariance_type == "auto":
            return "full" if self.n_components <= _MOST_CORRELATED_LATENTS else "diag"
        return self.latent_covariance_type

    def initial_latents(self, n_rows: int) -> FloatArray:
        """Return the starting latents that were given as an array, after checking their shape."""
        latents = np.asarray(self.init, dtype=np.float64)
        if latents.shape != (n_rows, self.n_components):
            raise ValueError(
                f"init has shape {latents.shape} but must be (rows of Y, n_components) = "
                f"({n_rows}, {self.n_components})."
            )
        check_finite(latents, "init")
        return latents


@dataclass(frozen=True)
class Options:
    """Hold everything that the run of a fit depends on besides the data, resolved to definite values.

    `pilot` are those of the fit to working data that comes before; None means the same.
    """

    n_components: int
    n_frequencies: int
    n_mixture: int
    frequency_sampling: str
    covariance_type: str
    latent_covariance_type: str
    n_samples: int
    n_directions: int | str
    max_iter: int
    tol: float
    n_init: int
    init: str | FloatArray
    n_landmarks: int
    learning_rate: float
    dtype: np.dtype
    has_affine: bool = False
    callbacks: tuple[Callback, ...] = ()
    checkpoints: Checkpoints | None = None
    stage: str = "fit"
    fewest_share: float = 0.0
    pilot: Options | None = None

    @property
    def init_name(self) -> str:
        return self.init if isinstance(self.init, str) else "array"


def check_finite(values: FloatArray, name: str) -> None:
    """Refuse NaN and infinity, naming the first place and how many there are."""
    bad = ~np.isfinite(values)
    if not bad.any():
        return
    row, column = (int(i) for i in np.argwhere(bad)[0])
    kind = "NaN (a missing value)" if np.isnan(values[row, column]) else "infinity"
    raise DataError(
        f"{name} contains {kind} at row {row}, column {column}; {int(bad.sum())} of its {values.size} "
        "entries are NaN or infinity. Drop those rows or columns, or fill the entries first."
    )
