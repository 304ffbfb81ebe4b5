"""The groups of columns of a model with sites, as a file describes them.

Of each group JSON holds the likelihood, the columns and the spread. Its channels follow those of the group
before it, as many as the likelihood has for that many columns; the units of all columns are tensors.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from srflvm._model_likelihoods import likelihood_from, plain_likelihood
from srflvm._model_schema import (
    SIZES_BY_MEANS,
    STATE_OF_GROUPS,
    TINY,
    WEIGHTS_OF_GROUPS,
    Described,
    Plain,
    SchemaError,
    Tensor,
    require,
)
from srflvm.likelihoods import Likelihood, Units
from srflvm.observations import Group, Layout
from srflvm.size_factors import suitable_method

GROUP_ENTRIES = ("likelihood", "columns", "spread")

# Fields that say how many channels or learned parameters there are: for each column, or for all alike.
_COUNTING_FIELDS = ("n_categories", "n_levels")


class Needs(NamedTuple):
    """How many channels a group has, and how many values each learned parameter: one a channel, or one."""

    n_channels: int
    learned: dict[str, int]


def describe(layout: Layout) -> list[Plain]:
    """The plain values of all groups."""
    return [
        {
            "likelihood": plain_likelihood(group.likelihood),
            "columns": group.columns.tolist(),
            "spread": float(group.spread),
        }
        for group in layout.groups
    ]


def state_of_groups(plain: Plain) -> dict[str, Tensor]:
    """The entries of the state that are tuples with an array for each group, besides learned parameters."""
    return STATE_OF_GROUPS | (WEIGHTS_OF_GROUPS if plain["weights_in_state"] else {})


def arrays_of(plain: Plain, posterior: Any, state: Any) -> dict[str, dict[str, Any]]:
    """Where the tensors of `group_tensors` and the units of the columns are found."""
    layout = posterior.table
    location, scale = np.empty(layout.n_columns), np.empty(layout.n_columns)
    for group in layout.groups:
        location[group.columns], scale[group.columns] = group.units
    found = {"layout": {"count_means": layout.count_means, "location": location, "scale": scale}}
    for name in state_of_groups(plain):
        found[name] = {str(index): value for index, value in enumerate(state[name])}
    for index, (learned, in_state) in enumerate(zip(posterior.parameters, state["parameters"], strict=True)):
        found[f"learned_{index}"], found[f"learned_in_state_{index}"] = learned, in_state
    return found


def parts_from(plain: Plain, arrays: dict[str, dict[str, Any]]) -> tuple[Plain, Plain]:
    """What a posterior and a state have besides the tensors under their own names."""
    every = range(len(plain["groups"]))
    posterior = {
        "table": _layout_from(plain, **arrays["layout"]),
        "parameters": tuple(arrays.get(f"learned_{index}", {}) for index in every),
    }
    state = {name: tuple(arrays[name][str(index)] for index in every) for name in state_of_groups(plain)}
    state["parameters"] = tuple(arrays.get(f"learned_in_state_{index}", {}) for index in every)
    return posterior, state


def _layout_from(plain: Plain, count_means: Any, location: Any, scale: Any) -> Layout:
    found, start = [], 0
    for group in plain["groups"]:
        columns = np.array(group["columns"])
        channels = slice(start, start := start + _needs(group).n_channels)
        units = Units(location[columns], scale[columns])
        found.append(Group(likelihood_from(group["likelihood"]), columns, units, channels, group["spread"]))
    layout = Layout(tuple(found), count_means, plain["size_method"])
    if plain["size_method"] == SIZES_BY_MEANS:
        asked = plain["parameters"]["size_factors"]
        layout = replace(layout, size_method=suitable_method(layout) if asked == "auto" else asked)
    return layout


def has_counts(plain: Plain) -> bool:
    """Tell whether any column's likelihood takes sizes of rows."""
    return any(likelihood_from(group["likelihood"]).takes_sizes for group in plain["groups"])


def group_tensors(plain: Plain) -> dict[str, Tensor]:
    """The tensors that each group has of its own."""
    table = {}
    for index, group in enumerate(plain["groups"]):
        needs = _needs(group)
        for name, declared in state_of_groups(plain).items():
            shape = tuple(needs.n_channels if symbol == "c" else symbol for symbol in declared.shape)
            table[f"{name}.{index}"] = replace(declared, shape=shape)
        for name, number in needs.learned.items():
            table[f"learned_{index}.{name}"] = Tensor((number,))
            table[f"learned_in_state_{index}.{name}"] = Tensor((number,))
    return table


def group_sizes(groups: list[Plain]) -> dict[str, int]:
    """The number of columns M and of channels C of all groups together."""
    return {
        "M": sum(len(group["columns"]) for group in groups),
        "C": sum(_needs(group).n_channels for group in groups),
    }


def check_groups(groups: list[Any], tensors: Described) -> None:
    """Every group by itself, and that each column is in exactly one."""
    n_numbers = sum(tensor.size for tensor in tensors.values())
    for index, group in enumerate(groups):
        sound = isinstance(group, dict) and group.keys() == set(GROUP_ENTRIES)
        require(sound, f"group {index} is not described")
        _check_group(f"group {index}", group, n_numbers)
    columns = sorted(column for group in groups for column in group["columns"])
    require(columns, "there are no groups of columns")
    require(columns == list(range(len(columns))), "its groups do not have every column exactly once")


def _check_group(where: str, group: Plain, n_numbers: int) -> None:
    columns, spread = group["columns"], group["spread"]
    indices = isinstance(columns, list) and columns and all(type(column) is int for column in columns)
    require(indices, f"{where} has no list of columns")
    require(type(spread) is float and TINY <= spread < np.inf, f"{where} has spread={spread!r}")
    likelihood = likelihood_from(group["likelihood"])
    require(
        _largest_count(likelihood, len(columns)) <= 2 * n_numbers, f"{where} needs more than the file holds"
    )
    require(_needs(group).n_channels > 0, f"{where} has no channels")


def _largest_count(likelihood: Likelihood, n_columns: int) -> int:
    """At most two for every number that the group has in the tensors, so that larger ones can be refused
    before anything of their size is made."""
    counts = [getattr(likelihood, field, None) or 0 for field in _COUNTING_FIELDS]
    return max(sum(count) if isinstance(count, tuple) else count * n_columns for count in counts)


def _needs(group: Plain) -> Needs:
    """What the likelihood makes of a row in which nothing is observed."""
    likelihood = likelihood_from(group["likelihood"])
    try:
        y, constants = likelihood.channels(np.full((1, len(group["columns"])), np.nan))
        learned = likelihood.start(y, constants).parameters
    except (ArithmeticError, TypeError, ValueError) as error:
        raise SchemaError(f"of its groups, {str(error).rstrip('.')}") from error
    return Needs(y.shape[1], {name: len(value) for name, value in learned.items()})
