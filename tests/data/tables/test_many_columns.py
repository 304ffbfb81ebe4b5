"""Names of columns are looked up, not searched for: work grows as their number does."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from srflvm import DataError
from srflvm.cli.model_table import ModelTable
from srflvm.cli.output import Output
from srflvm.data.reading import _take_names as take_names
from srflvm.data.tables.table import Table, check_names
from srflvm.likelihoods.columns import choose

N = 300


class Name(str):
    """Name that counts how often it is hashed or compared."""

    n_looks = 0

    def __hash__(self):
        Name.n_looks += 1
        return super().__hash__()

    def __eq__(self, other):
        Name.n_looks += 1
        return super().__eq__(other)


@pytest.fixture
def names():
    Name.n_looks = 0
    yield [Name(f"gene{n}") for n in range(N)]
    assert Name.n_looks < 30 * N


def test_columns_of_a_file_are_told_apart(names):
    check_names(names, Path("y.csv"))
    with pytest.raises(DataError, match="more than one column 'gene7'"):
        check_names([*names, "gene7"], Path("y.csv"))


def test_columns_of_a_model_are_found(names):
    fitted = SimpleNamespace(feature_names_in_=np.array(names, dtype=object))
    table = Table.of(np.zeros((1, N)), names[::-1])
    np.testing.assert_array_equal(
        ModelTable.match(table, fitted, Output(quiet=True)).order, np.arange(N)[::-1]
    )


def test_names_are_compared_with_those_of_a_fit(names):
    fitted = SimpleNamespace(feature_names_in_=np.array(names, dtype=object), n_features_in_=N)
    with pytest.raises(ValueError, match="another order"):
        take_names(fitted, names[::-1], reset=False)


def test_likelihoods_find_their_columns(names):
    ((_, columns),) = choose({tuple(names): "gaussian"}, N, names)
    assert len(columns) == N
