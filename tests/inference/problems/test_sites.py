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

from srflvm import SRFLVM
from srflvm.data.encoding import Layout
from srflvm.inference.problems import sites
from srflvm.inference.problems.sites import solve_sites
from srflvm.likelihoods import Gaussian, NegativeBinomial, Ordinal, Poisson
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


def solved_column(likelihood, y, inputs, n_rounds=150):
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
        return solve_sites([GroupPlan(resolved, 1, 1)], features, data, state, n_rounds)[0]


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
