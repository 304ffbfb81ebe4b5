"""A fitted estimator taken apart into plain values and arrays, and put together from them."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np

from srflvm import spectral
from srflvm._model_checks import scalar_table, tensor_table
from srflvm._model_groups import arrays_of, describe, has_counts, parts_from, state_of_groups
from srflvm._model_likelihoods import choice_from, plain_choice, plain_value
from srflvm._model_schema import VALUES_BEFORE, Described, Plain, Tensors, require
from srflvm._types import FloatArray
from srflvm.compression import Columns
from srflvm.estimator import SRFLVM
from srflvm.gaussian_posterior import GaussianPosterior
from srflvm.posterior import Posterior
from srflvm.site_posterior import SitePosterior

_PARAMETERS_NOT_STORED = ("callbacks", "checkpoint_dir")
_TUPLES_IN_STATE = {"sticks": spectral.Sticks, "concentration": spectral.Concentration}


def take_apart(estimator: Any) -> tuple[Plain, Tensors]:
    """The plain values and the arrays that make up a fitted estimator."""
    names, posterior = getattr(estimator, "feature_names_in_", None), estimator._posterior
    plain: Plain = {"parameters": _plain_parameters(estimator)}
    plain["groups"] = describe(posterior.table) if isinstance(posterior, SitePosterior) else None
    plain["size_method"] = posterior.layout.size_method
    plain["weights_in_state"] = "weight_mean" in estimator._state
    plain["fitted"] = {name: plain_value(getattr(estimator, name)) for name in scalar_table(plain)}
    plain["feature_names"] = None if names is None else [str(name) for name in names]
    plain["start_names"] = list(estimator.start_elbos_)
    plain["likelihood_parameters"] = list(estimator.likelihood_parameters_)
    _refuse_to_forget(plain, estimator._state)
    arrays, tensors = _arrays(plain, estimator), {}
    for name in tensor_table(plain):
        group, field = name.split(".", 1)
        tensors[name] = np.asarray(arrays[group][field])
    plain["fortran_order"] = [name for name, tensor in tensors.items() if _is_fortran(tensor)]
    return plain, tensors


def _refuse_to_forget(plain: Plain, state: Any) -> None:
    """Every entry of the state is declared, so that warm starts survive saving."""
    of_groups = () if plain["groups"] is None else (*state_of_groups(plain), "parameters")
    known = {name.removeprefix("state.") for name in tensor_table(plain)} | {*of_groups, *_TUPLES_IN_STATE}
    unknown = sorted(set(state) - known)
    require(not unknown, f"its state has {', '.join(unknown)}, which no table of the format declares")


def completed(plain: Plain) -> Plain:
    """The plain values of a file of any version with those that it does not know."""
    parameters = default_parameters() | plain["parameters"]
    return VALUES_BEFORE | plain | {"parameters": parameters}


def unfitted(plain: Plain, tensors: Described) -> SRFLVM:
    """An estimator with the stored parameters."""
    parameters = plain["parameters"]
    init = {"init": tensors.get("parameters.init")} if parameters["init"] is None else {}
    return SRFLVM(**parameters | {"likelihood": choice_from(parameters["likelihood"])} | init)


def put_together(estimator: SRFLVM, plain: Plain, tensors: Tensors) -> SRFLVM:
    """Set the fitted attributes of an unfitted estimator."""
    arrays = _by_group(plain, tensors)
    posterior, state = _posterior_and_state(plain, arrays)
    starts = zip(plain["start_names"], arrays["starts"]["elbos"].tolist(), strict=True)
    vars(estimator).update(
        {"n_samples_seen_": len(arrays["fitted"]["embedding_"])} | plain["fitted"],
        **arrays["fitted"],
        **_learned(plain, arrays["likelihood_parameters"]),
        start_elbos_=dict(starts),
        frequencies_=posterior.frequencies,
        _posterior=posterior,
        _state=state,
        _stream=None,
    )
    if plain["feature_names"] is not None:
        vars(estimator)["feature_names_in_"] = np.array(plain["feature_names"], dtype=object)
    return estimator


def _by_group(plain: Plain, tensors: Tensors) -> dict[str, dict[str, Any]]:
    """The tensors in their order in memory, by the two parts of their names."""
    arrays: dict[str, dict[str, Any]] = defaultdict(dict)
    for name in (name for name in tensor_table(plain) if name in tensors):
        group, field = name.split(".", 1)
        order = "F" if name in plain["fortran_order"] else "C"
        arrays[group][field] = np.asarray(tensors[name], order=order)
    fitted = arrays["fitted"]
    if "relevance_" not in fitted:
        fitted["relevance_"] = _relevance(fitted["embedding_"], fitted["embedding_std_"])
    if plain["groups"] is not None and has_counts(plain) and "size_factors_" not in fitted:
        # files of before version 4 do not hold the sizes of rows
        fitted["size_factors_"] = np.ones(len(fitted["embedding_"]))
    return arrays


def _relevance(mean: FloatArray, std: FloatArray) -> FloatArray:
    """The mean over rows of KL(q(x_nq) || N(0, 1)), which files of version 1 do not hold."""
    return np.mean(0.5 * (mean**2 + std**2 - 1.0) - np.log(std), axis=0)


def _posterior_and_state(plain: Plain, arrays: dict[str, dict[str, Any]]) -> tuple[Posterior, Any]:
    kept = _with_floats(arrays["posterior"])
    kept["columns"] = Columns(**_with_floats(arrays["columns"]))
    state = arrays["state"] | {name: kind(**arrays[name]) for name, kind in _TUPLES_IN_STATE.items()}
    if plain["groups"] is None:
        return GaussianPosterior(**kept), state
    more, more_state = parts_from(plain, arrays)
    return SitePosterior(**kept, **more), state | more_state


def _learned(plain: Plain, arrays: dict[str, FloatArray]) -> dict[str, Any]:
    """`likelihood_parameters_`, and `noise_variance_` if it is one of them."""
    learned = {name: arrays[name] for name in plain["likelihood_parameters"]}
    noise = {"noise_variance_": learned["noise_variance"]} if "noise_variance" in learned else {}
    return noise | {"likelihood_parameters_": learned}


def default_parameters() -> dict[str, Any]:
    """All parameters that are stored, with their defaults."""
    defaults = SRFLVM().get_params(deep=False)
    return {name: value for name, value in defaults.items() if name not in _PARAMETERS_NOT_STORED}


def _plain_parameters(estimator: Any) -> dict[str, Any]:
    given = estimator.get_params(deep=False)
    parameters = {name: plain_value(given[name]) for name in default_parameters() if name != "likelihood"}
    parameters["likelihood"] = plain_choice(given["likelihood"])
    parameters["dtype"] = np.dtype(parameters["dtype"]).name
    for name, kind in {"init": str, "random_state": int}.items():
        parameters[name] = parameters[name] if isinstance(parameters[name], kind) else None
    return parameters


def _arrays(plain: Plain, estimator: Any) -> dict[str, dict[str, Any]]:
    """Where the tensors are found, by the first part of their names."""
    posterior, state = estimator._posterior, estimator._state
    init = None if isinstance(estimator.init, str) else np.asarray(estimator.init, dtype=np.float64)
    return {
        "columns": vars(posterior.columns),
        "posterior": vars(posterior),
        "fitted": vars(estimator),
        "starts": {"elbos": np.array(list(estimator.start_elbos_.values()), dtype=np.float64)},
        "state": state,
        "parameters": {"init": init},
        "likelihood_parameters": estimator.likelihood_parameters_,
        **{name: state[name]._asdict() for name in _TUPLES_IN_STATE},
        **({} if plain["groups"] is None else arrays_of(plain, posterior, state)),
    }


def _is_fortran(tensor: np.ndarray) -> bool:
    """Whether columns are contiguous; the order is kept because products round differently in the two."""
    return tensor.flags.f_contiguous and not tensor.flags.c_contiguous


def _with_floats(arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    return {name: float(array) if array.ndim == 0 else array for name, array in arrays.items()}
