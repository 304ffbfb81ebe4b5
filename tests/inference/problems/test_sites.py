"""Sites solved at fixed features, against quadrature and finite differences."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.site_cases import (
    N_ROWS,
    OFFSET,
    WHOLE,
    divergence,
    expected,
    flat_state,
    group,
    log_negative_binomial,
    slopes,
)
from sklearn.exceptions import ConvergenceWarning

from srflvm import SRFLVM
from srflvm.data.encoding import Layout
from srflvm.inference.problems import sites
from srflvm.inference.problems.sites import solve_sites
from srflvm.likelihoods import Gaussian, NegativeBinomial, Ordinal, Poisson
from srflvm.likelihoods.columns import OWN_UNITS
from srflvm.model.evidence_layers import GroupPlan
from srflvm.numerics.packed_symmetric import unpack


def test_solved_columns_are_at_a_maximum_in_weights_dispersion_and_amplitude():
    """With two sets of features f has the mean and variance of the mixture over them."""
    Y, data = group("counts", 1)
    rows, level = data
    sets = np.stack([WHOLE, WHOLE + 0.1 * np.cos(np.arange(90.0)).reshape(N_ROWS, 3) * [1.0, 1.0, 0.0]])
    state = flat_state((data,), [{"log_dispersion": np.zeros(1)}])
    (end,) = solve_sites([GroupPlan(NegativeBinomial(), 1, 1)], sets, (data,), state, 100)
    best = {"log_r": end.state.parameters["log_dispersion"][0], "log_a": end.state.log_amplitude[0]}

    def bound(mean, covariance, log_r=best["log_r"], log_a=best["log_a"]):
        means = sets @ mean
        variance = np.einsum("kni,ij,knj->kn", sets, covariance, sets).mean(axis=0) + means.var(axis=0)
        known = OFFSET + float(level[0])
        values = expected(
            partial(log_negative_binomial, log_r=log_r), Y[0], means.mean(axis=0) + known, variance
        )
        return np.sum(values[np.asarray(rows.observed[0])]) - divergence(mean, covariance, np.exp(log_a))

    here = end.weights[0], unpack(end.packed_covariance, 3, form=True)[0]
    np.testing.assert_allclose(end.bound[0], bound(*here), rtol=1e-9)
    np.testing.assert_allclose(slopes(bound, *here), 0.0, atol=1e-6)
    for name, value in best.items():
        ahead, behind = (bound(*here, **{name: value + step}) for step in (1e-4, -1e-4))
        assert abs(ahead - behind) / 2e-4 < 1e-6


def solved_column(likelihood, y, inputs, weight=0.0, n_rounds=150):
    """Solve for one column at features [inputs, 1], from sites and parameters as a fit starts them."""
    layout = Layout.from_data(y[:, None], [(likelihood, np.array([0]))])
    resolved = layout.groups[0].likelihood
    rows = layout.encode(y[:, None])[0]
    level, learned = resolved.start(rows.y, rows.constants)
    data = ((rows.filled().channels_first(np.float64), level),)
    state = flat_state(data, [learned])
    features = np.column_stack([inputs, np.ones(len(y))])[None]
    with jax.enable_x64(True):
        data, state = jax.tree.map(jnp.asarray, (data, state))
        return solve_sites([GroupPlan(resolved, 1, 1, weight)], features, data, state, n_rounds)[0]


def test_no_constant_is_left_to_ordered_levels():
    """It would stand in for the thresholds, and its square would raise the amplitude of all weights."""
    random = np.random.RandomState(0)
    x = random.normal(size=300)
    y = np.searchsorted([0.5, 2.0, 3.5, 5.0], 3.0 * x + random.logistic(size=300)).astype(float)
    solved = solved_column(Ordinal(), y, x[:, None])
    slope, constant = solved.weights[0]
    assert abs(constant) < 0.05
    assert 2.0 < slope < 4.0
    np.testing.assert_allclose(np.exp(solved.state.log_amplitude[0]), slope**2 / 2, rtol=0.1)


def test_a_column_that_the_features_hardly_tell_keeps_weights_only_with_a_prior_of_amplitudes():
    random = np.random.RandomState(1)
    inputs = random.normal(size=(60, 4))
    y = random.normal(size=60)
    without, with_prior = (
        np.exp(solved_column(OWN_UNITS, y, inputs, weight).state.log_amplitude[0]) for weight in (0.0, 2.0)
    )
    assert without < 0.1
    assert with_prior > 0.25


@pytest.mark.parametrize("kind", ["counts", "gaussian"])
def test_columns_are_solved_alike_in_any_batches(kind, monkeypatch):
    """Also where they share a noise."""
    data = (group(kind, 5)[1],)
    likelihood, learned = (Poisson(), {}) if kind == "counts" else (Gaussian(), {"log_noise": np.zeros(1)})
    arguments = [GroupPlan(likelihood, 5, 5)], WHOLE[None], data, flat_state(data, [learned]), 5
    (whole,) = solve_sites(*arguments)
    monkeypatch.setattr(sites, "_COLUMNS_AT_ONCE", 2)
    (parts,) = solve_sites(*arguments)
    for left, right in zip(jax.tree.leaves(vars(whole)), jax.tree.leaves(vars(parts)), strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-11, atol=1e-12)


def test_large_tables_have_some_rows_to_compare_draws_and_few_anchors(monkeypatch):
    """Draws of frequencies are compared on every third of 60 rows, and solved for on all of them."""
    Y = np.random.RandomState(0).standard_normal((60, 3))
    Y[::7, 1] = np.nan
    numbers, solve = [], sites.solve_sites

    def watched(plans, features, *arguments):
        numbers.append(features.shape[0] * features.shape[1])
        return solve(plans, features, *arguments)

    monkeypatch.setattr(sites, "solve_sites", watched)
    monkeypatch.setattr(sites, "_ROWS_TO_COMPARE_DRAWS", 25)
    monkeypatch.setattr(sites, "_MOST_POINTS", 0)
    monkeypatch.setattr(sites, "_MOST_AFFINE_ANCHORS", 30)
    options = {"n_components": 1, "n_frequencies": 3, "max_iter": 2, "tol": 0.0, "random_state": 0}
    likelihood = Gaussian(noise="column", scale="column")
    model = SRFLVM(likelihood=likelihood, affine=True, init="pca", **options).fit(Y)
    assert numbers == [20, 20, 20, 20, 60]
    assert len(model._posterior.anchors) == 30


def weakly_related_table(n_rows=40):
    random = np.random.RandomState(2)
    x = random.normal(size=n_rows)
    codes = np.searchsorted([-0.5, 0.5], x + random.normal(size=n_rows)).astype(float)
    Y = np.column_stack([x + 0.5 * random.normal(size=n_rows), codes, (x > 0.0).astype(float)])
    Y[::6, 0] = Y[1::6, 1] = Y[2::6, 2] = np.nan
    return Y


LIKELIHOODS = {0: "gaussian", 1: "categorical", 2: "bernoulli"}


@pytest.mark.parametrize("early_is_better", [False, True])
def test_a_small_table_keeps_the_state_that_tells_hidden_entries_best(early_is_better, monkeypatch):
    """What the entries of a row tell of each other decides, and not the bound."""
    seen = []

    def score(self, posterior):
        seen.append(posterior)
        return float(len(seen) == 1) if early_is_better else float(len(seen))

    monkeypatch.setattr(sites.SiteProblem, "log_density_of_hidden", score)
    model = SRFLVM(1, likelihood=LIKELIHOODS, affine=True, init="pca", random_state=0)
    model.fit(weakly_related_table())
    early, late = seen
    chosen = early if early_is_better else late
    np.testing.assert_array_equal(model._posterior.weights, chosen.weights)
    assert model.n_iter_ > 100
    first = model.elbo_history_[0]
    assert (abs(model.elbo_ - first) < 1e-9 * abs(first)) == early_is_better
    seen.clear()
    with pytest.warns(ConvergenceWarning):
        model.set_params(max_iter=3).fit(weakly_related_table())
    assert not seen


@pytest.mark.filterwarnings("ignore:.*no observed entry")
def test_hidden_entries_are_told_by_the_others_of_their_rows(monkeypatch):
    """Their log density is that of `score_entries`, which hides the same ones of the raw table."""
    Y = weakly_related_table()
    problems = []
    scored = sites.SiteProblem.log_density_of_hidden

    def keep(self, posterior):
        problems.append(self)
        return scored(self, posterior)

    monkeypatch.setattr(sites.SiteProblem, "log_density_of_hidden", keep)
    model = SRFLVM(1, likelihood=LIKELIHOODS | {1: "ordinal"}, affine=True, init="pca", random_state=0).fit(Y)
    random = np.random.RandomState(0)
    hidden = np.zeros(Y.shape, bool)
    for columns in (each.columns for each in problems[0].layout.groups):
        hidden[:, columns] = random.uniform(size=(len(Y), 1)) < 0.25
    scores = model.score_entries(np.where(hidden, np.nan, Y), Y)
    gaussian = problems[0].layout.groups[0]
    total = np.nansum(scores[hidden]) + np.sum(hidden & ~np.isnan(Y), axis=0)[0] * np.log(
        gaussian.units.scale[0]
    )
    np.testing.assert_allclose(scored(problems[0], model._posterior), total, rtol=1e-6)
