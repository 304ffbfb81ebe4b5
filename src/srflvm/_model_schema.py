"""What a model file holds: tables of its tensors and plain values.

A tensor is declared by its name, "group.field", and its shape in named sizes and numbers. The same name
always stands for the same size, so the tables say how the shapes of all tensors fit together. A new fitted
attribute is one line, and one in `ADDED`. Tensors that depend on the likelihoods are declared by
`_model_groups`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import NoneType
from typing import Any, Protocol

import numpy as np

TINY = float(np.finfo(np.float64).smallest_subnormal)

SCHEMA_VERSION = 4

Shape = tuple[str | int, ...]
Tensors = dict[str, np.ndarray]
Plain = dict[str, Any]


class Form(Protocol):
    """What is known of a tensor without its numbers."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> np.dtype: ...

    @property
    def size(self) -> int: ...


# Tensors in memory, or those of a file that are not read yet.
Described = Mapping[str, Form]


class SchemaError(ValueError):
    """The content of a model contradicts the tables; the message says where."""


def require(condition: Any, otherwise: str) -> None:
    """Raise a SchemaError unless the condition holds."""
    if not condition:
        raise SchemaError(otherwise)


@dataclass(frozen=True)
class Tensor:
    """An array: its shape (or either of two), its possible types, and what its entries must be."""

    shape: Shape
    other_shape: Shape | None = None
    dtypes: tuple[str, ...] = ("float64",)
    finite: bool = True
    smallest: float = -np.inf
    symmetric: bool = False


@dataclass(frozen=True)
class Scalar:
    """A plain value: its type and the smallest it may be."""

    kind: type
    smallest: float = -np.inf


# Sizes: N rows, M columns, C channels, R directions of the channels, Q latent dimensions, F frequencies,
# L features with the constant, P pairs of them, K mixture components, A anchors, T sweeps, S starts. A size
# is set by the groups of columns or else by the first tensor that mentions it.
DERIVED_SIZES = {
    "2F": lambda sizes: 2 * sizes["F"],
    "L": lambda sizes: 2 * sizes["F"] + 1,
    "P": lambda sizes: (2 * sizes["F"] + 1) * (sizes["F"] + 1),
    "K-1": lambda sizes: sizes["K"] - 1,
}
SIZES_THAT_MAY_BE_ZERO = ("S",)

PRECISION_OF_THE_FIT = ("float32", "float64")

COMMON_TENSORS = {
    "columns.scale": Tensor((), smallest=TINY),
    "posterior.frequencies": Tensor(("F", "Q")),
    "posterior.anchors": Tensor(("A", "Q")),
    "posterior.anchor_scores": Tensor(("A", "R")),
    "fitted.embedding_": Tensor(("N", "Q")),
    "fitted.embedding_std_": Tensor(("N", "Q"), smallest=TINY),
    "fitted.relevance_": Tensor(("Q",)),
    "fitted.elbo_history_": Tensor(("T",), finite=False),
    "fitted.mixture_weights_": Tensor(("K",), smallest=0.0),
    "fitted.mixture_means_": Tensor(("K", "Q")),
    "fitted.mixture_covariances_": Tensor(("K", "Q", "Q"), symmetric=True),
    "starts.elbos": Tensor(("S",), finite=False),
    "state.latent_mean": Tensor(("N", "Q"), dtypes=PRECISION_OF_THE_FIT),
    "state.latent_factor": Tensor(("N", "Q", "Q"), ("N", "Q"), dtypes=PRECISION_OF_THE_FIT),
    "state.mixture_mean": Tensor(("K", "Q")),
    "state.mixture_factor": Tensor(("K", "Q", "Q"), ("K", "Q")),
    "state.logits": Tensor(("F", "K")),
    "sticks.a": Tensor(("K-1",), smallest=TINY),
    "sticks.b": Tensor(("K-1",), smallest=TINY),
    "concentration.shape": Tensor((), smallest=TINY),
    "concentration.rate": Tensor((), smallest=TINY),
}

# Of a `GaussianPosterior`, whose columns are its channels.
GAUSSIAN_TENSORS = {
    "columns.mean": Tensor(("M",)),
    "columns.directions": Tensor(("M", "R")),
    "posterior.weights": Tensor(("2F", "M")),
    "posterior.weight_covariance": Tensor(("2F", "2F"), symmetric=True),
    "posterior.noise": Tensor((), smallest=TINY),
    "posterior.ratio": Tensor((), smallest=TINY),
    "state.log_noise": Tensor(()),
    "state.log_ratio": Tensor(()),
}

