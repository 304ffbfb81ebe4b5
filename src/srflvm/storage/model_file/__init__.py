"""Model files: the parameters and fitted attributes of a model in one file, and back.

The file is a safetensors container (see `srflvm.storage.container`). Its header holds the format, the version
of the format, the plain values of `schema` and the SHA-256 of the tensors. The two keys of the metadata and
the header's format and versions keep their meaning in all versions of the format. Nothing is pickled: loading
a file runs no code from it.

This package imports `inference` and the layers below it. It works on values and does not know the estimator.
"""

from __future__ import annotations

import os
from collections import defaultdict
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError

from srflvm._typing import FloatArray
from srflvm._version import __version__
from srflvm.data.encoding import Columns, Group, Layout
from srflvm.exceptions import ModelFileError
from srflvm.inference.params import Params
from srflvm.likelihoods.base import Units
from srflvm.model import spectral
from srflvm.numerics.weight_covariances import (
    PackedCovariances,
    SharedBasisCovariances,
    WeightCovariances,
)
from srflvm.posterior.base import Posterior
from srflvm.posterior.gaussian import GaussianPosterior
from srflvm.posterior.sites import SitePosterior
from srflvm.posterior.votes import Electorate
from srflvm.storage.atomic import write_whole
from srflvm.storage.container import (
    HEADER_KEY,
    Container,
    SchemaError,
    Tensors,
    encode,
    plain_value,
    require,
)
from srflvm.storage.model_file.likelihoods import encode_choice
from srflvm.storage.model_file.schema import (
    DEFAULT_PARAMETERS,
    SCHEMA_VERSION,
    SIZES_BY_MEANS,
    Plain,
    Schema,
)

__all__ = ["StoredModel", "read_versions"]

_FORMAT = "srflvm-model"
_NUMBER_TYPES = ("F64", "F32")
# How the covariances of the weights are stored, by whether all channels share a basis: their type, and the
# names of the tensors that hold its fields.
_COVARIANCES: dict[bool, tuple[type[WeightCovariances], tuple[str, ...]]] = {
    False: (PackedCovariances, ("packed_covariance",)),
    True: (SharedBasisCovariances, ("basis", "spectrum")),
}
_TUPLES_IN_STATE = {"sticks": spectral.Sticks, "concentration": spectral.Concentration}


@dataclass(frozen=True)
class StoredModel:
    """Fitted model as values: constructor parameters and fitted attributes of `SRFLVM`, by their names."""

    parameters: dict[str, Any]
    attributes: dict[str, Any]

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the model to one file.

        The file appears whole or not at all: it is written under another name in the same directory and
        then renamed, so a failure leaves an older file at `path` as it was. Everything is stored except
        `callbacks`, `checkpoint_dir` and a `random_state` that is not an integer; these are None after
        reading.

        Raises
        ------
        ModelFileError
            The model cannot be saved: a likelihood is code of your own, or a parameter has a value that no
            model can be fitted with.
        """
        Params(**self.parameters).check()
        try:
            schema, tensors = _take_apart(self)
            schema.check_forms(tensors)
            schema.check_values(tensors)
        except SchemaError as error:
            raise ModelFileError(f"The model cannot be saved: {error}.") from error
        header = {
            "format": _FORMAT,
            "schema_version": SCHEMA_VERSION,
            "library_version": __version__,
            "model": schema.plain,
        }
        write_whole(path, encode(header, tensors))

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> StoredModel:
        """Read a model from a file that `write` wrote, after checking all of it.

        Raises
        ------
        FileNotFoundError
            There is no such file.
        ModelFileError
            The file is damaged, truncated, not a model file, or of a newer version of the format.
        """
        path = Path(path)
        try:
            return _put_together(*_read_parts(path))
        except SchemaError as error:
            raise ModelFileError(
                f"{path} is not a sound model file: {error}. Restore it from a copy, or save the model again."
            ) from error


def read_versions(path: str | os.PathLike[str]) -> tuple[int, str]:
    """Return the version of a model file's format and of the library that wrote it."""
    header = _read_header(_open(Path(path)))
    return header["schema_version"], str(header.get("library_version"))


