"""Fits to data of every kind through the estimator."""

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from scipy.special import expit

from srflvm import SRFLVM, DataError, load
from srflvm.cli.columns import parse_likelihood
from srflvm.data.sources import NamedTable
from srflvm.datasets import make_s_curve_gp
from srflvm.likelihoods import Binomial, Custom, Gaussian, NegativeBinomial, StudentT
from srflvm.likelihoods.columns import choose
from srflvm_bench.baselines.gplvm_svi import GPLVMSVI
from srflvm_bench.baselines.rflvm import RFLVM

SMALL = {"n_components": 1, "max_iter": 3, "tol": 0, "n_frequencies": 10, "random_state": 0}


def log_odds(n_rows=200, n_columns=12, seed=0):
    rng = np.random.RandomState(seed)
    x = rng.standard_normal(n_rows)
    phases = rng.uniform(0.0, 6.0, n_columns)
    return x, 2.0 * np.sin(1.2 * x[:, None] + phases)


def correlation(a, b):
    return np.corrcoef(np.ravel(a), np.ravel(b))[0, 1]


@pytest.fixture(scope="module")
def counts():
    _, f = log_odds()
    rng = np.random.RandomState(1)
    mean = np.exp(2.0 + 0.5 * f)
    return f, rng.poisson(rng.gamma(10.0, mean / 10.0)).astype(float)


@pytest.mark.parametrize(
    "inference", ["sites", "shared_basis", "polya_gamma", "polya_gamma_sampled", "gradient"]
)
def test_a_known_function_behind_counts_is_recovered(counts, inference):
    f, Y = counts
    model = SRFLVM(
        likelihood="negative_binomial", inference=inference, size_factors=None, **SMALL | {"max_iter": 12}
    )
    decoded = model.fit(Y).inverse_transform(model.embedding_)
    assert correlation(np.log(decoded), f) > 0.9
    assert np.all(model.likelihood_parameters_["dispersion"] > 2.0)
    assert model.n_rejected_steps_ == 0


def test_probabilities_behind_binary_data_are_recovered():
    _, f = log_odds(n_columns=40)
    Y = (np.random.RandomState(2).uniform(size=f.shape) < expit(f)).astype(float)
    model = SRFLVM(likelihood="bernoulli", **SMALL | {"max_iter": 12}).fit(Y)
    decoded, std = model.inverse_transform(model.embedding_, return_std=True)
    assert correlation(decoded, expit(f)) > 0.85
    assert np.all((decoded > 0.0) & (decoded < 1.0))
    assert np.all(std <= 0.51)
    assert set(np.unique(model.sample(20, random_state=0))) <= {0.0, 1.0}


def test_counts_in_the_tens_of_thousands_stay_finite_in_single_precision(counts):
    f, _ = counts
    Y = np.random.RandomState(0).poisson(3e4 * np.exp(0.3 * f)).astype(float)
    model = SRFLVM(likelihood="negative_binomial", **SMALL).fit(Y)
    assert model.n_rejected_steps_ == 0
    assert np.all(np.isfinite(model.elbo_history_))
    # a lower bound of a log probability of counts that vary by thousands cannot come near zero
    assert model.elbo_ / Y.size < -4.0
    assert np.all(np.isfinite(model.score_samples(Y[:5])))


def test_a_mapping_that_says_the_same_is_the_same(counts):
    Y = counts[1][:60, :4]
    one = SRFLVM(likelihood="negative_binomial", **SMALL).fit(Y)
    mapping = {0: "negative_binomial", 1: NegativeBinomial(), (2, 3): "negative_binomial"}
    other = SRFLVM(likelihood=mapping, **SMALL).fit(Y)
    assert np.array_equal(one.embedding_, other.embedding_)
    assert one.elbo_ == other.elbo_


def test_likelihoods_are_named_with_hyphens_too(counts, tmp_path):
    mapping = {"a": "student-t", ("b", "c"): "negative-binomial", "d": "Negative_Binomial"}
    (t, first), (counted, others) = choose(mapping, 4, list("abcd"))
    assert (t, counted) == (StudentT(), NegativeBinomial())
    assert (first.tolist(), others.tolist()) == ([0], [1, 2, 3])
    model = SRFLVM(likelihood="negative-binomial", **SMALL).fit(counts[1][:30, :4])
    assert set(model.likelihood_parameters_) == {"dispersion"}
    model.save(tmp_path / "model.srflvm")
    for same in (model, load(tmp_path / "model.srflvm")):
        assert same.get_params()["likelihood"] == "negative-binomial"


def test_other_functions_that_take_a_likelihood_take_hyphens(counts):
    drawn = [
        make_s_curve_gp(20, 3, likelihood=name, random_state=0).Y
        for name in ("negative-binomial", "negative_binomial")
    ]
    assert np.array_equal(*drawn)
    with pytest.raises(ValueError, match="whole numbers"):
        RFLVM(likelihood="negative-binomial").fit_transform(counts[1] + 0.5)
    with pytest.raises(ValueError, match="a count is"):
        GPLVMSVI(likelihood="negative-binomial").fit_transform(counts[1] + 0.5)
    assert parse_likelihood("student-t:4") == StudentT(degrees_of_freedom=4)


def mixed_frame(n_rows=80):
    _, f = log_odds(n_rows, 6, seed=4)
    rng = np.random.RandomState(5)
    return pd.DataFrame(
        {
            "height": f[:, 0] + 0.1 * rng.standard_normal(n_rows),
            "weight": 5.0 * f[:, 1] + rng.standard_normal(n_rows),
            "smokes": (rng.uniform(size=n_rows) < expit(f[:, 2])).astype(float),
            "visits": rng.poisson(np.exp(1.0 + 0.5 * f[:, 3])).astype(float),
            "grade": np.digitize(f[:, 4], [-0.5, 0.5]).astype(float),
            "colour": rng.randint(0, 3, n_rows).astype(float),
            "passed": rng.binomial(10, expit(f[:, 5])).astype(float),
        }
    )


