"""Fits with weights in a shared basis, against fits by sites and through what users can do with them."""

import warnings

import numpy as np
import pytest
from helpers.problems import plan_and_problem
from scipy.special import expit

from srflvm import SRFLVM, load
from srflvm.inference.plan import FitKind
from srflvm.inference.problems import shared_basis
from srflvm.inference.problems.shared_basis import SharedBasisProblem
from srflvm.likelihoods import Gaussian
from srflvm.numerics.features import layer_features
from srflvm.numerics.jit import in_float64
from srflvm.numerics.weight_covariances import PackedCovariances, SharedBasisCovariances
from srflvm.posterior.chunks import Embedding

SMALL = {"n_components": 1, "n_frequencies": 8, "max_iter": 6, "tol": 0.0, "random_state": 0}
KINDS = ["bernoulli"] * 2 + ["negative_binomial"] * 2 + ["ordinal", Gaussian("column")]
MIXED = dict(enumerate(KINDS))


def mixed_table(n_rows=150, share=0.1, seed=0):
    random = np.random.RandomState(seed)
    x = random.standard_normal(n_rows)
    f = np.sin(x[:, None] + np.linspace(0.0, 3.0, 6))
    Y = np.column_stack(
        [
            (random.uniform(size=(n_rows, 2)) < expit(3.0 * f[:, :2])).astype(float),
            random.poisson(np.exp(1.0 + f[:, 2:4])),
            np.digitize(f[:, 4] + 0.3 * random.standard_normal(n_rows), [-0.7, 0.0, 0.7]),
            f[:, 5] + 0.2 * random.standard_normal(n_rows),
        ]
    )
    Y[random.uniform(size=Y.shape) < share] = np.nan
    return x, Y


def quiet_fit(Y, **settings):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return SRFLVM(**SMALL | settings).fit(Y)


@pytest.fixture(scope="module")
def both():
    x, Y = mixed_table()
    settings = {"likelihood": MIXED, "max_iter": 25, "affine": False}
    return x, Y, {name: quiet_fit(Y, inference=name, **settings) for name in ("sites", "shared_basis")}


def test_the_covariances_are_in_one_basis(both):
    kinds = {name: type(model._posterior.covariance) for name, model in both[2].items()}
    assert kinds == {"sites": PackedCovariances, "shared_basis": SharedBasisCovariances}


def test_a_mixed_table_is_fitted_as_well_as_by_sites(both):
    x, Y, models = both
    for model in models.values():
        assert (
            abs(np.corrcoef(np.argsort(np.argsort(model.embedding_[:, 0])), np.argsort(np.argsort(x)))[0, 1])
            > 0.7
        )
    bounds = {name: model.elbo_ / Y.size for name, model in models.items()}
    assert bounds["shared_basis"] > bounds["sites"] - 0.05


def test_rows_are_embedded_as_new_ones_and_saved(both, tmp_path):
    _, Y, models = both
    model = models["shared_basis"]
    np.testing.assert_array_equal(model.transform(Y), model.embedding_)
    model.save(tmp_path / "model.srflvm")
    np.testing.assert_array_equal(load(tmp_path / "model.srflvm").impute(Y), model.impute(Y))


def test_numbers_under_missing_entries_do_not_reach_the_fit():
    _, Y = mixed_table()
    _, problem = plan_and_problem(Y, MIXED, inference="shared_basis", **SMALL)
    data = problem.fit_data(np.dtype("float32"))
    assert all(np.all(np.isfinite(rows.y)) for rows, _ in data)
    hidden = sum(int(np.sum(~np.asarray(rows.observed))) for rows, _ in data)
    assert hidden >= np.isnan(Y).sum()


