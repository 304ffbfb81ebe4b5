"""What a model file holds: tables of its tensors and plain values, and the checks that follow from them.

A tensor is declared by its name, "group.field", and its shape in named sizes. The same name always stands
for the same size, so the tables say how the shapes of all tensors fit together. A new likelihood is one
entry of `LIKELIHOOD_TENSORS`; a new fitted attribute is one line.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from types import NoneType
from typing import Any

import numpy as np

from srflvm import _validation

TINY = float(np.finfo(np.float64).smallest_subnormal)

Shape = tuple[str, ...]
Tensors = dict[str, np.ndarray]
Plain = dict[str, Any]


class SchemaError(ValueError):
    """The content of a model contradicts the tables; the message says where."""


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


# Sizes: N rows, M columns, R directions of the columns, Q latent dimensions, F frequencies, K mixture
# components, A anchors, T sweeps, S starts. A size is set by the first tensor that mentions it.
DERIVED_SIZES = {"2F": lambda sizes: 2 * sizes["F"], "K-1": lambda sizes: sizes["K"] - 1}
SIZES_THAT_MAY_BE_ZERO = ("S",)

_PRECISION_OF_THE_FIT = ("float32", "float64")

COMMON_TENSORS = {
    "columns.mean": Tensor(("M",)),
    "columns.scale": Tensor((), smallest=TINY),
    "columns.directions": Tensor(("M", "R")),
    "posterior.frequencies": Tensor(("F", "Q")),
    "posterior.weights": Tensor(("2F", "M")),
    "posterior.weight_covariance": Tensor(("2F", "2F"), symmetric=True),
    "posterior.anchors": Tensor(("A", "Q")),
    "posterior.anchor_scores": Tensor(("A", "R")),
    "fitted.embedding_": Tensor(("N", "Q")),
    "fitted.embedding_std_": Tensor(("N", "Q"), smallest=0.0),
    "fitted.elbo_history_": Tensor(("T",), finite=False),
    "fitted.mixture_weights_": Tensor(("K",), smallest=0.0),
    "fitted.mixture_means_": Tensor(("K", "Q")),
    "fitted.mixture_covariances_": Tensor(("K", "Q", "Q"), symmetric=True),
    "starts.elbos": Tensor(("S",), finite=False),
    "state.latent_mean": Tensor(("N", "Q"), dtypes=_PRECISION_OF_THE_FIT),
    "state.latent_factor": Tensor(("N", "Q", "Q"), ("N", "Q"), dtypes=_PRECISION_OF_THE_FIT),
    "state.mixture_mean": Tensor(("K", "Q")),
    "state.mixture_factor": Tensor(("K", "Q", "Q"), ("K", "Q")),
    "state.logits": Tensor(("F", "K")),
    "sticks.a": Tensor(("K-1",), smallest=TINY),
    "sticks.b": Tensor(("K-1",), smallest=TINY),
    "concentration.shape": Tensor((), smallest=TINY),
    "concentration.rate": Tensor((), smallest=TINY),
}

LIKELIHOOD_TENSORS = {
    "gaussian": {
        "posterior.noise": Tensor((), smallest=TINY),
        "posterior.ratio": Tensor((), smallest=TINY),
        "state.log_noise": Tensor(()),
        "state.log_ratio": Tensor(()),
    },
}

# Stored in place of the parameter `init` when that is an array.
INIT_TENSOR = {"parameters.init": Tensor(("rows of init", "components of init"))}

COMMON_SCALARS = {
    "elbo_": Scalar(float),
    "n_iter_": Scalar(int, smallest=1),
    "converged_": Scalar(bool),
    "interrupted_": Scalar(bool),
    "start_": Scalar(str),
    "n_rejected_steps_": Scalar(int, smallest=0),
    "amplitude_": Scalar(float, smallest=0.0),
    "concentration_": Scalar(float, smallest=TINY),
    "n_features_in_": Scalar(int, smallest=1),
}

LIKELIHOOD_SCALARS = {
    "gaussian": {"noise_variance_": Scalar(float, smallest=0.0)},
}

# Sizes that plain values repeat: of a number its value, of a list its length.
REPEATED_SIZES = {"n_features_in_": "M", "n_iter_": "T", "feature_names": "M", "start_names": "S"}

# Parameters that `check_parameters` does not judge, or judges by more than their type.
PARAMETER_TYPES = {
    "init": (str, NoneType),
    "dtype": str,
    "random_state": (int, NoneType),
    "verbose": (int, float),
    "warm_start": (int, float),
}

# What is stored as JSON besides the tensors.
ENTRIES = {
    "parameters": dict,
    "fitted": dict,
    "feature_names": (list, NoneType),
    "start_names": list,
    "fortran_order": list,
}


def tensor_table(plain: Plain) -> dict[str, Tensor]:
    """The tensors that belong to a model with these plain values."""
    parameters = plain["parameters"]
    init = INIT_TENSOR if parameters["init"] is None else {}
    return COMMON_TENSORS | LIKELIHOOD_TENSORS[parameters["likelihood"]] | init


def scalar_table(plain: Plain) -> dict[str, Scalar]:
    """The plain fitted attributes that belong to a model with these plain values."""
    return COMMON_SCALARS | LIKELIHOOD_SCALARS[plain["parameters"]["likelihood"]]


def check_plain(plain: Any, known_parameters: Collection[str]) -> None:
    """The kinds of the entries, and that the parameters are known ones with plain values."""
    _require(isinstance(plain, dict), "the model is not described")
    _check_names("entry", plain, ENTRIES)
    for name, kind in ENTRIES.items():
        _require(isinstance(plain[name], kind), f"entry {name!r} is of the wrong kind")
    _refuse_unknown("parameter", plain["parameters"], known_parameters)
    for name, value in plain["parameters"].items():
        kind = PARAMETER_TYPES.get(name, (str, int, float))
        _require(isinstance(value, kind), f"parameter {name}={value!r} is of the wrong kind")


def check_model(estimator: Any, plain: Plain, tensors: Tensors) -> None:
    """Everything else; `estimator` is an unfitted one with the parameters of `plain`."""
    _check_parameters(estimator, plain["parameters"])
    _check_scalars(plain)
    table = tensor_table(plain)
    _check_names("tensor", tensors, table)
    for name, declared in table.items():
        _check_entries(name, tensors[name], declared)
    _check_sizes(plain, _sizes(tensors, table))
    _check_matrices(tensors, table)
    _check_text(plain, table)


def _check_parameters(estimator: Any, parameters: Plain) -> None:
    try:
        _validation.check_choice("dtype", parameters["dtype"], _validation.DTYPES)
        _validation.check_parameters(estimator)
    except (TypeError, ValueError) as error:
        raise SchemaError(f"of its parameters, {error}") from error


def _check_scalars(plain: Plain) -> None:
    table = scalar_table(plain)
    _check_names("attribute", plain["fitted"], table)
    for name, declared in table.items():
        value = plain["fitted"][name]
        _require(type(value) is declared.kind, f"attribute {name}={value!r} is of the wrong kind")
        in_range = declared.kind is str or (-np.inf < value < np.inf and value >= declared.smallest)
        _require(in_range, f"attribute {name}={value!r} is out of range")


def _check_names(kind: str, found: Collection[str], expected: Collection[str]) -> None:
    missing = sorted(set(expected) - set(found))
    _require(not missing, f"{kind} {', '.join(missing)} is missing")
    _refuse_unknown(kind, found, expected)


def _refuse_unknown(kind: str, found: Collection[str], known: Collection[str]) -> None:
    unknown = sorted(set(found) - set(known))
    _require(not unknown, f"{kind} {', '.join(unknown)} is not known")


def _check_entries(name: str, tensor: np.ndarray, declared: Tensor) -> None:
    allowed = " or ".join(declared.dtypes)
    _require(tensor.dtype.name in declared.dtypes, f"tensor {name} is {tensor.dtype} in place of {allowed}")
    if declared.finite:
        _require(np.isfinite(tensor).all(), f"tensor {name} is not finite throughout")
        _require((tensor >= declared.smallest).all(), f"tensor {name} has entries that are too small")


def _sizes(tensors: Tensors, table: dict[str, Tensor]) -> dict[str, int]:
    """The sizes by name, the same for all tensors."""
    sizes: dict[str, int] = {}
    for name, declared in table.items():
        sizes = _fit_shape(name, tensors[name].shape, declared, sizes)
    return sizes


def _check_sizes(plain: Plain, sizes: dict[str, int]) -> None:
    for name, size in sizes.items():
        _require(size > 0 or name in SIZES_THAT_MAY_BE_ZERO, f"there are no entries along {name}")
    for name, size in REPEATED_SIZES.items():
        value = plain["fitted"].get(name, plain.get(name))
        number = len(value) if isinstance(value, list) else value
        _require(number in (None, sizes[size]), f"{name} does not agree with the tensors")
    _require(sizes["R"] <= sizes["M"], "there are more directions than columns")
    _require(sizes["A"] <= sizes["N"], "there are more anchors than rows")


def _check_matrices(tensors: Tensors, table: dict[str, Tensor]) -> None:
    for name, declared in table.items():
        if declared.symmetric:
            matrix = tensors[name]
            difference = np.max(np.abs(matrix - np.swapaxes(matrix, -1, -2)))
            _require(difference <= 1e-10 * np.max(np.abs(matrix)), f"tensor {name} is not symmetric")
    latents = {tensors[name].dtype for name in ("state.latent_mean", "state.latent_factor")}
    _require(len(latents) == 1, "the latents of the state have two types")


def _fit_shape(name: str, shape: tuple[int, ...], declared: Tensor, sizes: dict[str, int]) -> dict[str, int]:
    """The sizes known so far with those that this tensor adds."""
    for symbols in (declared.shape, declared.other_shape):
        fitted = None if symbols is None else _bind(symbols, shape, sizes)
        if fitted is not None:
            return fitted
    wanted = " or ".join(f"({', '.join(s)})" for s in (declared.shape, declared.other_shape) if s is not None)
    known = ", ".join(f"{symbol} = {size}" for symbol, size in sizes.items())
    raise SchemaError(f"tensor {name} has shape {shape} in place of {wanted} with {known or 'any sizes'}")


def _bind(symbols: Shape, shape: tuple[int, ...], sizes: dict[str, int]) -> dict[str, int] | None:
    if len(symbols) != len(shape):
        return None
    bound = dict(sizes)
    for symbol, size in zip(symbols, shape, strict=True):
        derived = DERIVED_SIZES.get(symbol)
        if size != (derived(bound) if derived else bound.setdefault(symbol, size)):
            return None
    return bound


def _check_text(plain: Plain, table: dict[str, Tensor]) -> None:
    for entry in ("feature_names", "start_names", "fortran_order"):
        for name in plain[entry] or ():
            _require(isinstance(name, str), f"{name!r} in {entry} is not text")
    _require(len(set(plain["start_names"])) == len(plain["start_names"]), "a start is named twice")
    _require(set(plain["fortran_order"]) <= set(table), "fortran_order names a tensor that is not known")


def _require(condition: Any, otherwise: str) -> None:
    if not condition:
        raise SchemaError(otherwise)
