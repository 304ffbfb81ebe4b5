"""Multiple imputation: Rubin's rules and the energy score."""

import importlib.util
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from scipy.integrate import quad

from srflvm.exceptions import DataError
from srflvm.imputation import Pooled, energy_score, pool

THREE = ([10.0, 12.0, 14.0], [1.0, 2.0, 3.0])


# ---- Rubin's rules ---------------------------------------------------------------------------------


def test_an_example_by_hand():
    """W = 2, B = 4, T = 2 + 4/3 * 4 = 22/3, λ = (16/3) / (22/3) = 8/11, 2 / λ² = 121/32."""
    pooled = pool(*THREE)
    assert pooled.estimate == 12.0
    assert pooled.within == 2.0
    assert pooled.between == 4.0
    assert pooled.n_draws == 3
    assert pooled.std_error == pytest.approx(np.sqrt(22 / 3), rel=1e-14)
    assert pooled.degrees_of_freedom == pytest.approx(121 / 32, rel=1e-14)
    r = (4 / 3) * 4 / 2  # Rubin's relative increase of the variance
    assert pooled.missing_information == pytest.approx((r + 2 / (121 / 32 + 3)) / (r + 1), rel=1e-14)


def test_degrees_of_freedom_of_small_samples_by_hand():
    """ν' = 10/12 * 9 * 3/11 = 45/22, and 1 / (32/121 + 22/45) = 5445/4102."""
    small, classical = pool(*THREE, n_complete=9), pool(*THREE)
    assert small.degrees_of_freedom == pytest.approx(5445 / 4102, rel=1e-14)
    assert small.std_error == classical.std_error
    assert small.missing_information == classical.missing_information


def test_many_complete_data_degrees_of_freedom_are_as_infinitely_many():
    assert pool(*THREE, n_complete=1e12).degrees_of_freedom == pytest.approx(121 / 32, rel=1e-9)


def test_small_sample_degrees_of_freedom_never_exceed_those_of_complete_data():
    rng = np.random.default_rng(0)
    variances = rng.exponential(size=(5, 50)) * 10.0 ** np.linspace(-4, 4, 50)
    degrees = pool(rng.normal(size=(5, 50)), variances, n_complete=7).degrees_of_freedom
    assert (degrees > 0).all()
    assert (degrees < 7).all()


@pytest.mark.parametrize("level", [0.5, 0.9, 0.99])
def test_intervals_hold_the_probability_of_students_t(level):
    """The density is integrated, without a quantile function."""
    pooled = pool(*THREE)
    ends = [(end - pooled.estimate) / pooled.std_error for end in pooled.interval(level)]
    inside, _ = quad(stats.t(pooled.degrees_of_freedom).pdf, *ends, epsabs=1e-11)
    assert inside == pytest.approx(level, abs=1e-9)
    assert ends[0] == pytest.approx(-ends[1], rel=1e-12)


def test_the_level_of_pool_is_that_of_intervals_and_of_the_table():
    pooled = pool(*THREE, level=0.8)
    assert pooled.interval() == pooled.interval(0.8)
    assert pool(*THREE).interval() == pool(*THREE).interval(0.95)
    assert str(pooled).startswith("3 draws, intervals of 80 %")
    assert f"{pooled.interval(0.8)[0]:.4g}" in str(pooled)


@pytest.mark.parametrize("value", [0.1, 1e8 + 0.3, 0.0])
def test_equal_estimates_have_infinitely_many_degrees_of_freedom(value):
    pooled = pool([value] * 7, [4.0] * 7)
    assert pooled.between == 0.0
    assert pooled.degrees_of_freedom == np.inf
    assert pooled.missing_information == 0.0
    assert pooled.interval() == pytest.approx((value - 2 * 1.9599639845, value + 2 * 1.9599639845), rel=1e-10)


def test_equal_estimates_with_complete_data_degrees_of_freedom():
    """The limit of Barnard and Rubin's formula: ν (ν + 1) / (ν + 3)."""
    assert pool([1.0, 1.0], [4.0, 4.0], n_complete=9).degrees_of_freedom == pytest.approx(9 * 10 / 12)


def test_no_variance_within_or_at_all():
    pooled = pool([1.0, 2.0, 4.0], [0.0, 0.0, 0.0])
    assert pooled.missing_information == 1.0
    assert pooled.degrees_of_freedom == 2.0
    assert pool([3.0, 3.0], [0.0, 0.0]).interval() == (3.0, 3.0)
    assert pool([3.0, 3.0], [0.0, 0.0], n_complete=5).interval() == (3.0, 3.0)