# Of a `SitePosterior`, besides what each group of columns has. Units are in the order of the columns.
SITE_TENSORS = {
    "columns.mean": Tensor(("C",)),
    "columns.directions": Tensor(("C", "R")),
    "posterior.weights": Tensor(("L", "C")),
    "posterior.packed_covariance": Tensor(("C", "P"), dtypes=("float32",)),
    "posterior.level": Tensor(("C",)),
    "posterior.amplitude": Tensor(("C",), smallest=TINY),
    "layout.count_means": Tensor(("M",)),
    "layout.location": Tensor(("M",)),
    "layout.scale": Tensor(("M",), smallest=TINY),
}

# Of a `SitePosterior` with columns of counts.
COUNT_TENSORS = {"fitted.size_factors_": Tensor(("N",), smallest=TINY)}

# Of the state, one for each group with c channels; the weights only if they are climbed by gradients.
STATE_OF_GROUPS = {"log_amplitude": Tensor(("c",))}
WEIGHTS_OF_GROUPS = {
    "weight_mean": Tensor(("c", "L"), dtypes=PRECISION_OF_THE_FIT),
    "weight_log_std": Tensor(("c", "L"), dtypes=PRECISION_OF_THE_FIT),
}

# Of every name in the entry "likelihood_parameters"; NaN where a column has no such parameter.
LEARNED_TENSOR = Tensor(("M",), finite=False)

# Stored in place of the parameter `init` when that is an array.
INIT_TENSOR = {"parameters.init": Tensor(("rows of init", "components of init"))}

COMMON_SCALARS = {
    "elbo_": Scalar(float),
    "n_iter_": Scalar(int, smallest=1),
    "converged_": Scalar(bool),
    "interrupted_": Scalar(bool),
    "start_": Scalar(str),
    "n_rejected_steps_": Scalar(int, smallest=0),
    "n_samples_seen_": Scalar(int, smallest=1),
    "amplitude_": Scalar(float, smallest=0.0),
    "concentration_": Scalar(float, smallest=TINY),
    "n_features_in_": Scalar(int, smallest=1),
}

GAUSSIAN_SCALARS = {"noise_variance_": Scalar(float, smallest=0.0)}

# Sizes that plain values repeat: of a number its value, of a list its length.
REPEATED_SIZES = {"n_features_in_": "M", "n_iter_": "T", "feature_names": "M", "start_names": "S"}

# Parameters that `check_parameters` does not judge, or judges by more than their type.
PARAMETER_TYPES = {
    "likelihood": (str, dict),
    "size_factors": (str, NoneType),
    "batch_size": (str, int, NoneType),
    "init": (str, NoneType),
    "dtype": str,
    "random_state": (int, NoneType),
    "verbose": (int, float),
    "warm_start": (int, float),
}

# How sizes of rows are estimated, and what stands for it in files of before version 4, in which it followed
# from the parameter `size_factors` and the means of the columns.
SIZE_METHODS = ("totals", "ratios", None)
SIZES_BY_MEANS = "by means"

# What is stored as JSON besides the tensors. "groups" is None for a `GaussianPosterior`; "weights_in_state"
# says whether the state is that of a `GradientLayer`.
ENTRIES = {
    "parameters": dict,
    "fitted": dict,
    "feature_names": (list, NoneType),
    "start_names": list,
    "fortran_order": list,
    "groups": (list, NoneType),
    "size_method": (str, NoneType),
    "weights_in_state": bool,
    "likelihood_parameters": list,
}

# The version of the format in which entries, tensors and plain values came in, if not the first, and the
# values of the entries in files of version 1, all of which hold Gaussian models.
ADDED = {
    "groups": 2,
    "weights_in_state": 2,
    "likelihood_parameters": 2,
    "fitted.relevance_": 2,
    "n_samples_seen_": 3,
    "size_method": 4,
    "fitted.size_factors_": 4,
}
VALUES_BEFORE: Plain = {
    "groups": None,
    "weights_in_state": False,
    "likelihood_parameters": [],
    "size_method": SIZES_BY_MEANS,
}


def of_version(table: dict[str, Any], version: int) -> dict[str, Any]:
    """The part of a table that files of a version hold."""
    return {name: declared for name, declared in table.items() if ADDED.get(name, 1) <= version}
