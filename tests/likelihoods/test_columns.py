"""Groups of columns that the parameter `likelihood` describes, and errors that name the column."""

import numpy as np
import pytest

from srflvm.exceptions import DataError
from srflvm.likelihoods import (
    LIKELIHOODS,
    Bernoulli,
    Binomial,
    Categorical,
    Gaussian,
    Multinomial,
    Ordinal,
    Poisson,
)
from srflvm.likelihoods.columns import INFERENCES, Choice, as_likelihood, check_likelihood, choose


def described(choice):
    return [(likelihood, columns.tolist()) for likelihood, columns in choice]


def test_one_likelihood_is_that_of_all_columns():
    assert described(choose("Negative-Binomial", 3, None)) == [
        (LIKELIHOODS["negative_binomial"](), [0, 1, 2])
    ]


def test_equal_likelihoods_are_one_group_in_the_order_of_the_columns():
    mapping = {"d": "poisson", ("b", 0): "gaussian", "c": Poisson()}
    assert described(choose(mapping, 4, list("abcd"))) == [(Gaussian(), [0, 1]), (Poisson(), [2, 3])]


def test_numbers_by_column_keep_the_order_in_which_columns_are_given():
    choice = choose({("b", "a"): Binomial((10, 20)), "c": Binomial(3), "d": Binomial(3)}, 4, list("abcd"))
    assert described(choice) == [(Binomial((10, 20)), [1, 0]), (Binomial(3), [2, 3])]


def test_vectors_of_two_keys_stay_apart():
    choice = choose({(0, 1): Multinomial(), (2, 3): Multinomial()}, 4, None)
    assert described(choice) == [(Multinomial(), [0, 1]), (Multinomial(), [2, 3])]


@pytest.mark.parametrize(
    ("value", "names", "message"),
    [
        ("exponential", None, "Choose 'auto', one of 'gaussian', "),
        ("binomial", None, r"use srflvm\.likelihoods\.Binomial"),
        ({"z": "poisson"}, ["a", "b"], "'z', which Y does not have"),
        ({"a": "poisson"}, ["a", "a"], "2 columns of Y have that name"),
        ({0: "poisson", (1, 0): "gaussian"}, None, r"column 0 under both 0 and \(1, 0\)"),
        ({True: "poisson"}, None, "has the key True"),
        ({2: "poisson"}, None, "its index from 0 to 1"),
    ],
)
def test_wrong_choices_are_refused(value, names, message):
    with pytest.raises(ValueError, match=message):
        choose(value, 2, names)


def test_values_are_checked_without_data():
    check_likelihood({"a": "poisson", 7: Gaussian("column")})
    with pytest.raises(ValueError, match="is not known"):
        check_likelihood({"a": "poisson", "b": 3})
    assert as_likelihood(" Student-T ") == LIKELIHOODS["student_t"]()


def test_only_gaussian_columns_with_one_noise_are_plain():
    assert choose("gaussian", 2, None).is_plain_gaussian
    assert not choose(Gaussian("column"), 2, None).is_plain_gaussian
    assert not choose({0: "gaussian", 1: "poisson"}, 2, None).is_plain_gaussian
    assert not Choice().is_plain_gaussian


def test_entries_are_refused_by_their_column_and_the_rows_they_are_counted_from():
    choice = choose({"a": "gaussian", "b": "poisson"}, 2, ["a", "b"])
    good = np.array([[0.5, 3.0], [np.nan, np.nan]])
    choice.check(good, ["a", "b"], 100)
    bad = np.array([[0.5, 3.0], [0.5, 1.5]])
    with pytest.raises(DataError, match=r"Y has 1\.5 at row 1, column 1 \('b'\)") as error:
        choice.check(bad, ["a", "b"])
    assert "counted from" not in str(error.value)
    with pytest.raises(DataError, match="Rows are counted from row 100 of Y"):
        choice.check(bad, None, 100)


def test_routes_need_a_form():
    binary, mixed = choose("bernoulli", 2, None), choose({0: Bernoulli(), 1: Ordinal()}, 2, None)
    assert binary.route("auto") == mixed.route("auto") == "sites"
    assert [binary.route(inference) for inference in INFERENCES[1:]] == list(INFERENCES[1:])
    with pytest.raises(ValueError, match="'ordinal' has none"):
        mixed.route("polya_gamma")


def test_programs_are_compiled_for_channels_of_the_same_class():
    """Numbers of columns are left out; what a class of its own computes stays."""

    class Own(Gaussian):
        """A likelihood of a user."""

    recorded = Gaussian("column", "column", (0.1, 0.2))
    assert recorded.of_channels == Gaussian("column", "column", (0.3, 0.4)).of_channels
    assert recorded.of_channels != Gaussian().of_channels
    assert type(Own("column", "column", (0.1,)).of_channels) is Own
    one, other = (Categorical((3,), order).of_channels for order in ((0, 1, 2), (2, 0, 1)))
    assert one == other
    assert type(one) is Categorical
    assert Ordinal(n_levels=3).of_channels == Ordinal(n_levels=3)