@pytest.mark.parametrize("step", [1e-160, 1e-80, 1e-9])
def test_tiny_differences_between_draws_give_no_warning(step):
    pooled = pool([0.0, step], [1.0, 1.0])
    assert pooled.degrees_of_freedom > 1e17
    assert np.isfinite(pooled.interval()).all()


def test_several_estimates_are_pooled_one_by_one():
    rng = np.random.default_rng(0)
    estimates, variances = rng.normal(size=(6, 4)), rng.exponential(size=(6, 4))
    together = pool(estimates, variances, n_complete=20)
    low, high = together.interval()
    for k in range(4):
        alone = pool(estimates[:, k], variances[:, k], n_complete=20)
        assert together.estimate[k] == pytest.approx(alone.estimate)
        assert together.degrees_of_freedom[k] == pytest.approx(alone.degrees_of_freedom)
        assert together.missing_information[k] == pytest.approx(alone.missing_information)
        assert (low[k], high[k]) == pytest.approx(alone.interval())


@pytest.mark.skipif(importlib.util.find_spec("statsmodels") is None, reason="statsmodels is missing")
def test_covariances_against_statsmodels():
    from statsmodels.imputation.mice import MICE

    rng = np.random.default_rng(0)
    estimates, roots = rng.normal(size=(5, 3)), rng.normal(size=(5, 3, 3))
    covariances = roots @ roots.transpose(0, 2, 1)
    fits = [
        SimpleNamespace(_results=SimpleNamespace(params=e, cov_params=lambda c=c: c.copy()), scale=1.0)
        for e, c in zip(estimates, covariances, strict=True)
    ]
    theirs = MICE.combine(
        SimpleNamespace(results_list=fits, exog_names=None, endog_names=None, model_class=None)
    )
    pooled = pool(estimates, covariances)
    assert pooled.estimate == pytest.approx(theirs.params, rel=1e-12)
    assert pooled.within + 6 / 5 * pooled.between == pytest.approx(theirs.cov_params(), rel=1e-12)
    assert pooled.std_error == pytest.approx(theirs.bse, rel=1e-12)
    share = theirs.frac_miss_info  # λ, without the correction for the number of draws
    assert pooled.degrees_of_freedom == pytest.approx(4 / share**2, rel=1e-12)


def test_diagonal_covariances_are_variances():
    rng = np.random.default_rng(0)
    estimates, variances = rng.normal(size=(4, 2)), rng.exponential(size=(4, 2))
    full = pool(estimates, variances[:, :, None] * np.eye(2))
    plain = pool(estimates, variances)
    assert full.within.shape == full.between.shape == (2, 2)
    assert full.std_error == pytest.approx(plain.std_error, rel=1e-14)
    assert np.diag(full.between) == pytest.approx(plain.between, rel=1e-14)
    assert full.interval()[0] == pytest.approx(plain.interval()[0], rel=1e-12)


# ---- coverage --------------------------------------------------------------------------------------


def completed(observed, n_missing, m, rng):
    """Draw m complete samples of a normal variable: the exact posterior predictive of the prior 1 / σ²."""
    n = len(observed)
    variance = (n - 1) * observed.var(ddof=1) / rng.chisquare(n - 1, size=(m, 1))
    mean = observed.mean() + np.sqrt(variance / n) * rng.standard_normal((m, 1))
    drawn = mean + np.sqrt(variance) * rng.standard_normal((m, n_missing))
    return np.hstack([np.tile(observed, (m, 1)), drawn])


def mean_and_variance(sample):
    return sample.mean(), sample.var(ddof=1) / len(sample)


def test_coverage_of_a_mean_with_exact_imputation():
    """Half of 40 numbers are missing. Intervals that leave out the variance between draws fail."""
    rng, n_repeats, true = np.random.default_rng(0), 400, 3.0
    covered, narrow = 0, 0
    for _ in range(n_repeats):
        tables = completed(true + rng.standard_normal(20), 20, 20, rng)
        pooled = pool(tables, function=mean_and_variance, n_complete=39)
        low, high = pooled.interval(0.95)
        covered += low < true < high
        narrow += abs(pooled.estimate - true) < stats.t.ppf(0.975, 39) * np.sqrt(pooled.within)
    error = np.sqrt(0.95 * 0.05 / n_repeats)
    assert covered / n_repeats == pytest.approx(0.95, abs=3 * error)
    assert narrow / n_repeats < 0.95 - 5 * error