# ---- reading ---------------------------------------------------------------------------------------------


def _open(path: Path) -> Container:
    if not path.exists():
        raise FileNotFoundError(f"There is no model file {path}. Check the name and the directory.")
    if not path.is_file():
        raise ModelFileError(f"{path} is not a file. Give the name of a file that SRFLVM.save wrote.")
    try:
        return Container.open(path)
    except SafetensorError as error:
        raise ModelFileError(
            f"{path} is not a model file, or it is cut short or damaged ({error}). "
            "Give a file that SRFLVM.save wrote, restore it from a copy, or save the model again."
        ) from error


def _read_header(container: Container) -> dict[str, Any]:
    if HEADER_KEY not in container.metadata:
        raise ModelFileError(
            f"{container.path} is a safetensors file but not a model file. "
            "Give a file that SRFLVM.save wrote."
        )
    header = container.header(_FORMAT)
    _check_version(container.path, header)
    return header


def _check_version(path: Path, header: dict[str, Any]) -> None:
    version = header.get("schema_version")
    if type(version) is not int or version < 1:
        raise SchemaError(f"its version of the format is {version!r}")
    if version > SCHEMA_VERSION:
        raise ModelFileError(
            f"{path} was written by srflvm {header.get('library_version')} in version {version} of the "
            f"format; this is srflvm {__version__}, which reads up to version {SCHEMA_VERSION}. "
            "Upgrade srflvm to load it."
        )


def _read_parts(path: Path) -> tuple[Schema, Tensors]:
    """Check the description of the model before any number of it is read."""
    container = _open(path)
    header = _read_header(container)
    for name, stored in container.tensors.items():
        wanted = " or ".join(_NUMBER_TYPES)
        require(stored.kind in _NUMBER_TYPES, f"tensor {name} is {stored.kind} in place of {wanted}")
    schema = Schema.parse(header.get("model"), header["schema_version"])
    schema.check_forms(container.tensors)
    tensors = container.read(header)
    schema.check_values(tensors)
    return schema, tensors


# ---- from a model to plain values and tensors ------------------------------------------------------------


def _take_apart(model: StoredModel) -> tuple[Schema, Tensors]:
    attributes = model.attributes
    posterior, state = attributes["_posterior"], attributes["_state"]
    names, columns = attributes.get("feature_names_in_"), attributes.get("columns_")
    plain: Plain = {
        "parameters": _plain_parameters(model.parameters),
        "groups": None if posterior.shares_covariance else _describe_groups(posterior.layout),
        "size_method": posterior.layout.size_method,
        "weights_in_state": "weight_mean" in state,
        "has_affine": "log_affine" in state,
        "shares_basis": posterior.covariances.basis is not None,
        "has_votes": posterior.has_votes,
        "feature_names": None if names is None else [str(name) for name in names],
        "start_names": list(attributes["start_elbos_"]),
        "likelihood_parameters": list(attributes["likelihood_parameters_"]),
        "columns": None if columns is None else columns.to_json(),
    }
    schema = Schema(plain)
    plain["fitted"] = {name: plain_value(attributes[name]) for name in schema.scalars}
    _refuse_undeclared(schema, state)
    arrays, tensors = _arrays(schema, model), {}
    for name in schema.tensors:
        group, field = name.split(".", 1)
        tensors[name] = np.asarray(arrays[group][field])
    plain["fortran_order"] = [name for name, tensor in tensors.items() if _is_fortran(tensor)]
    return Schema.parse(plain), tensors