MIXED = {
    ("height", "weight"): Gaussian(noise="column"),
    "smokes": "bernoulli",
    "visits": "poisson",
    "grade": "ordinal",
    "colour": "categorical",
    "passed": Binomial(n_trials=10),
}


def test_mixed_columns_are_fitted_filled_and_drawn_together():
    frame = mixed_frame()
    holes = np.random.RandomState(0).uniform(size=frame.shape) < 0.15
    model = SRFLVM(likelihood=MIXED, **SMALL).fit(frame.mask(holes))
    filled, std = model.impute(frame.mask(holes), return_std=True)
    assert filled.columns.equals(frame.columns)
    assert np.array_equal(filled.to_numpy()[~holes], frame.to_numpy()[~holes])
    assert np.all(np.isfinite(filled))
    assert np.all(std[holes] >= 0.0)
    draws = np.stack(model.impute(frame.mask(holes), n_draws=3, random_state=0))
    for name, allowed in {"smokes": {0, 1}, "grade": {0, 1, 2}, "colour": {0, 1, 2}}.items():
        column = frame.columns.get_loc(name)
        assert set(np.unique(draws[:, :, column])) <= allowed
    assert np.isfinite(model.score_samples(frame.mask(holes))).all()
    assert set(model.likelihood_parameters_) >= {"noise_variance"}
    assert np.isnan(model.likelihood_parameters_["noise_variance"][2])


def test_a_likelihood_of_ones_own_needs_its_log_density_only():
    def logistic(y, f, parameters):
        z = (y - f) * jnp.exp(-parameters["log_scale"])
        return -z - 2.0 * jax.nn.softplus(-z) - parameters["log_scale"]

    _, f = log_odds(60, 5)
    Y = f + 0.2 * np.random.RandomState(0).logistic(size=f.shape)
    model = SRFLVM(likelihood=Custom(logistic), **SMALL | {"max_iter": 6}).fit(Y)
    decoded, std = model.inverse_transform(model.embedding_, return_std=True)
    assert correlation(decoded, f) > 0.8
    assert np.all(std > 0.0)


@pytest.mark.parametrize(
    ("likelihood", "bad", "message"),
    [
        ("bernoulli", 2.0, "2 at row 3, column 1 \\('b'\\): a binary entry is 0 or 1"),
        ("negative_binomial", -1.0, "-1 at row 3, column 1 \\('b'\\)"),
        ("poisson", 0.5, "0.5 at row 3, column 1 \\('b'\\)"),
        ("ordinal", 1.5, "1.5 at row 3, column 1 \\('b'\\)"),
    ],
)
def test_impossible_entries_are_refused_by_name_and_place(likelihood, bad, message):
    values = np.random.RandomState(0).randint(0, 2, (9, 2)).astype(float)
    values[3, 1] = bad
    with pytest.raises(DataError, match=message):
        SRFLVM(likelihood=likelihood, **SMALL).fit(NamedTable(values, ["a", "b"]))


@pytest.mark.parametrize(
    ("likelihood", "bad", "message"),
    [
        ("bernoulli", 2.0, "Column 1 \\('b'\\) has 3 different values.* 'bernoulli' needs exactly two"),
        ("negative_binomial", -1.0, "-1 at row 3, column 1 \\('b'\\)"),
        ("poisson", 0.5, "0.5 at row 3, column 1 \\('b'\\)"),
        ("gaussian", "x", "Column 1 \\('b'\\) holds text: 'x' at row 3"),
    ],
)
def test_impossible_entries_of_frames_are_refused_by_name(likelihood, bad, message):
    values = np.random.RandomState(0).randint(0, 2, (9, 2)).astype(object)
    values[3, 1] = bad
    with pytest.raises(DataError, match=message):
        SRFLVM(likelihood=likelihood, **SMALL).fit(pd.DataFrame(values, columns=["a", "b"]))


@pytest.mark.parametrize(
    ("likelihood", "message"),
    [
        ("normal", "likelihood='normal' is not known"),
        ("binomial", "likelihoods.Binomial\\(...\\)"),
        ({"a": "poisson", "c": "poisson"}, "given for column 'c', which the frame does not have"),
        (
            {"a": "poisson", 0: "bernoulli", "b": "poisson"},
            "Two likelihoods are given for column 0 \\('a'\\)",
        ),
    ],
)
def test_wrong_choices_of_likelihoods_are_explained(likelihood, message):
    frame = pd.DataFrame(np.ones((9, 2)), columns=["a", "b"])
    with pytest.raises(ValueError, match=message):
        SRFLVM(likelihood=likelihood, **SMALL).fit(frame)


def test_numbers_of_trials_belong_to_the_columns_in_the_order_given():
    names = ["a", "b", "c", "d"]
    choice = choose({("b", "a"): Binomial([10, 20]), ("c", "d"): Binomial((10, 20))}, 4, names)
    trials = {
        int(column): number
        for likelihood, columns in choice
        for column, number in zip(columns, likelihood.n_trials, strict=True)
    }
    assert trials == {1: 10, 0: 20, 2: 10, 3: 20}
    assert hash(Binomial([10, 20])) == hash(Binomial((10, 20)))


def test_routes_that_do_not_apply_are_refused(counts):
    with pytest.raises(ValueError, match="'poisson' has none"):
        SRFLVM(likelihood="poisson", inference="polya_gamma", **SMALL).fit(counts[1])