def test_many_draws_give_the_analysis_of_what_is_observed():
    """For a mean, missing numbers say nothing: the pooled standard error is that of the observed ones.

    E T = s²/n (n - 1) / (n - 3) up to terms of 1/n², since σ² is drawn too; half of the information is
    missing.
    """
    rng = np.random.default_rng(1)
    observed = rng.standard_normal(400)
    pooled = pool(completed(observed, 400, 4000, rng), function=mean_and_variance)
    assert pooled.estimate == pytest.approx(observed.mean(), abs=4 * np.sqrt(pooled.between / 4000))
    # a variance of 4000 draws has the relative standard error sqrt(2 / 4000), and B is half of T
    error = 0.5 * np.sqrt(2 / 4000)
    assert pooled.std_error**2 == pytest.approx(observed.var(ddof=1) / 400, rel=4 * error + 0.01)
    assert pooled.missing_information == pytest.approx(0.5, abs=0.02)


# ---- labels, tables and text -----------------------------------------------------------------------


def labelled():
    names = ["intercept", "age"]
    estimates = [pd.Series([1.0 + i, 2.0 - i], names) for i in range(3)]
    variances = [pd.Series([0.5, 0.25 * (i + 1)], names) for i in range(3)]
    return estimates, variances


def test_labels_are_kept():
    pooled = pool(*labelled())
    low, high = pooled.interval()
    for part in (pooled.estimate, pooled.std_error, pooled.degrees_of_freedom, low, high):
        assert list(part.index) == ["intercept", "age"]
    assert pooled.estimate["age"] == 1.0
    assert pooled.within["age"] == 0.5


def test_series_are_matched_by_label_and_not_by_place():
    estimates, variances = labelled()
    turned = [estimates[0], *(part.iloc[::-1] for part in estimates[1:])]
    pooled = pool(turned, [part.iloc[::-1] for part in variances])
    pd.testing.assert_series_equal(pooled.std_error, pool(estimates, variances).std_error)


def test_covariances_with_labels():
    estimates, variances = labelled()
    turned = ["age", "intercept"]
    frames = [pd.DataFrame(np.diag(part), part.index, part.index).loc[turned, turned] for part in variances]
    pooled = pool(estimates, frames)
    assert list(pooled.within.columns) == list(pooled.within.index) == ["intercept", "age"]
    assert pooled.within.loc["age", "age"] == 0.5
    pd.testing.assert_series_equal(pooled.std_error, pool(estimates, variances).std_error)


def test_frames_with_a_row_for_each_draw_and_labels_of_variances_alone():
    estimates, variances = labelled()
    expected = pool(estimates, variances).std_error
    pd.testing.assert_series_equal(pool(pd.DataFrame(estimates), pd.DataFrame(variances)).std_error, expected)
    plain = [part.to_numpy() for part in estimates]
    pd.testing.assert_series_equal(pool(plain, variances).std_error, expected)


def test_repeated_labels_are_no_problem_in_the_same_order():
    estimates = [pd.Series([1.0, float(i)], ["a", "a"]) for i in range(2)]
    assert list(pool(estimates, estimates).estimate) == [1.0, 0.5]
    with pytest.raises(ValueError, match="labels"):
        pool([estimates[0], pd.Series([1.0, 2.0], ["a", "b"])], np.ones((2, 2)))


def test_a_function_of_filled_tables():
    rng = np.random.default_rng(0)
    tables = [pd.DataFrame(rng.normal(size=(30, 2)), columns=["a", "b"]) for _ in range(4)]
    pooled = pool(tables, function=lambda table: (table.mean(), table.var() / len(table)), n_complete=29)
    by_hand = pool([t.mean() for t in tables], [t.var() / 30 for t in tables], n_complete=29)
    assert list(pooled.estimate.index) == ["a", "b"]
    pd.testing.assert_series_equal(pooled.degrees_of_freedom, by_hand.degrees_of_freedom)
    generated = pool((table["a"] for table in tables), function=mean_and_variance)
    assert generated.estimate == pytest.approx(pooled.estimate["a"])


def test_one_estimate_gives_floats():
    pooled = pool(*THREE)
    assert all(isinstance(getattr(pooled, name), float) for name in ("estimate", "std_error", "within"))