def _plain_parameters(given: dict[str, Any]) -> Plain:
    parameters = {name: plain_value(given[name]) for name in DEFAULT_PARAMETERS if name != "likelihood"}
    parameters["likelihood"] = encode_choice(given["likelihood"])
    parameters["dtype"] = np.dtype(parameters["dtype"]).name
    for name, kind in {"init": str, "random_state": int}.items():
        parameters[name] = parameters[name] if isinstance(parameters[name], kind) else None
    return parameters


def _describe_groups(layout: Layout) -> list[Plain]:
    return [
        {
            "likelihood": encode_choice(group.likelihood),
            "columns": group.columns.tolist(),
            "spread": float(group.spread),
        }
        for group in layout.groups
    ]


def _refuse_undeclared(schema: Schema, state: Any) -> None:
    """Refuse a state with entries that the schema does not declare, so that warm starts survive saving."""
    of_groups = (*schema.state_of_groups, "parameters") if schema.has_groups else ()
    known = {name.removeprefix("state.") for name in schema.tensors} | {*of_groups, *_TUPLES_IN_STATE}
    unknown = sorted(set(state) - known)
    require(not unknown, f"its state has {', '.join(unknown)}, which no table of the format declares")


def _arrays(schema: Schema, model: StoredModel) -> dict[str, dict[str, Any]]:
    """Return where the tensors are found, by the first part of their names."""
    attributes, init = model.attributes, model.parameters["init"]
    posterior, state = attributes["_posterior"], attributes["_state"]
    return {
        "columns": {field.name: getattr(posterior.columns, field.name) for field in fields(Columns)},
        "posterior": posterior.as_dict(),
        "fitted": attributes,
        "starts": {"elbos": np.array(list(attributes["start_elbos_"].values()), dtype=np.float64)},
        "state": state,
        "parameters": {"init": None if isinstance(init, str) else np.asarray(init, dtype=np.float64)},
        "likelihood_parameters": attributes["likelihood_parameters_"],
        **{name: state[name]._asdict() for name in _TUPLES_IN_STATE},
        **(_arrays_of_groups(schema, posterior, state) if schema.has_groups else {}),
    }


def _arrays_of_groups(schema: Schema, posterior: SitePosterior, state: Any) -> dict[str, dict[str, Any]]:
    """Return where the tensors of the groups and the units of the columns are found."""
    layout = posterior.layout
    location, scale = np.empty(layout.n_columns), np.empty(layout.n_columns)
    for group in layout.groups:
        location[group.columns], scale[group.columns] = group.units
    names = _COVARIANCES[schema.plain["shares_basis"]][1]
    found = {
        "layout": {"count_means": layout.count_means, "location": location, "scale": scale},
        "posterior": posterior.as_dict() | dict(zip(names, posterior.covariance, strict=True)),
        "votes": posterior.votes._asdict() if posterior.votes is not None else {},
    }
    for name in schema.state_of_groups:
        found[name] = {str(index): value for index, value in enumerate(state[name])}
    for index, (learned, in_state) in enumerate(zip(posterior.parameters, state["parameters"], strict=True)):
        found[f"learned_{index}"], found[f"learned_in_state_{index}"] = learned, in_state
    return found


def _is_fortran(tensor: np.ndarray) -> bool:
    """Return whether columns are contiguous; products round differently in the two orders."""
    return tensor.flags.f_contiguous and not tensor.flags.c_contiguous


# ---- from plain values and tensors to a model ------------------------------------------------------------


def _put_together(schema: Schema, tensors: Tensors) -> StoredModel:
    plain, arrays = schema.plain, _by_group(schema, tensors)
    posterior, state = _posterior_and_state(schema, arrays)
    starts = zip(plain["start_names"], arrays["starts"]["elbos"].tolist(), strict=True)
    attributes = {
        "n_samples_seen_": len(arrays["fitted"]["embedding_"]),
        "n_components_": arrays["fitted"]["embedding_"].shape[1],
        **plain["fitted"],
        **arrays["fitted"],
        **_learned(plain, arrays["likelihood_parameters"]),
        "start_elbos_": dict(starts),
        "frequencies_": posterior.frequencies,
        "_posterior": posterior,
        "_state": state,
        "_stream": None,
    }
    if plain["feature_names"] is not None:
        attributes["feature_names_in_"] = np.array(plain["feature_names"], dtype=object)
    if schema.columns is not None:
        attributes["columns_"] = schema.columns
    return StoredModel(schema.parameters(tensors), attributes)


