"""Random mappings from columns to likelihoods."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from srflvm.likelihoods import Binomial, Gaussian, Multinomial, StudentT
from srflvm.likelihoods.columns import as_likelihood, choose

LIKELIHOODS = [
    "gaussian",
    "poisson",
    "negative-binomial",
    "bernoulli",
    "categorical",
    Gaussian(noise="column"),
    StudentT(degrees_of_freedom=3),
    Binomial(n_trials=4),
]


@st.composite
def mappings(draw):
    """Draw a mapping that has every column once, the names of the columns, and their likelihoods."""
    n_columns = draw(st.integers(1, 12))
    names = [f"column-{index}" for index in range(n_columns)]
    order = draw(st.permutations(range(n_columns)))
    cuts = sorted(draw(st.sets(st.integers(1, n_columns), max_size=n_columns)) | {0, n_columns})
    mapping, expected = {}, {}
    for start, stop in pairwise(cuts):
        columns = order[start:stop]
        parts = tuple(names[column] if draw(st.booleans()) else column for column in columns)
        key = parts[0] if len(parts) == 1 and draw(st.booleans()) else parts
        mapping[key] = draw(st.sampled_from(LIKELIHOODS))
        expected |= dict.fromkeys(columns, as_likelihood(mapping[key]))
    return mapping, names, expected


@given(mappings())
def test_every_column_has_its_likelihood_exactly_once(case):
    mapping, names, expected = case
    choice = choose(mapping, len(names), names)
    assert sorted(column for _, columns in choice for column in columns.tolist()) == sorted(expected)
    assert {int(column): likelihood for likelihood, columns in choice for column in columns} == expected


@given(mappings())
def test_groups_come_in_the_order_of_their_columns(case):
    mapping, names, _ = case
    choice = choose(mapping, len(names), names)
    firsts = [int(min(columns)) for _, columns in choice]
    assert firsts == sorted(firsts)
    assert all(np.all(np.diff(columns) > 0) for _, columns in choice)
    assert len({likelihood for likelihood, _ in choice}) == len(choice)


@given(mappings(), st.data())
def test_a_mapping_with_a_column_too_often_is_refused(case, data):
    mapping, names, _ = case
    key = data.draw(st.sampled_from(list(mapping)))
    column = key[0] if isinstance(key, tuple) else key
    with pytest.raises(ValueError, match="under both"):
        choose({**mapping, (column,) * 2: "gaussian"}, len(names), names)


@given(mappings(), st.data(), st.booleans())
def test_columns_that_a_mapping_leaves_open_have_the_automatic_likelihoods(case, data, named):
    mapping, names, expected = case
    key = data.draw(st.sampled_from(list(mapping)))
    automatic = data.draw(st.lists(st.sampled_from(LIKELIHOODS), min_size=len(names), max_size=len(names)))
    rest = {other: "auto" if other == key else mapping[other] for other in mapping if named or other != key}
    parts = key if isinstance(key, tuple) else (key,)
    left = {names.index(part) if isinstance(part, str) else part for part in parts}
    for given_ones in (automatic, None):
        choice = choose(rest, len(names), names, given_ones)
        found = {int(column): likelihood for likelihood, columns in choice for column in columns}
        assert len(found) == sum(len(columns) for _, columns in choice) == len(names)
        for column, likelihood in found.items():
            own = "gaussian" if given_ones is None else given_ones[column]
            assert likelihood == (as_likelihood(own) if column in left else expected[column])


@given(st.permutations(range(6)), st.integers(1, 5))
def test_columns_of_vectors_do_not_join_those_of_another_key(order, cut):
    mapping = {tuple(order[:cut]): Multinomial(), tuple(order[cut:]): Multinomial()}
    found = {frozenset(columns.tolist()) for _, columns in choose(mapping, 6, None)}
    assert found == {frozenset(order[:cut]), frozenset(order[cut:])}