def test_the_table_names_every_estimate():
    title, head, *rows = str(pool(*labelled())).splitlines()
    assert title == "3 draws, intervals of 95 %"
    assert " ".join(head.split()) == "estimate std error low high degrees of freedom missing information"
    assert [row.split()[:2] for row in rows] == [["intercept", "2"], ["age", "1"]]
    assert len({len(line) for line in (head, *rows)}) == 1
    _, _, *rows = str(pool([[1.0, 2.0]] * 2, [[1.0, 1.0]] * 2)).splitlines()
    assert [row.split()[0] for row in rows] == ["0", "1"]
    _, _, row = str(pool(*THREE)).splitlines()
    assert row.split() == ["12", "2.708", "4.307", "19.69", "3.781", "0.8077"]


def test_what_is_pooled_cannot_be_changed():
    with pytest.raises(AttributeError):
        pool(*THREE).estimate = 0.0
    assert isinstance(pool(*THREE), Pooled)


# ---- errors ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("estimates", "variances", "message"),
    [
        ([1.0], [1.0], "estimates of 1 draws. Give at least two"),
        ([], [], "estimates of 0 draws"),
        (1.0, 1.0, "estimates must be a sequence with a part for each draw, not 1.0"),
        ([1.0, 2.0], None, "variances is missing"),
        ([1.0, 2.0], [1.0, 1.0, 1.0], r"variances have shape \(3,\), but estimates have \(2,\)"),
        (np.ones((2, 3)), np.ones((2, 2)), r"must have \(2, 3\) or \(2, 3, 3\)"),
        ([1.0, 2.0], np.ones((2, 1, 1)), r"variances must have \(2,\)\."),
        (np.ones((2, 1, 1)), np.ones((2, 1, 1)), r"must be \(m,\) or \(m, k\)"),
        (np.ones((2, 0)), np.ones((2, 0)), r"estimates have shape \(2, 0\)"),
        ([[1.0, 2.0], [1.0]], np.ones((2, 2)), r"estimates of draw 1 have shape \(1,\), but those of draw 0"),
        ([1.0, "many"], [1.0, 1.0], "estimates of draw 1 are not numbers: .*many"),
        ([1.0, 2.0, np.nan], [1.0] * 3, r"estimates of draw 2 are not finite: nan \(1 of 3\)"),
        ([[1.0, 2.0]] * 2, [[1.0, 1.0], [1.0, np.inf]], "variances of draw 1 at 1 are not finite: inf"),
        ([1.0, 2.0], [1.0, -1.0], "variances of draw 1 are negative: -1"),
        ([[1.0, 2.0]] * 2, [np.eye(2), np.diag([1.0, -2.0])], "variances of draw 1 at 1 are negative: -2"),
    ],
)
def test_bad_arguments(estimates, variances, message):
    with pytest.raises(ValueError, match=message):
        pool(estimates, variances)


def test_places_have_labels():
    estimates, variances = labelled()
    variances[2]["age"] = -1.0
    with pytest.raises(DataError, match="variances of draw 2 at 'age' are negative"):
        pool(estimates, variances)


def test_covariances_between_estimates_may_be_negative():
    pool([[1.0, 2.0]] * 2, [[[1.0, -0.5], [-0.5, 1.0]]] * 2)


def test_other_labels_are_refused():
    estimates, variances = labelled()
    estimates[1] = estimates[1].rename({"age": "sex"})
    with pytest.raises(ValueError, match=r"estimates of draw 1 have the labels \['intercept', 'sex'\]"):
        pool(estimates, variances)


@pytest.mark.parametrize("level", [0.0, 1.0, 95, -0.1, "0.95", True, float("nan")])
def test_bad_levels(level):
    with pytest.raises(ValueError, match="level="):
        pool(*THREE, level=level)
    with pytest.raises(ValueError, match="level="):
        pool(*THREE).interval(level)


@pytest.mark.parametrize("n_complete", [0, -1.0, np.inf, "many"])
def test_bad_degrees_of_freedom(n_complete):
    with pytest.raises(ValueError, match="n_complete="):
        pool(*THREE, n_complete=n_complete)


def test_degrees_of_freedom_of_estimates_without_variance_are_refused():
    with pytest.raises(DataError, match="variances of estimate 0 are 0 in all draws"):
        pool([1.0, 2.0], [0.0, 0.0], n_complete=5)
    with pytest.raises(DataError, match="variances of estimate 'age' are 0"):
        pool(labelled()[0], [pd.Series({"intercept": 1.0, "age": 0.0})] * 3, n_complete=5)


