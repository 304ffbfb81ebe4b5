"""A fitted estimator taken apart into plain values and arrays, and put together from them."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np

from srflvm import spectral
from srflvm._model_schema import Plain, Tensors, scalar_table, tensor_table
from srflvm.compression import Columns
from srflvm.estimator import SRFLVM
from srflvm.posterior import Posterior

_PARAMETERS_NOT_STORED = ("callbacks",)


def take_apart(estimator: Any) -> tuple[Plain, Tensors]:
    """The plain values and the arrays that make up a fitted estimator."""
    names = getattr(estimator, "feature_names_in_", None)
    plain: Plain = {"parameters": _plain_parameters(estimator)}
    plain["fitted"] = {name: _plain(getattr(estimator, name)) for name in scalar_table(plain)}
    plain["feature_names"] = None if names is None else [str(name) for name in names]
    plain["start_names"] = list(estimator.start_elbos_)
    groups, tensors = _groups(estimator), {}
    for name in tensor_table(plain):
        group, field = name.split(".")
        tensors[name] = np.asarray(groups[group][field])
    plain["fortran_order"] = [name for name, tensor in tensors.items() if _is_fortran(tensor)]
    return plain, tensors


def unfitted(plain: Plain, tensors: Tensors) -> SRFLVM:
    """An estimator with the stored parameters."""
    init = {"init": tensors.get("parameters.init")} if plain["parameters"]["init"] is None else {}
    return SRFLVM(**plain["parameters"] | init)


def put_together(estimator: SRFLVM, plain: Plain, tensors: Tensors) -> SRFLVM:
    """Set the fitted attributes of an unfitted estimator."""
    groups: dict[str, dict[str, Any]] = defaultdict(dict)
    for name, tensor in tensors.items():
        group, field = name.split(".")
        groups[group][field] = np.array(tensor, order="F" if name in plain["fortran_order"] else "C")
    columns = Columns(**_with_floats(groups["columns"]))
    posterior = Posterior(columns=columns, **_with_floats(groups["posterior"]))
    groups["state"]["sticks"] = spectral.Sticks(**groups["sticks"])
    groups["state"]["concentration"] = spectral.Concentration(**groups["concentration"])
    starts = zip(plain["start_names"], groups["starts"]["elbos"].tolist(), strict=True)
    vars(estimator).update(
        plain["fitted"],
        **groups["fitted"],
        start_elbos_=dict(starts),
        frequencies_=posterior.frequencies,
        _posterior=posterior,
        _state=groups["state"],
    )
    if plain["feature_names"] is not None:
        vars(estimator)["feature_names_in_"] = np.array(plain["feature_names"], dtype=object)
    return estimator


def default_parameters() -> dict[str, Any]:
    """All parameters that are stored, with their defaults."""
    defaults = SRFLVM().get_params(deep=False)
    return {name: value for name, value in defaults.items() if name not in _PARAMETERS_NOT_STORED}


def _plain_parameters(estimator: Any) -> dict[str, Any]:
    given = estimator.get_params(deep=False)
    parameters = {name: _plain(given[name]) for name in default_parameters()}
    parameters["dtype"] = np.dtype(parameters["dtype"]).name
    for name, kind in {"init": str, "random_state": int}.items():
        parameters[name] = parameters[name] if isinstance(parameters[name], kind) else None
    return parameters


def _groups(estimator: Any) -> dict[str, dict[str, Any]]:
    """Where the tensors of each group are found."""
    posterior, state = estimator._posterior, estimator._state
    init = None if isinstance(estimator.init, str) else np.asarray(estimator.init, dtype=np.float64)
    return {
        "columns": vars(posterior.columns),
        "posterior": vars(posterior),
        "fitted": vars(estimator),
        "starts": {"elbos": np.array(list(estimator.start_elbos_.values()), dtype=np.float64)},
        "state": state,
        "sticks": state["sticks"]._asdict(),
        "concentration": state["concentration"]._asdict(),
        "parameters": {"init": init},
    }


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _is_fortran(tensor: np.ndarray) -> bool:
    """Whether columns are contiguous; the order is kept because products round differently in the two."""
    return tensor.flags.f_contiguous and not tensor.flags.c_contiguous


def _with_floats(arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    return {name: float(array) if array.ndim == 0 else array for name, array in arrays.items()}
