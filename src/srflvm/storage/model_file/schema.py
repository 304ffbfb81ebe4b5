"""Schema of a model file: tables of its tensors and plain values, and the checks that follow from them.

A tensor is declared by its name, "group.field", and its shape in named sizes and numbers. The same name
always stands for the same size, so the tables say how the shapes of all tensors fit together. A new fitted
attribute is one line here, and one in `_ADDED`. Tensors that depend on the likelihoods are declared by
`Schema.tensors` for each group of columns.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass, fields, replace
from functools import cached_property
from types import NoneType
from typing import Any

import numpy as np

from srflvm.data import schema as frames
from srflvm.exceptions import ModelFileError, check_choice
from srflvm.inference.params import DTYPES, Params
from srflvm.likelihoods.base import Likelihood
from srflvm.likelihoods.columns import LIKELIHOODS
from srflvm.posterior.votes import UNKNOWN
from srflvm.storage.container import SchemaError, TensorForms, Tensors, require
from srflvm.storage.model_file.likelihoods import decode_choice

SCHEMA_VERSION = 6

Plain = dict[str, Any]

_Shape = tuple[str | int, ...]

_TINY = float(np.finfo(np.float64).smallest_subnormal)


@dataclass(frozen=True)
class _Tensor:
    """Declaration of an array: its shape (or either of two), its possible types, bounds of its entries."""

    shape: _Shape
    other_shape: _Shape | None = None
    dtypes: tuple[str, ...] = ("float64",)
    finite: bool = True
    smallest: float = -np.inf
    symmetric: bool = False


@dataclass(frozen=True)
class _Scalar:
    """Declaration of a plain value: its type and the smallest it may be."""

    kind: type
    smallest: float = -np.inf


# Sizes: N rows, M columns, C channels, R directions of the channels, Q latent dimensions, F frequencies,
# D dimensions of the affine part (Q or none), L features with the constant, P pairs of them, K mixture
# components, A anchors, T sweeps, S starts, V columns of classes that rows vote on, B rows that vote, E
# entries of their points. A size is set by the groups of columns and the affine part, or else by the first
# tensor that mentions it.
_DERIVED_SIZES = {
    "1+Q": lambda sizes: 1 + sizes["Q"],
    "2F": lambda sizes: 2 * sizes["F"],
    "L": lambda sizes: _n_features(sizes),
    "P": lambda sizes: _n_features(sizes) * (_n_features(sizes) + 1) // 2,
    "K-1": lambda sizes: sizes["K"] - 1,
}
_SIZES_THAT_MAY_BE_ZERO = ("S", "D")

_PRECISION_OF_THE_FIT = ("float32", "float64")

_COMMON_TENSORS = {
    "columns.scale": _Tensor((), smallest=_TINY),
    "posterior.frequencies": _Tensor(("F", "Q")),
    "posterior.anchors": _Tensor(("A", "Q")),
    "posterior.anchor_scores": _Tensor(("A", "R")),
    "fitted.embedding_": _Tensor(("N", "Q")),
    "fitted.embedding_std_": _Tensor(("N", "Q"), smallest=_TINY),
    "fitted.relevance_": _Tensor(("Q",)),
    "fitted.elbo_history_": _Tensor(("T",), finite=False),
    "fitted.mixture_weights_": _Tensor(("K",), smallest=0.0),
    "fitted.mixture_means_": _Tensor(("K", "Q")),
    "fitted.mixture_covariances_": _Tensor(("K", "Q", "Q"), symmetric=True),
    "starts.elbos": _Tensor(("S",), finite=False),
    "state.latent_mean": _Tensor(("N", "Q"), dtypes=_PRECISION_OF_THE_FIT),
    "state.latent_factor": _Tensor(("N", "Q", "Q"), ("N", "Q"), dtypes=_PRECISION_OF_THE_FIT),
    "state.mixture_mean": _Tensor(("K", "Q")),
    "state.mixture_factor": _Tensor(("K", "Q", "Q"), ("K", "Q")),
    "state.logits": _Tensor(("F", "K")),
    "sticks.a": _Tensor(("K-1",), smallest=_TINY),
    "sticks.b": _Tensor(("K-1",), smallest=_TINY),
    "concentration.shape": _Tensor((), smallest=_TINY),
    "concentration.rate": _Tensor((), smallest=_TINY),
}

# Of a `GaussianPosterior`, whose columns are its channels.
_GAUSSIAN_TENSORS = {
    "columns.mean": _Tensor(("M",)),
    "columns.directions": _Tensor(("M", "R")),
    "posterior.weights": _Tensor(("2F", "M")),
    "posterior.weight_covariance": _Tensor(("2F", "2F"), symmetric=True),
    "posterior.noise": _Tensor((), smallest=_TINY),
    "posterior.ratio": _Tensor((), smallest=_TINY),
    "state.log_noise": _Tensor(()),
    "state.log_ratio": _Tensor(()),
}

# Of a `SitePosterior`, besides what each group of columns has. Units are in the order of the columns.
_SITE_TENSORS = {
    "columns.mean": _Tensor(("C",)),
    "columns.directions": _Tensor(("C", "R")),
    "posterior.weights": _Tensor(("L", "C")),
    "posterior.level": _Tensor(("C",)),
    "posterior.amplitude": _Tensor(("C",), smallest=_TINY),
    "layout.count_means": _Tensor(("M",)),
    "layout.location": _Tensor(("M",)),
    "layout.scale": _Tensor(("M",), smallest=_TINY),
}

# Of the covariances of the weights of a `SitePosterior`: those of every channel by themselves, or one basis
# of all channels and variances along it.
_PACKED_TENSORS = {"posterior.packed_covariance": _Tensor(("C", "P"), dtypes=("float32",))}
_SHARED_BASIS_TENSORS = {
    "posterior.basis": _Tensor(("L", "L"), dtypes=_PRECISION_OF_THE_FIT),
    "posterior.spectrum": _Tensor(("C", "L"), dtypes=_PRECISION_OF_THE_FIT, smallest=0.0),
}

# Of a `SitePosterior` with an affine part: scales of the waves and of each latent.
_AFFINE_TENSORS = {
    "posterior.affine": _Tensor(("1+Q",), smallest=0.0),
    "state.log_affine": _Tensor(("1+Q",)),
}

# Of a `SitePosterior` with votes of training rows on columns of classes.
_VOTES_TENSORS = {
    "votes.points": _Tensor(("V", "B", "E"), dtypes=("float32",)),
    "votes.codes": _Tensor(("V", "B"), smallest=UNKNOWN),
    "votes.shares": _Tensor(("V",), smallest=0.0),
}

# Of a `SitePosterior` with columns of counts.
_COUNT_TENSORS = {"fitted.size_factors_": _Tensor(("N",), smallest=_TINY)}

# Of the state, one for each group with c channels; the weights only if they are climbed by gradients.
_STATE_OF_GROUPS = {"log_amplitude": _Tensor(("c",))}
_WEIGHTS_OF_GROUPS = {
    "weight_mean": _Tensor(("c", "L"), dtypes=_PRECISION_OF_THE_FIT),
    "weight_log_std": _Tensor(("c", "L"), dtypes=_PRECISION_OF_THE_FIT),
}

# Of every name in the entry "likelihood_parameters"; NaN where a column has no such parameter.
_LEARNED_TENSOR = _Tensor(("M",), finite=False)

# Stored in place of the parameter `init` when that is an array.
_INIT_TENSOR = {"parameters.init": _Tensor(("rows of init", "components of init"))}

_COMMON_SCALARS = {
    "elbo_": _Scalar(float),
    "n_iter_": _Scalar(int, smallest=1),
    "converged_": _Scalar(bool),
    "interrupted_": _Scalar(bool),
    "start_": _Scalar(str),
    "n_rejected_steps_": _Scalar(int, smallest=0),
    "n_samples_seen_": _Scalar(int, smallest=1),
    "amplitude_": _Scalar(float, smallest=0.0),
    "concentration_": _Scalar(float, smallest=_TINY),
    "n_features_in_": _Scalar(int, smallest=1),
    "n_components_": _Scalar(int, smallest=1),
}

_GAUSSIAN_SCALARS = {"noise_variance_": _Scalar(float, smallest=0.0)}

# Sizes that plain values repeat: of a number its value, of a list its length.
_REPEATED_SIZES = {
    "n_features_in_": "M",
    "n_components_": "Q",
    "n_iter_": "T",
    "feature_names": "M",
    "start_names": "S",
}

# Parameters that files do not hold.
_PARAMETERS_NOT_STORED = ("callbacks", "checkpoint_dir")

# Parameters that `Params.check` does not check, or whose type is only part of its check.
_PARAMETER_TYPES = {
    "likelihood": (str, dict),
    "affine": (str, bool),
    "size_factors": (str, NoneType),
    "batch_size": (str, int, NoneType),
    "init": (str, NoneType),
    "dtype": str,
    "random_state": (int, NoneType),
    "verbose": (int, float),
    "warm_start": (int, float),
}

# How sizes of rows are estimated, and the value that stands for it in files of before version 4, in which it
# followed from the parameter `size_factors` and the means of the columns.
_SIZE_METHODS = ("totals", "ratios", None)
SIZES_BY_MEANS = "by means"

# Values stored as JSON besides the tensors. "groups" is None for a `GaussianPosterior`; "weights_in_state"
# says whether the state is that of a `GradientLayer`, "has_affine" whether latents are among the features,
# "shares_basis" whether the covariances of all channels are in one basis, "has_votes" whether training rows
# vote on classes.
# "columns" describes the columns of a data frame, and is None for other data.
_ENTRIES = {
    "parameters": dict,
    "fitted": dict,
    "feature_names": (list, NoneType),
    "start_names": list,
    "fortran_order": list,
    "groups": (list, NoneType),
    "size_method": (str, NoneType),
    "weights_in_state": bool,
    "has_affine": bool,
    "shares_basis": bool,
    "has_votes": bool,
    "likelihood_parameters": list,
    "columns": (dict, NoneType),
}

# The version of the format in which entries, tensors and plain values came in, if not the first, and the
# values of the entries in files of version 1, all of which hold Gaussian models.
_ADDED = {
    "groups": 2,
    "weights_in_state": 2,
    "likelihood_parameters": 2,
    "fitted.relevance_": 2,
    "n_samples_seen_": 3,
    "size_method": 4,
    "fitted.size_factors_": 4,
    "has_affine": 5,
    "columns": 5,
    "n_components_": 5,
    "shares_basis": 6,
    "has_votes": 6,
}
_VALUES_BEFORE: Plain = {
    "groups": None,
    "weights_in_state": False,
    "likelihood_parameters": [],
    "size_method": SIZES_BY_MEANS,
    "has_affine": False,
    "shares_basis": False,
    "has_votes": False,
    "columns": None,
}

# What files of before version 5 mean by parameters that they do not mention: the models of their time.
_PARAMETERS_BEFORE: Plain = {"n_components": 2, "likelihood": "gaussian", "affine": False}

_GROUP_ENTRIES = {"likelihood", "columns", "spread"}

# Fields that say how many channels or learned parameters there are: for each column, or for all alike.
_COUNTING_FIELDS = ("n_categories", "n_levels")

# Default values of the parameters that files hold.
DEFAULT_PARAMETERS = {
    field.name: field.default for field in fields(Params) if field.name not in _PARAMETERS_NOT_STORED
}


@dataclass(frozen=True)
class _StoredGroup:
    """Group of columns as a file describes it.

    Its channels follow those of the group before it, as many as the likelihood has for that many columns.
    `learned` has the number of values of each learned parameter: one for each channel, or one.
    """

    likelihood: Likelihood
    columns: list[int]
    spread: float
    channels: slice
    learned: dict[str, int]

    @property
    def n_channels(self) -> int:
        return self.channels.stop - self.channels.start

    @classmethod
    def parse(cls, group: Plain, start: int) -> _StoredGroup:
        """Find the channels, from `start` on, that the likelihood makes of a row without observations."""
        likelihood = _group_likelihood(group)
        try:
            y, constants = likelihood.channels(np.full((1, len(group["columns"])), np.nan))
            learned = likelihood.start(y, constants).parameters
        except (ArithmeticError, TypeError, ValueError) as error:
            raise SchemaError(f"of its groups, {str(error).rstrip('.')}") from error
        sizes = {name: len(value) for name, value in learned.items()}
        return cls(likelihood, group["columns"], group["spread"], slice(start, start + y.shape[1]), sizes)


@dataclass(frozen=True)
class Schema:
    """Plain values of a model file of some version, and the declarations of all that belongs to them."""

    plain: Plain
    version: int = SCHEMA_VERSION

    @classmethod
    def parse(cls, plain: Any, version: int = SCHEMA_VERSION) -> Schema:
        """Check the kinds of the entries of a file, and add the entries that its version does not have."""
        require(isinstance(plain, dict), "the model is not described")
        entries = _of_version(_ENTRIES, version)
        _check_names("entry", plain, entries)
        for name, kind in entries.items():
            require(isinstance(plain[name], kind), f"entry {name!r} is of the wrong kind")
        _refuse_unknown("parameter", plain["parameters"], DEFAULT_PARAMETERS)
        for name, value in plain["parameters"].items():
            kind = _PARAMETER_TYPES.get(name, (str, int, float))
            require(isinstance(value, kind), f"parameter {name}={value!r} is of the wrong kind")
        before = _PARAMETERS_BEFORE if version < _ADDED["has_affine"] else {}
        parameters = DEFAULT_PARAMETERS | before | plain["parameters"]
        return cls(_VALUES_BEFORE | plain | {"parameters": parameters}, version)

    @property
    def has_groups(self) -> bool:
        """Return whether the columns have likelihoods of their own, as those of a `SitePosterior` have."""
        return self.plain["groups"] is not None

    @cached_property
    def groups(self) -> tuple[_StoredGroup, ...]:
        """Return the groups of columns in their order, none of a Gaussian model."""
        found, start = [], 0
        for group in self.plain["groups"] or ():
            found.append(_StoredGroup.parse(group, start))
            start = found[-1].channels.stop
        return tuple(found)

    @property
    def has_counts(self) -> bool:
        """Return whether the likelihood of any column takes sizes of rows."""
        return any(group.likelihood.takes_sizes for group in self.groups)

    @property
    def columns(self) -> frames.Schema | None:
        """Return what the columns of a data frame are; None for other data."""
        plain = self.plain["columns"]
        return None if plain is None else frames.Schema.from_json(plain)

    @property
    def state_of_groups(self) -> dict[str, _Tensor]:
        """Return the entries of the state that hold an array for each group, besides learned parameters."""
        if not self.has_groups:
            return {}
        return _STATE_OF_GROUPS | (_WEIGHTS_OF_GROUPS if self.plain["weights_in_state"] else {})

    @property
    def scalars(self) -> dict[str, _Scalar]:
        """Return the declarations of the plain fitted attributes."""
        table = _COMMON_SCALARS | ({} if self.has_groups else _GAUSSIAN_SCALARS)
        return _of_version(table, self.version)

    @cached_property
    def tensors(self) -> dict[str, _Tensor]:
        """Return the declarations of all tensors."""
        kind = self._tensors_of_sites() if self.has_groups else _GAUSSIAN_TENSORS
        init = _INIT_TENSOR if self.plain["parameters"]["init"] is None else {}
        names = self.plain["likelihood_parameters"]
        learned = {f"likelihood_parameters.{name}": _LEARNED_TENSOR for name in names}
        return _of_version(_COMMON_TENSORS | kind | learned | init, self.version)

    def _tensors_of_sites(self) -> dict[str, _Tensor]:
        # an affine part is checked before the features, whose number depends on it
        affine = _AFFINE_TENSORS if self.plain["has_affine"] else {}
        covariance = _SHARED_BASIS_TENSORS if self.plain["shares_basis"] else _PACKED_TENSORS
        counts = _COUNT_TENSORS if self.has_counts else {}
        votes = _VOTES_TENSORS if self.plain["has_votes"] else {}
        return affine | _SITE_TENSORS | covariance | self._tensors_of_groups() | votes | counts

    def _tensors_of_groups(self) -> dict[str, _Tensor]:
        table = {}
        for index, group in enumerate(self.groups):
            for name, declared in self.state_of_groups.items():
                shape = tuple(group.n_channels if symbol == "c" else symbol for symbol in declared.shape)
                table[f"{name}.{index}"] = replace(declared, shape=shape)
            for name, number in group.learned.items():
                table[f"learned_{index}.{name}"] = _Tensor((number,))
                table[f"learned_in_state_{index}.{name}"] = _Tensor((number,))
        return table

    def parameters(self, tensors: TensorForms) -> Plain:
        """Return the parameters of the model; an array `init` is among the tensors."""
        parameters = self.plain["parameters"]
        init = {"init": tensors.get("parameters.init")} if parameters["init"] is None else {}
        return parameters | {"likelihood": decode_choice(parameters["likelihood"])} | init

    def check_forms(self, tensors: TensorForms) -> None:
        """Check everything that does not depend on the numbers in the tensors."""
        self._check_parameters(tensors)
        self._check_scalars()
        self._check_text()
        if self.has_groups:
            _check_groups(self.plain["groups"], tensors)
        self._check_flags()
        _check_names("tensor", tensors, self.tensors)
        for name, declared in self.tensors.items():
            _check_type(name, tensors[name].dtype, declared)
        sizes = self._sizes(tensors)
        self._check_sizes(sizes)
        self._check_columns(sizes["M"])
        latents = {tensors[name].dtype for name in ("state.latent_mean", "state.latent_factor")}
        require(len(latents) == 1, "the latents of the state have two types")
        known = set(self.plain["fortran_order"]) <= set(self.tensors)
        require(known, "fortran_order names a tensor that is not known")

    def check_values(self, tensors: Tensors) -> None:
        """Check the numbers in tensors that `check_forms` has accepted."""
        for name, declared in self.tensors.items():
            _check_entries(name, tensors[name], declared)

    def _check_parameters(self, tensors: TensorForms) -> None:
        parameters = self.parameters(tensors)
        try:
            check_choice("dtype", parameters["dtype"], DTYPES)
            Params(**parameters).check()
        except (TypeError, ValueError) as error:
            raise SchemaError(f"of its parameters, {error}") from error

    def _check_flags(self) -> None:
        """Check the entries that say of what kind the model is."""
        of_groups = {
            "weights_in_state": "weights in a state",
            "has_affine": "an affine part",
            "shares_basis": "a basis of covariances",
            "has_votes": "votes",
        }
        for name, what in of_groups.items():
            require(self.has_groups or not self.plain[name], f"it has {what} without groups")
        method = self.plain["size_method"]
        before = (SIZES_BY_MEANS,) if self.version < _ADDED["size_method"] else ()
        require(method in (*_SIZE_METHODS, *before), f"size_method={method!r} is not known")

    def _check_columns(self, n_columns: int) -> None:
        """Check that columns of a frame are described as `to_json` describes them, each with a likelihood."""
        plain = self.plain["columns"]
        if plain is None:
            return
        try:
            columns = frames.Schema.from_json(plain)
            is_plain = _as_text(columns.to_json()) == _as_text(plain)
        except (ModelFileError, TypeError, ValueError, RecursionError) as error:
            raise SchemaError(f"of its columns, {str(error).rstrip('.')}") from error
        require(is_plain, "of its columns, the description is not one that was written")
        require(len(columns.columns) == n_columns, "columns does not agree with the tensors")
        for column in columns.columns:
            known = column.likelihood in LIKELIHOODS
            require(known, f"of its columns, the likelihood {column.likelihood!r} is not known")

    def _check_scalars(self) -> None:
        found = self.plain["fitted"]
        _check_names("attribute", found, self.scalars)
        for name, declared in self.scalars.items():
            value = found[name]
            require(type(value) is declared.kind, f"attribute {name}={value!r} is of the wrong kind")
            in_range = declared.kind is str or (-np.inf < value < np.inf and value >= declared.smallest)
            require(in_range, f"attribute {name}={value!r} is out of range")

    def _check_text(self) -> None:
        plain = self.plain
        for entry in ("feature_names", "start_names", "likelihood_parameters", "fortran_order"):
            for name in plain[entry] or ():
                require(isinstance(name, str), f"{name!r} in {entry} is not text")
        unique = {"start": "start_names", "likelihood's parameter": "likelihood_parameters"}
        for kind, entry in unique.items():
            require(len(set(plain[entry])) == len(plain[entry]), f"a {kind} is named twice")

    def _sizes(self, tensors: TensorForms) -> dict[str, int]:
        """Return the sizes by name, the same for all tensors."""
        sizes = {}
        if self.has_groups:
            sizes["M"] = sum(len(group.columns) for group in self.groups)
            sizes["C"] = sum(group.n_channels for group in self.groups)
            sizes["D"] = tensors["posterior.affine"].size - 1 if self.plain["has_affine"] else 0
        for name, declared in self.tensors.items():
            sizes = _fit_shape(name, tensors[name].shape, declared, sizes)
        return sizes

    def _check_sizes(self, sizes: dict[str, int]) -> None:
        plain = self.plain
        for name, size in sizes.items():
            require(size > 0 or name in _SIZES_THAT_MAY_BE_ZERO, f"there are no entries along {name}")
        for name, size in _REPEATED_SIZES.items():
            value = plain["fitted"].get(name, plain.get(name))
            number = len(value) if isinstance(value, list) else value
            require(number in (None, sizes[size]), f"{name} does not agree with the tensors")
        require(sizes["R"] <= sizes.get("C", sizes["M"]), "there are more directions than columns")
        n_seen = plain["fitted"].get("n_samples_seen_", sizes["N"])
        require(max(sizes["A"], sizes["N"]) <= n_seen, "there are more rows or anchors than were seen")


def _as_text(plain: Plain) -> str:
    """Return plain values as JSON, in which 1, 1.0 and True differ; refuse numbers that are not finite."""
    return json.dumps(plain, allow_nan=False, sort_keys=True)


def _n_features(sizes: dict[str, int]) -> int:
    """Return the number of features: waves, an even number of those of the affine part, the constant."""
    return 2 * sizes["F"] + sizes["D"] + sizes["D"] % 2 + 1


def _of_version(table: dict[str, Any], version: int) -> dict[str, Any]:
    """Return the part of a table that files of a version hold."""
    return {name: declared for name, declared in table.items() if _ADDED.get(name, 1) <= version}


def _check_groups(groups: list[Any], tensors: TensorForms) -> None:
    """Check every group by itself, and that each column is in exactly one."""
    n_numbers = sum(tensor.size for tensor in tensors.values())
    for index, group in enumerate(groups):
        sound = isinstance(group, dict) and group.keys() == _GROUP_ENTRIES
        require(sound, f"group {index} is not described")
        _check_group(f"group {index}", group, n_numbers)
    columns = sorted(column for group in groups for column in group["columns"])
    require(columns, "there are no groups of columns")
    require(columns == list(range(len(columns))), "its groups do not have every column exactly once")


def _check_group(where: str, group: Plain, n_numbers: int) -> None:
    columns, spread = group["columns"], group["spread"]
    indices = isinstance(columns, list) and columns and all(type(column) is int for column in columns)
    require(indices, f"{where} has no list of columns")
    require(type(spread) is float and _TINY <= spread < np.inf, f"{where} has spread={spread!r}")
    most = _largest_count(_group_likelihood(group), len(columns))
    require(most <= 2 * n_numbers, f"{where} needs more than the file holds")
    require(_StoredGroup.parse(group, 0).n_channels > 0, f"{where} has no channels")


def _group_likelihood(group: Plain) -> Likelihood:
    likelihood = decode_choice(group["likelihood"])
    require(isinstance(likelihood, Likelihood), f"{group['likelihood']!r} does not describe a likelihood")
    return likelihood


def _largest_count(likelihood: Likelihood, n_columns: int) -> int:
    """Count the channels and levels that a likelihood asks for.

    There are at most two for every number that the group has in the tensors, so that larger counts can be
    refused before anything of their size is made.
    """
    counts = [getattr(likelihood, field, None) or 0 for field in _COUNTING_FIELDS]
    return max(sum(count) if isinstance(count, tuple) else count * n_columns for count in counts)


def _check_names(kind: str, found: Collection[str], expected: Collection[str]) -> None:
    missing = sorted(set(expected) - set(found))
    require(not missing, f"{kind} {', '.join(missing)} is missing")
    _refuse_unknown(kind, found, expected)


def _refuse_unknown(kind: str, found: Collection[str], known: Collection[str]) -> None:
    unknown = sorted(set(found) - set(known))
    require(not unknown, f"{kind} {', '.join(unknown)} is not known")


def _check_type(name: str, found: np.dtype, declared: _Tensor) -> None:
    allowed = " or ".join(declared.dtypes)
    require(found.name in declared.dtypes, f"tensor {name} is {found} in place of {allowed}")


def _check_entries(name: str, tensor: np.ndarray, declared: _Tensor) -> None:
    if declared.finite:
        require(np.isfinite(tensor).all(), f"tensor {name} is not finite throughout")
        require((tensor >= declared.smallest).all(), f"tensor {name} has entries that are too small")
    if declared.symmetric:
        difference = np.max(np.abs(tensor - np.swapaxes(tensor, -1, -2)))
        require(difference <= 1e-10 * np.max(np.abs(tensor)), f"tensor {name} is not symmetric")


def _fit_shape(name: str, shape: tuple[int, ...], declared: _Tensor, sizes: dict[str, int]) -> dict[str, int]:
    """Return the sizes known so far with those that this tensor adds."""
    shapes = [symbols for symbols in (declared.shape, declared.other_shape) if symbols is not None]
    for symbols in shapes:
        fitted = _bind(symbols, shape, sizes)
        if fitted is not None:
            return fitted
    wanted = " or ".join(f"({', '.join(map(str, symbols))})" for symbols in shapes)
    known = ", ".join(f"{symbol} = {size}" for symbol, size in sizes.items())
    raise SchemaError(f"tensor {name} has shape {shape} in place of {wanted} with {known or 'any sizes'}")


def _bind(symbols: _Shape, shape: tuple[int, ...], sizes: dict[str, int]) -> dict[str, int] | None:
    if len(symbols) != len(shape):
        return None
    bound = dict(sizes)
    for symbol, size in zip(symbols, shape, strict=True):
        if size != _expected(symbol, size, bound):
            return None
    return bound


def _expected(symbol: str | int, size: int, bound: dict[str, int]) -> int:
    """Return the required value of a size; a name without one yet takes the size at hand."""
    if isinstance(symbol, int):
        return symbol
    derived = _DERIVED_SIZES.get(symbol)
    return derived(bound) if derived else bound.setdefault(symbol, size)
