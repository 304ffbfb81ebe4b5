"""The checks of a model that follow from the tables of `_model_schema`."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np

from srflvm import _validation
from srflvm._model_groups import check_groups, group_sizes, group_tensors, has_counts
from srflvm._model_schema import (
    ADDED,
    COMMON_SCALARS,
    COMMON_TENSORS,
    COUNT_TENSORS,
    DERIVED_SIZES,
    ENTRIES,
    GAUSSIAN_SCALARS,
    GAUSSIAN_TENSORS,
    INIT_TENSOR,
    LEARNED_TENSOR,
    PARAMETER_TYPES,
    REPEATED_SIZES,
    SCHEMA_VERSION,
    SITE_TENSORS,
    SIZE_METHODS,
    SIZES_BY_MEANS,
    SIZES_THAT_MAY_BE_ZERO,
    Described,
    Plain,
    Scalar,
    SchemaError,
    Shape,
    Tensor,
    Tensors,
    of_version,
    require,
)


def tensor_table(plain: Plain) -> dict[str, Tensor]:
    """The tensors that belong to a model with these plain values."""
    kind = GAUSSIAN_TENSORS if plain["groups"] is None else SITE_TENSORS | group_tensors(plain)
    if plain["groups"] is not None and has_counts(plain):
        kind = kind | COUNT_TENSORS
    init = INIT_TENSOR if plain["parameters"]["init"] is None else {}
    learned = {f"likelihood_parameters.{name}": LEARNED_TENSOR for name in plain["likelihood_parameters"]}
    return COMMON_TENSORS | kind | learned | init


def scalar_table(plain: Plain) -> dict[str, Scalar]:
    """The plain fitted attributes that belong to a model with these plain values."""
    return COMMON_SCALARS | (GAUSSIAN_SCALARS if plain["groups"] is None else {})


def check_plain(plain: Any, known_parameters: Collection[str], version: int = SCHEMA_VERSION) -> None:
    """The kinds of the entries, and that the parameters are known ones with plain values."""
    require(isinstance(plain, dict), "the model is not described")
    entries = of_version(ENTRIES, version)
    _check_names("entry", plain, entries)
    for name, kind in entries.items():
        require(isinstance(plain[name], kind), f"entry {name!r} is of the wrong kind")
    _refuse_unknown("parameter", plain["parameters"], known_parameters)
    for name, value in plain["parameters"].items():
        kind = PARAMETER_TYPES.get(name, (str, int, float))
        require(isinstance(value, kind), f"parameter {name}={value!r} is of the wrong kind")


def check_model(estimator: Any, plain: Plain, tensors: Described, version: int = SCHEMA_VERSION) -> None:
    """Everything that does not depend on the numbers in the tensors, whose shapes and types are enough;
    `estimator` is an unfitted one with the parameters of `plain`."""
    _check_parameters(estimator, plain["parameters"])
    _check_scalars(plain, version)
    _check_text(plain)
    if plain["groups"] is not None:
        check_groups(plain["groups"], tensors)
    require(plain["groups"] or not plain["weights_in_state"], "there are weights in a state without groups")
    known = (*SIZE_METHODS, SIZES_BY_MEANS) if version < ADDED["size_method"] else SIZE_METHODS
    require(plain["size_method"] in known, f"size_method={plain['size_method']!r} is not known")
    table = of_version(tensor_table(plain), version)
    _check_names("tensor", tensors, table)
    for name, declared in table.items():
        _check_type(name, tensors[name].dtype, declared)
    _check_sizes(plain, _sizes(plain, tensors, table))
    latents = {tensors[name].dtype for name in ("state.latent_mean", "state.latent_factor")}
    require(len(latents) == 1, "the latents of the state have two types")
    require(set(plain["fortran_order"]) <= set(table), "fortran_order names a tensor that is not known")


def check_values(plain: Plain, tensors: Tensors, version: int = SCHEMA_VERSION) -> None:
    """The numbers in tensors that `check_model` has found no fault with."""
    for name, declared in of_version(tensor_table(plain), version).items():
        _check_entries(name, tensors[name], declared)


def _check_parameters(estimator: Any, parameters: Plain) -> None:
    try:
        _validation.check_choice("dtype", parameters["dtype"], _validation.DTYPES)
        _validation.check_parameters(estimator)
    except (TypeError, ValueError) as error:
        raise SchemaError(f"of its parameters, {error}") from error


def _check_scalars(plain: Plain, version: int) -> None:
    table = of_version(scalar_table(plain), version)
    _check_names("attribute", plain["fitted"], table)
    for name, declared in table.items():
        value = plain["fitted"][name]
        require(type(value) is declared.kind, f"attribute {name}={value!r} is of the wrong kind")
        in_range = declared.kind is str or (-np.inf < value < np.inf and value >= declared.smallest)
        require(in_range, f"attribute {name}={value!r} is out of range")


def _check_text(plain: Plain) -> None:
    for entry in ("feature_names", "start_names", "likelihood_parameters", "fortran_order"):
        for name in plain[entry] or ():
            require(isinstance(name, str), f"{name!r} in {entry} is not text")
    for kind, entry in {"start": "start_names", "likelihood's parameter": "likelihood_parameters"}.items():
        require(len(set(plain[entry])) == len(plain[entry]), f"a {kind} is named twice")


def _check_names(kind: str, found: Collection[str], expected: Collection[str]) -> None:
    missing = sorted(set(expected) - set(found))
    require(not missing, f"{kind} {', '.join(missing)} is missing")
    _refuse_unknown(kind, found, expected)


def _refuse_unknown(kind: str, found: Collection[str], known: Collection[str]) -> None:
    unknown = sorted(set(found) - set(known))
    require(not unknown, f"{kind} {', '.join(unknown)} is not known")


def _check_type(name: str, found: np.dtype, declared: Tensor) -> None:
    allowed = " or ".join(declared.dtypes)
    require(found.name in declared.dtypes, f"tensor {name} is {found} in place of {allowed}")


def _check_entries(name: str, tensor: np.ndarray, declared: Tensor) -> None:
    if declared.finite:
        require(np.isfinite(tensor).all(), f"tensor {name} is not finite throughout")
        require((tensor >= declared.smallest).all(), f"tensor {name} has entries that are too small")
    if declared.symmetric:
        difference = np.max(np.abs(tensor - np.swapaxes(tensor, -1, -2)))
        require(difference <= 1e-10 * np.max(np.abs(tensor)), f"tensor {name} is not symmetric")


def _sizes(plain: Plain, tensors: Described, table: dict[str, Tensor]) -> dict[str, int]:
    """The sizes by name, the same for all tensors."""
    sizes = {} if plain["groups"] is None else group_sizes(plain["groups"])
    for name, declared in table.items():
        sizes = _fit_shape(name, tensors[name].shape, declared, sizes)
    return sizes


def _check_sizes(plain: Plain, sizes: dict[str, int]) -> None:
    for name, size in sizes.items():
        require(size > 0 or name in SIZES_THAT_MAY_BE_ZERO, f"there are no entries along {name}")
    for name, size in REPEATED_SIZES.items():
        value = plain["fitted"].get(name, plain.get(name))
        number = len(value) if isinstance(value, list) else value
        require(number in (None, sizes[size]), f"{name} does not agree with the tensors")
    require(sizes["R"] <= sizes.get("C", sizes["M"]), "there are more directions than columns")
    n_seen = plain["fitted"].get("n_samples_seen_", sizes["N"])
    require(max(sizes["A"], sizes["N"]) <= n_seen, "there are more rows or anchors than were seen")


def _fit_shape(name: str, shape: tuple[int, ...], declared: Tensor, sizes: dict[str, int]) -> dict[str, int]:
    """The sizes known so far with those that this tensor adds."""
    shapes = [symbols for symbols in (declared.shape, declared.other_shape) if symbols is not None]
    for symbols in shapes:
        fitted = _bind(symbols, shape, sizes)
        if fitted is not None:
            return fitted
    wanted = " or ".join(f"({', '.join(map(str, symbols))})" for symbols in shapes)
    known = ", ".join(f"{symbol} = {size}" for symbol, size in sizes.items())
    raise SchemaError(f"tensor {name} has shape {shape} in place of {wanted} with {known or 'any sizes'}")


def _bind(symbols: Shape, shape: tuple[int, ...], sizes: dict[str, int]) -> dict[str, int] | None:
    if len(symbols) != len(shape):
        return None
    bound = dict(sizes)
    for symbol, size in zip(symbols, shape, strict=True):
        if size != _expected(symbol, size, bound):
            return None
    return bound


def _expected(symbol: str | int, size: int, bound: dict[str, int]) -> int:
    """What a size must be; a name without one yet takes the size at hand."""
    if isinstance(symbol, int):
        return symbol
    derived = DERIVED_SIZES.get(symbol)
    return derived(bound) if derived else bound.setdefault(symbol, size)
