"""Likelihoods to and from JSON: one likelihood, or the parameter `likelihood` with its mapping of columns.

JSON holds the registered name of a likelihood and the fields of its dataclass, which are checked against
their annotations. A likelihood that is added to the registry can be saved without a line here. Others are
code, and files hold no code.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import fields
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from srflvm.likelihoods.base import Likelihood
from srflvm.likelihoods.columns import LIKELIHOODS
from srflvm.storage.container import SchemaError, plain_value, require

_NAME, _FIELDS, _BY_COLUMN = "name", "fields", "by_column"


def encode_choice(value: Any) -> Any:
    """Return what JSON holds of a choice: a name, a likelihood, or a mapping from columns to these."""
    if isinstance(value, Mapping):
        return {_BY_COLUMN: [[_encode_key(key), _encode_single(single)] for key, single in value.items()]}
    return _encode_single(value)


def decode_choice(plain: Any) -> Any:
    """Return the choice that `encode_choice` was given; names are not looked up."""
    if not isinstance(plain, dict) or _BY_COLUMN not in plain:
        return _decode_single(plain)
    pairs = plain[_BY_COLUMN]
    require(len(plain) == 1 and isinstance(pairs, list), "its likelihoods of columns are not a list")
    choice = {}
    for pair in pairs:
        require(isinstance(pair, list) and len(pair) == 2, f"{pair!r} is not a column and its likelihood")
        key = pair[0]
        require(_fits(key, str | int | tuple[str | int, ...]), f"likelihood has the key {key!r}")
        choice[_as_tuple(key)] = _decode_single(pair[1])
    require(len(choice) == len(pairs), "likelihood has a key twice")
    return choice


def _encode_single(value: Any) -> Any:
    if not isinstance(value, Likelihood):
        return plain_value(value)
    kind = type(value)
    require(
        LIKELIHOODS.get(kind.name) is kind,
        f"its likelihood {kind.__name__} is code of your own, and a model file holds no code. Pickle the "
        "model where that code can be imported, or fit one with a likelihood that has a name in "
        "srflvm.likelihoods.LIKELIHOODS",
    )
    values = {field.name: plain_value(getattr(value, field.name)) for field in fields(value)}
    return {_NAME: kind.name, _FIELDS: values}


def _decode_single(plain: Any) -> str | Likelihood:
    """Return a name as it is, or the likelihood described; fields that are not given have their defaults."""
    if isinstance(plain, str):
        return plain
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


def _encode_key(key: Any) -> Any:
    """Return a name, an index, or a list of them; nested tuples mean the same as one tuple of elements."""
    return _elements(key) if isinstance(key, tuple) else plain_value(key)


def _elements(key: Any) -> list[Any]:
    if isinstance(key, tuple):
        return [element for part in key for element in _elements(part)]
    return [plain_value(key)]


def _as_tuple(value: Any) -> Any:
    return tuple(_as_tuple(part) for part in value) if isinstance(value, list) else value


def _fits(value: Any, hint: Any) -> bool:
    """Return whether a value of a JSON text is of an annotated type; a list stands for a tuple."""
    kind, parts = get_origin(hint), get_args(hint)
    if kind in (Union, UnionType):
        return any(_fits(value, part) for part in parts)
    if kind is tuple:
        return isinstance(value, list) and all(_fits(element, parts[0]) for element in value)
    if hint is float:
        return type(value) in (int, float) and abs(value) <= sys.float_info.max
    return type(value) is (NoneType if hint is None else hint)
