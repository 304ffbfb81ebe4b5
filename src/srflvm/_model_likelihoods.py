"""Likelihoods to and from JSON: one of them, or the parameter `likelihood` with its mapping of columns.

A likelihood is its registered name and the fields of its dataclass, checked against their annotations; so one
that is added to the registry can be saved without a line here. Others are code, which files do not hold.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import fields
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import numpy as np

from srflvm._model_schema import Plain, SchemaError, require
from srflvm.likelihoods import LIKELIHOODS, Likelihood

_NAME, _FIELDS, _BY_COLUMN = "name", "fields", "by_column"


def plain_value(value: Any) -> Any:
    """A value as JSON can hold it: NumPy's scalars as Python's, tuples as lists."""
    if isinstance(value, tuple):
        return [plain_value(part) for part in value]
    return value.item() if isinstance(value, np.generic) else value


def plain_likelihood(likelihood: Likelihood) -> Plain:
    """The registered name and the fields of a likelihood."""
    kind = type(likelihood)
    require(
        LIKELIHOODS.get(kind.name) is kind,
        f"its likelihood {kind.__name__} is code of your own, and a model file holds no code. Pickle the "
        "model where that code can be imported, or fit one with a likelihood that has a name in "
        "srflvm.likelihoods.LIKELIHOODS",
    )
    values = {field.name: plain_value(getattr(likelihood, field.name)) for field in fields(likelihood)}
    return {_NAME: kind.name, _FIELDS: values}


def likelihood_from(plain: Any) -> Likelihood:
    """The likelihood with this name and these fields; fields that are not given have their defaults."""
    sound = isinstance(plain, dict) and plain.keys() == {_NAME, _FIELDS} and isinstance(plain[_FIELDS], dict)
    require(sound, f"{plain!r} does not describe a likelihood")
    name, values = plain[_NAME], plain[_FIELDS]
    require(isinstance(name, str) and name in LIKELIHOODS, f"likelihood {name!r} is not known")
    kind = LIKELIHOODS[name]
    hints, known = get_type_hints(kind), [field.name for field in fields(kind)]
    for field, value in values.items():
        require(field in known, f"likelihood {name!r} has no field {field!r}")
        require(_fits(value, hints[field]), f"likelihood {name!r} has {field}={value!r} of the wrong kind")
    try:
        return kind(**{field: _as_tuple(value) for field, value in values.items()})
    except (TypeError, ValueError) as error:
        raise SchemaError(f"of its likelihood {name!r}, {str(error).rstrip('.')}") from error


def plain_choice(value: Any) -> Any:
    """The parameter `likelihood`: a name, a likelihood, or pairs of columns and these."""
    if isinstance(value, Mapping):
        return {_BY_COLUMN: [[_plain_key(key), _plain_single(single)] for key, single in value.items()]}
    return _plain_single(value)


def choice_from(plain: Any) -> Any:
    """The parameter `likelihood` from its plain value; names are left for `check_parameters` to judge."""
    if not isinstance(plain, dict) or _BY_COLUMN not in plain:
        return _single_from(plain)
    pairs = plain[_BY_COLUMN]
    require(len(plain) == 1 and isinstance(pairs, list), "its likelihoods of columns are not a list")
    choice = {}
    for pair in pairs:
        require(isinstance(pair, list) and len(pair) == 2, f"{pair!r} is not a column and its likelihood")
        key = pair[0]
        require(_fits(key, str | int | tuple[str | int, ...]), f"likelihood has the key {key!r}")
        choice[_as_tuple(key)] = _single_from(pair[1])
    require(len(choice) == len(pairs), "likelihood has a key twice")
    return choice


def _plain_single(value: Any) -> Any:
    return plain_likelihood(value) if isinstance(value, Likelihood) else plain_value(value)


def _plain_key(key: Any) -> Any:
    """A name, an index, or a list of them; tuples inside a tuple mean the same as their elements."""
    return _elements(key) if isinstance(key, tuple) else plain_value(key)


def _elements(key: Any) -> list[Any]:
    if isinstance(key, tuple):
        return [element for part in key for element in _elements(part)]
    return [plain_value(key)]


def _single_from(plain: Any) -> Any:
    return plain if isinstance(plain, str) else likelihood_from(plain)


def _as_tuple(value: Any) -> Any:
    return tuple(_as_tuple(part) for part in value) if isinstance(value, list) else value


def _fits(value: Any, hint: Any) -> bool:
    """Whether a value of a JSON text is of an annotated type; a list stands for a tuple."""
    kind, parts = get_origin(hint), get_args(hint)
    if kind in (Union, UnionType):
        return any(_fits(value, part) for part in parts)
    if kind is tuple:
        return isinstance(value, list) and all(_fits(element, parts[0]) for element in value)
    if hint is float:
        return type(value) in (int, float) and abs(value) <= sys.float_info.max
    return type(value) is (NoneType if hint is None else hint)