@pytest.mark.parametrize("affine", [False, True])
def test_a_second_fit_goes_on_where_the_first_ended(affine):
    _, Y = mixed_table()
    model = quiet_fit(Y, likelihood=MIXED, inference="shared_basis", affine=affine, max_iter=12)
    before = model.elbo_
    model.set_params(warm_start=True, max_iter=4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(Y)
    assert model.elbo_ > before - 0.03 * Y.size
    assert model.elbo_history_[0] > before - 0.15 * Y.size


def test_many_rows_begin_from_landmarks():
    _, Y = mixed_table(300)
    model = quiet_fit(Y, likelihood=MIXED, inference="shared_basis", affine=False, n_landmarks=100)
    assert any("landmarks" in name for name in [model.start_])


def test_the_solution_at_fixed_features_is_close_to_that_of_sites():
    """The bound of the best weights in one basis is below that with a matrix a column, by little."""
    _, Y = mixed_table(share=0.0)
    Y = Y[:, :4]
    kinds = dict(enumerate(KINDS[:4]))
    plan, problem = plan_and_problem(Y, kinds, inference="shared_basis", **SMALL)
    assert plan.kind is FitKind.SHARED_BASIS
    assert isinstance(problem, SharedBasisProblem)
    random = np.random.RandomState(1)
    points, frequencies = random.standard_normal((1, len(Y), 1)), random.standard_normal((8, 1))
    features = layer_features(points[0], frequencies, np.zeros(0))
    basis = np.linalg.eigh(features.T @ features)[1]
    with in_float64():
        weights = shared_basis._regression(
            basis.T @ (features.T @ np.concatenate(problem._guesses(), axis=1)), np.ones(17), np.ones(4)
        )
        state = problem._entries(basis, weights, problem.parameters, frequencies, np.dtype("float64"))
        solved = problem._solve(state, points, np.zeros(0), 60)
    exact = np.concatenate([group.bound for group in _sites_at(Y, kinds, features)])
    bound = _bound_at(problem, solved, points)
    # more than rounding: a shared basis is a restriction
    assert np.all(bound < exact + 0.05)
    assert np.sum(exact - bound) / Y.size < 0.005


def _sites_at(Y, kinds, features):
    from srflvm.inference.problems.sites import solve_sites

    _, problem = plan_and_problem(Y, kinds, inference="sites", **SMALL)
    data = problem.fit_data(np.dtype("float64"))
    state = problem._state(problem._guesses(), data, problem.parameters, np.dtype("float64"))
    state["log_amplitude"] = tuple(np.zeros(len(level)) for level in problem.levels)
    with in_float64():
        return solve_sites(problem._plans, features[None], data, state, 60)


def _bound_at(problem, state, points):
    import jax
    import jax.numpy as jnp

    from srflvm.model.shared_basis import Rows

    layer = problem.layer
    with in_float64():
        picks = [jnp.arange(plan.n_channels) for plan in layer.groups]
        data = problem.fit_data(np.dtype("float64"))
        rows = Rows(layer.groups, data, picks, jnp.asarray(points), state["drawn_frequencies"], jnp.zeros(0))
        entries = {name: state[name] for name in layer.carries}
        return np.asarray(jax.jit(lambda s: layer._visited(rows, s, False)[0].bound)(entries))


def test_points_have_the_mean_of_the_latents_and_over_rows_their_covariance():
    root = np.array([[0.5, 0.0], [0.3, 0.2]])
    latents = Embedding(np.ones((4000, 2)), np.tile(root, (4000, 1, 1)))
    problem = plan_and_problem(np.eye(4), "bernoulli", inference="shared_basis", **SMALL)[1]
    points = problem._points(latents, np.random.RandomState(0))
    np.testing.assert_allclose(points.mean(axis=0), latents.mean, atol=1e-12)
    away = (points[0] - latents.mean) @ np.linalg.inv(root).T
    np.testing.assert_allclose(np.sum(away**2, axis=1), 2.0, atol=1e-12)
    np.testing.assert_allclose(away.T @ away / 4000, np.eye(2), atol=5.0 * np.sqrt(0.5 / 4000))