def _by_group(schema: Schema, tensors: Tensors) -> dict[str, dict[str, Any]]:
    """Return the tensors in their order in memory, by the two parts of their names."""
    arrays: dict[str, dict[str, Any]] = defaultdict(dict)
    for name in schema.tensors:
        group, field = name.split(".", 1)
        order = "F" if name in schema.plain["fortran_order"] else "C"
        arrays[group][field] = np.asarray(tensors[name], order=order)
    fitted = arrays["fitted"]
    if "relevance_" not in fitted:
        fitted["relevance_"] = _relevance(fitted["embedding_"], fitted["embedding_std_"])
    if schema.has_counts and "size_factors_" not in fitted:
        # files of before version 4 do not hold the sizes of rows
        fitted["size_factors_"] = np.ones(len(fitted["embedding_"]))
    return arrays


def _relevance(mean: FloatArray, std: FloatArray) -> FloatArray:
    """Compute the mean over rows of KL(q(x_nq) || N(0, 1)), which files of version 1 do not hold."""
    return np.mean(0.5 * (mean**2 + std**2 - 1.0) - np.log(std), axis=0)


def _posterior_and_state(schema: Schema, arrays: dict[str, dict[str, Any]]) -> tuple[Posterior, Any]:
    kept = _with_floats(arrays["posterior"])
    kept["columns"] = Columns(**_with_floats(arrays["columns"]))
    state = arrays["state"] | {name: kind(**arrays[name]) for name, kind in _TUPLES_IN_STATE.items()}
    if not schema.has_groups:
        return GaussianPosterior(**kept), state
    every = range(len(schema.groups))
    kind, names = _COVARIANCES[schema.plain["shares_basis"]]
    kept["covariance"] = kind(*(kept.pop(name) for name in names))
    kept["table"] = _layout(schema, **arrays["layout"])
    kept["parameters"] = tuple(arrays.get(f"learned_{index}", {}) for index in every)
    for name in schema.state_of_groups:
        state[name] = tuple(arrays[name][str(index)] for index in every)
    state["parameters"] = tuple(arrays.get(f"learned_in_state_{index}", {}) for index in every)
    posterior = SitePosterior(**kept)
    if not schema.plain["has_votes"]:
        return posterior, state
    votes = Electorate(**arrays["votes"])
    require(posterior.suits(votes), "its votes are not those of its columns")
    return replace(posterior, votes=votes), state


def _layout(schema: Schema, count_means: FloatArray, location: FloatArray, scale: FloatArray) -> Layout:
    groups, method = [], schema.plain["size_method"]
    for group in schema.groups:
        columns = np.array(group.columns)
        units = Units(location[columns], scale[columns])
        groups.append(Group(group.likelihood, columns, units, group.channels, group.spread))
    layout = Layout(tuple(groups), count_means, method)
    if method != SIZES_BY_MEANS:
        return layout
    asked = schema.plain["parameters"]["size_factors"]
    return replace(layout, size_method=layout.suitable_size_method() if asked == "auto" else asked)


def _learned(plain: Plain, arrays: dict[str, FloatArray]) -> dict[str, Any]:
    """Return `likelihood_parameters_`, and `noise_variance_` if it is one of them."""
    learned = {name: arrays[name] for name in plain["likelihood_parameters"]}
    noise = {"noise_variance_": learned["noise_variance"]} if "noise_variance" in learned else {}
    return noise | {"likelihood_parameters_": learned}


def _with_floats(arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    return {name: float(array) if array.ndim == 0 else array for name, array in arrays.items()}
