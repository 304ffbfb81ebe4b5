"""Fingerprint of a fit: all that its result depends on, as texts that can be stored and compared.

A checkpoint is worth something only to the fit that wrote it. Data and arrays are told apart by checksums,
parameters by texts that a message can show.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import numbers
import re
from collections.abc import Iterator
from dataclasses import fields
from types import CodeType
from typing import Any

import jax
import numpy as np
from sklearn.utils import check_random_state

from srflvm._typing import FloatArray
from srflvm._version import __version__
from srflvm.data.sources import Source, pieces, rows_at_once
from srflvm.inference.params import Params
from srflvm.likelihoods.base import Likelihood
from srflvm.likelihoods.columns import LIKELIHOODS, Choice
from srflvm.parallel.communicator import Communicator
from srflvm.storage.container import plain_value, tensor_digest, text_digest

# Parameters that do not change the result of a fit, and `warm_start`, for which the state stands.
_WITHOUT_INFLUENCE = ("verbose", "callbacks", "checkpoint_dir", "warm_start")

# Parts that are checksums, of which a message need not show both.
DATA, SIZES, EARLIER_FIT = "the data", "the sizes", "the earlier fit that warm_start goes on from"

Fingerprint = dict[str, str]


def fingerprint(
    params: Params,
    source: Source,
    choice: Choice,
    log_sizes: FloatArray | None,
    state: Any,
    communicator: Communicator,
) -> Fingerprint:
    """Return a text for everything that the result of a fit depends on, by what messages call it."""
    given = {name: getattr(params, name) for name in sorted(one.name for one in fields(params))}
    parameters = {name: str(plain_value(v)) for name, v in given.items() if name not in _WITHOUT_INFLUENCE}
    parameters |= {
        "likelihood": _choice_text(choice),
        "init": given["init"] if isinstance(given["init"], str) else _array_text(given["init"]),
        "dtype": np.dtype(given["dtype"]).name,
        "random_state": _random_state_text(given["random_state"]),
    }
    return {
        DATA: _data_digest(source, communicator),
        SIZES: "none" if log_sizes is None else _array_text(log_sizes),
        EARLIER_FIT: "none" if state is None else _state_digest(state),
        **parameters,
        "the version of srflvm": __version__,
        "the version of jax": jax.__version__,
    }


def _data_digest(source: Source, communicator: Communicator) -> str:
    """Return a checksum of where entries are missing and of the others, whatever they are read from."""
    own = communicator.together(lambda: _digests_of_pieces(source, communicator))
    texts = [f"{source.n_rows} x {source.n_columns}", *itertools.chain(*communicator.gather(own))]
    return text_digest(" ".join(texts))


def _digests_of_pieces(source: Source, communicator: Communicator) -> list[str]:
    """Return checksums of the pieces that begin with a row of this process.

    The pieces do not depend on the processes.
    """
    size = rows_at_once(source.n_columns)
    first, stop = (-(-row // size) * size for row in communicator.row_range(source.n_rows))
    digests = []
    for _, piece in pieces(source, first, min(stop, source.n_rows)):
        missing = np.isnan(piece)
        digests.append(tensor_digest({"holes": np.packbits(missing), "observed": piece[~missing]}))
    return digests


def _state_digest(state: Any) -> str:
    leaves, _ = jax.tree_util.tree_flatten_with_path(state)
    return tensor_digest({jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in leaves})


def _array_text(values: Any) -> str:
    array = np.asarray(values, dtype=np.float64)
    return f"an array of shape {array.shape} with checksum {tensor_digest({'': array})[:16]}"


def _random_state_text(random_state: Any) -> str:
    if random_state is None or random_state is np.random:
        return "None"
    if isinstance(random_state, numbers.Integral):
        return str(int(random_state))
    kind, words, *rest = check_random_state(random_state).get_state(legacy=True)
    return f"a RandomState with checksum {text_digest(repr((kind, np.asarray(words).tolist(), rest)))[:16]}"


def _choice_text(choice: Choice) -> str:
    """Return the likelihood of all columns, or those of groups of columns."""
    if len(choice) == 1:
        return _likelihood_text(choice[0][0])
    return ", ".join(f"{_likelihood_text(likelihood)} for columns {c.tolist()}" for likelihood, c in choice)


def _likelihood_text(likelihood: Likelihood) -> str:
    kind = type(likelihood)
    name = kind.__name__ if LIKELIHOODS.get(kind.name) is kind else f"{kind.__module__}.{kind.__qualname__}"
    values = {field.name: getattr(likelihood, field.name) for field in fields(likelihood)}
    return f"{name}({', '.join(f'{field}={_field_text(value)}' for field, value in values.items())})"


def _field_text(value: Any) -> str:
    """Return a plain value, or the name of a function with a checksum of its code."""
    if not callable(value):
        return repr(value)
    function = inspect.unwrap(value)
    name = getattr(function, "__qualname__", type(function).__qualname__)
    texts = list(_callable_texts(function, ()))
    return f"{name} with checksum {text_digest(' '.join(texts))[:16]}" if texts else name


def _callable_texts(value: Any, around: tuple[Any, ...]) -> Iterator[str]:
    """Yield the code of a function, the defaults of its arguments and what it closes over.

    `around` are the functions that it was found in.
    """
    if any(value is other for other in around):
        return
    if isinstance(value, functools.partial):
        held = (value.func, *value.args, *value.keywords, *value.keywords.values())
    elif isinstance(code := getattr(value, "__code__", None), CodeType):
        yield from _code_texts(code)
        cells = (cell.cell_contents for cell in value.__closure__ or ())
        held = (*(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values(), *cells)
    else:
        return
    for part in held:
        yield from _callable_texts(part, (*around, value)) if callable(part) else (_held_text(part),)


def _held_text(value: Any) -> str:
    if isinstance(value, np.ndarray | jax.Array) and np.asarray(value).dtype.kind in "biuf":
        return _array_text(value)
    return re.sub(r" at 0x[0-9a-fA-F]+", "", repr(value))


def _code_texts(code: CodeType) -> Iterator[str]:
    yield from (code.co_code.hex(), repr(code.co_names))
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _code_texts(constant)
        elif isinstance(constant, frozenset):
            yield repr(sorted(map(repr, constant)))
        else:
            yield repr(constant)