def test_bad_functions():
    table = pd.DataFrame({"a": [1.0, 2.0]})
    with pytest.raises(ValueError, match="needs a sequence of filled tables, and this is one frame"):
        pool(table, function=mean_and_variance)
    with pytest.raises(ValueError, match="function returned Series for table 0; it must return a pair"):
        pool([table, table], function=lambda table: table.mean())
    with pytest.raises(ValueError, match="not both"):
        pool(*THREE, function=mean_and_variance)


# ---- energy score ----------------------------------------------------------------------------------


def slow_energy_score(draws, truth, mask):
    scores = []
    for row in range(len(truth)):
        hidden = np.flatnonzero(mask[row])
        if len(hidden):
            near = [np.linalg.norm(draw[row, hidden] - truth[row, hidden]) for draw in draws]
            apart = [
                np.linalg.norm(a[row, hidden] - b[row, hidden])
                for i, a in enumerate(draws)
                for j, b in enumerate(draws)
                if i != j
            ]
            scores.append(np.mean(near) - 0.5 * np.mean(apart))
    return np.mean(scores)


@pytest.mark.parametrize("m", [2, 3, 6])
def test_energy_score_by_a_double_loop(m):
    rng = np.random.default_rng(m)
    truth, mask = rng.normal(size=(15, 4)), rng.uniform(size=(15, 4)) < 0.3
    assert not mask.any(axis=1).all()
    draws = np.where(mask, rng.normal(size=(m, 15, 4)), truth)
    score = energy_score(draws, truth, mask)
    assert isinstance(score, float)
    assert score == pytest.approx(slow_energy_score(draws, truth, mask), rel=1e-12)
    assert energy_score([pd.DataFrame(draw) for draw in draws], pd.DataFrame(truth), mask) == score


def test_entries_that_are_not_hidden_are_not_looked_at():
    rng = np.random.default_rng(0)
    truth, mask = rng.normal(size=(9, 3)), np.eye(9, 3, dtype=bool)
    draws = rng.normal(size=(4, 9, 3))
    expected = energy_score(draws, truth, mask)
    assert energy_score(np.where(mask, draws, np.nan), np.where(mask, truth, np.inf), mask) == expected


def test_energy_score_of_a_point_is_its_distance():
    truth, mask = np.zeros((2, 2)), np.array([[True, True], [False, False]])
    assert energy_score(np.tile([3.0, 4.0], (5, 2, 1)), truth, mask) == pytest.approx(5.0, rel=1e-14)


def test_draws_of_the_true_distribution_score_best():
    """E |X - y| - E |X - X'| / 2 is 1 / sqrt(π) for standard normal numbers, for any number of draws."""
    rng, n_rows = np.random.default_rng(0), 20_000
    truth, mask = rng.standard_normal((n_rows, 1)), np.ones((n_rows, 1), bool)
    score = {
        scale: energy_score(scale * rng.standard_normal((3, n_rows, 1)), truth, mask)
        for scale in (0.5, 1.0, 2.0)
    }
    # the score of a row has a standard deviation below 1
    assert score[1.0] == pytest.approx(1 / np.sqrt(np.pi), abs=4 / np.sqrt(n_rows))
    assert score[1.0] < min(score[0.5], score[2.0])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"draws": np.zeros((1, 2, 2))}, "at least two draws"),
        ({"draws": np.zeros((2, 2))}, r"draws have shape \(2, 2\)"),
        ({"truth": np.zeros((2, 3))}, r"truth has shape \(2, 3\), but each draw has \(2, 2\)"),
        ({"mask": np.ones((3, 2), bool)}, r"mask has shape \(3, 2\)"),
        ({"mask": np.ones((2, 2))}, "mask has the type float64"),
        ({"mask": np.zeros((2, 2), bool)}, "nothing to score"),
        ({"truth": np.array([[0.0, 0.0], [np.nan, 0.0]])}, "truth have .* the first in row 1, column 0"),
        ({"draws": np.full((2, 2, 2), np.inf)}, "draws have .* 4 of them, the first in row 0, column 0"),
    ],
)
def test_bad_scores(change, message):
    arguments = {"draws": np.zeros((3, 2, 2)), "truth": np.zeros((2, 2)), "mask": np.ones((2, 2), bool)}
    with pytest.raises(ValueError, match=message):
        energy_score(**arguments | change)
