"""Joint draws of latents, weights and noises: a chain that leaves the joint distribution as it is."""

from dataclasses import replace

import jax
import numpy as np
import pandas as pd
import pytest

from srflvm import SRFLVM, SRFLVMImputer
from srflvm.data.encoding import Group, GroupRows, Layout
from srflvm.likelihoods import Bernoulli, Gaussian
from srflvm.likelihoods.base import Units
from srflvm.numerics.features import jacobian, layer_features
from srflvm.posterior import joint_draws
from srflvm.posterior.joint_draws import Chain, _Draw

N_ROWS, N_LATENT, N_CHANNELS, NOISE = 6, 2, 3, 2.0
GAUSSIAN = Gaussian(noise="column")


@pytest.fixture
def fixed_noise(monkeypatch):
    """Leave the noises where they are: their prior has no finite integral to draw from."""
    monkeypatch.setattr(Gaussian, "draw_parameters", lambda self, *arguments: arguments[4])


def layout_of(likelihood, n_channels):
    units = Units(np.zeros(n_channels), np.ones(n_channels))
    group = Group(likelihood, np.arange(n_channels), units, slice(0, n_channels), 1.0)
    return Layout((group,), np.zeros(n_channels), None)


def small_chain(observed, likelihood=GAUSSIAN):
    random = np.random.RandomState(0)
    encoded = (GroupRows(np.zeros(observed.shape), observed, {}, np.zeros((N_ROWS, 1))),)
    return Chain(
        layout=layout_of(likelihood, N_CHANNELS),
        encoded=encoded,
        frequencies=1.5 * random.standard_normal((3, N_LATENT)),
        affine=np.array([1.5, 1.0, 0.5]),
        level=np.array([0.5, -1.0, 0.0]),
        amplitude=np.array([1.0, 0.5, 2.0]),
    )


def batch_error(values, n_batches=30):
    """Return the standard error of the mean of a chain, by means of batches."""
    means = np.array([part.mean(axis=0) for part in np.array_split(values, n_batches)])
    return means.std(axis=0, ddof=1) / np.sqrt(n_batches)


@pytest.mark.parametrize("likelihood", [GAUSSIAN, Bernoulli()], ids=lambda own: own.name)
def test_the_chain_leaves_the_joint_distribution_as_it_is(likelihood, fixed_noise, monkeypatch):
    """Data drawn given the state, and the state given the data, keep the prior (Geweke's test).

    The variances relative to the fit are inverse gamma, of which the inverse has mean 1 and finite variance.
    """
    random = np.random.RandomState(1)
    observed = random.uniform(size=(N_ROWS, N_CHANNELS)) < 0.7
    chain = small_chain(observed, likelihood)
    learned = {"log_noise": np.full(N_CHANNELS, np.log(NOISE))} if likelihood is GAUSSIAN else {}
    spread = chain._prior_variances(np.ones(1 + N_LATENT))
    if likelihood is not GAUSSIAN:  # certain entries and large variances would keep each other for long
        monkeypatch.setattr(Chain, "_draw_spread", lambda *_: spread)
    n_features = layer_features(np.zeros((1, N_LATENT)), chain.frequencies, chain.affine).shape[1]
    state = _Draw(
        random.standard_normal((N_ROWS, N_LATENT)),
        np.sqrt(spread) * random.standard_normal((n_features, N_CHANNELS)),
        (learned,),
    )
    found = []
    for _ in range(5000):
        y = likelihood.sample(chain._values(state), learned, random)
        rows = chain.encoded[0]._replace(y=np.where(observed, y, np.nan))
        chain = chain._replace(encoded=(rows,))
        state, spread = chain._round(state, spread, random)
        shrink = spread / chain.amplitude
        standard = state.weights**2 / spread
        found.append(
            [
                np.mean(state.latents),
                np.mean(state.latents**2),
                np.mean(np.abs(state.latents)),
                np.mean(np.cos(state.latents[:, 0] - state.latents[:, 1])),
                np.mean(standard[:6]),
                np.mean(standard[6]),
                np.mean(standard[-1]),
                1.0 / shrink[0, 0],
                1.0 / shrink[6, 0],
                1.0 / shrink[7, 0],
            ]
        )
    values = np.array(found)
    truth = np.array([0.0, 1.0, np.sqrt(2.0 / np.pi), np.exp(-1.0), 1.0, 1.0, 1.0, 1.0, 1.0, 1.0])
    errors = np.maximum(batch_error(values), 1e-9)
    assert np.abs((values.mean(axis=0) - truth) / errors).max() < 4.0
    assert errors.max() < 0.2  # so that the test can fail


def test_steps_of_latents_of_an_affine_function_are_all_accepted():
    """Without waves the proposal is the conditional, which is a Gaussian with a known mean."""
    random = np.random.RandomState(0)
    chain = small_chain(np.ones((N_ROWS, N_CHANNELS), bool))._replace(affine=np.array([0.0, 1.0, 1.0]))
    y = random.standard_normal((N_ROWS, N_CHANNELS))
    chain = chain._replace(encoded=(chain.encoded[0]._replace(y=y),))
    n_features = layer_features(np.zeros((1, N_LATENT)), chain.frequencies, chain.affine).shape[1]
    weights = random.standard_normal((n_features, N_CHANNELS))
    parameters = ({"log_noise": np.full(N_CHANNELS, np.log(NOISE))},)
    state = _Draw(random.standard_normal((N_ROWS, N_LATENT)), weights, parameters)
    draws = []
    for _ in range(3000):
        before = state.latents
        state = state._replace(latents=chain._move_latents(state, random))
        assert np.all(state.latents != before)
        draws.append(state.latents)
    loadings = weights[6:8]
    covariance = np.linalg.inv(np.eye(N_LATENT) + loadings @ loadings.T / NOISE)
    mean = (y - chain.level - weights[-1]) @ loadings.T @ covariance / NOISE
    np.testing.assert_allclose(np.mean(draws, axis=0), mean, atol=5.0 * np.sqrt(covariance.max() / 3000))


def test_derivatives_by_numpy_are_those_by_jax():
    random = np.random.RandomState(0)
    shapes = ((3, 2), (8, 4), (5, 2), (3,))
    arguments = [random.standard_normal(shape) for shape in shapes]
    with jax.enable_x64(True):
        expected = np.asarray(jacobian(*(jax.numpy.asarray(part) for part in arguments)))
    found = jacobian(*arguments)
    assert isinstance(found, np.ndarray)
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-12)


# ---- fitted models --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def fitted():
    """Return a mixed table with missing entries, and an imputer that was fitted to it."""
    random = np.random.RandomState(0)
    x = random.standard_normal(60)
    table = pd.DataFrame(
        {
            "a": x + 0.3 * random.standard_normal(60),
            "b": 10.0 - 5.0 * x + random.standard_normal(60),
            "kind": np.where(x + 0.3 * random.standard_normal(60) > 0.0, "up", "down"),
        }
    )
    table.loc[::4, "a"] = np.nan
    table.loc[1::5, "kind"] = None
    model = SRFLVM(affine=True, init="pca", n_frequencies=5, max_iter=10, tol=0.0)
    return table, SRFLVMImputer(model, n_components=1, random_state=0).fit(table)


def test_draws_of_the_training_rows_are_joint(fitted, monkeypatch):
    """Training rows have draws of a chain, other rows do not; observed entries stay."""
    table, imputer = fitted
    calls = []
    monkeypatch.setattr(joint_draws, "_FIRST_ROUNDS", 3)
    draws_of = Chain.draws
    monkeypatch.setattr(Chain, "draws", lambda *arguments: calls.append(1) or draws_of(*arguments))
    first, second = (imputer.draw(table, n_draws=4, random_state=0) for _ in range(2))
    assert len(calls) == 2
    for one, other in zip(first, second, strict=True):
        pd.testing.assert_frame_equal(one, other)
        assert not one.isna().any().any()
        for column in table:
            known = table[column].notna()
            assert (one.loc[known, column] == table.loc[known, column]).all()
    assert not first[0].equals(first[1])
    imputer.draw(table.iloc[::-1], n_draws=2, random_state=0)
    imputer.draw(table.iloc[:50], n_draws=2, random_state=0)
    assert len(calls) == 2


def test_large_tables_have_no_chain(fitted, monkeypatch):
    table, imputer = fitted
    monkeypatch.setattr(joint_draws, "_MOST_PRODUCTS", 0)
    monkeypatch.setattr(Chain, "draws", None)
    assert len(imputer.draw(table, n_draws=2, random_state=0)) == 2


def test_draws_of_a_chain_are_centred_where_filled_entries_are(fitted):
    """The mean of many draws is the filled entry, up to what draws differ by."""
    table, imputer = fitted
    filled, std = imputer.transform(table, return_std=True)
    missing = table["a"].isna().to_numpy()
    draws = np.stack([draw["a"].to_numpy()[missing] for draw in imputer.draw(table, 200, random_state=1)])
    scores = (draws.mean(axis=0) - filled["a"].to_numpy()[missing]) / std[missing, 0]
    assert np.abs(scores).mean() < 0.25
    ratio = draws.std(axis=0) / std[missing, 0]
    assert 0.9 < ratio.mean() < 1.6  # wider than with known weights and noises, by a little


def test_rounding_is_part_of_the_noise_that_is_drawn():
    """Noises are inverse gamma, of residuals of observed entries, and what is rounded is never below that."""
    random = np.random.RandomState(0)
    y = random.standard_normal((50, 2)) * [1.0, 0.01]
    observed = random.uniform(size=y.shape) < 0.8
    rounding = np.broadcast_to([0.0, 0.3], y.shape)
    likelihood = Gaussian(noise="column")
    draws = np.array(
        [
            np.exp(
                likelihood.draw_parameters(
                    np.where(observed, y, np.nan), observed, np.zeros(y.shape), {"rounding": rounding},
                    {"log_noise": np.zeros(2)}, random,
                )["log_noise"]
            )
            for _ in range(4000)
        ]
    )  # fmt: skip
    number, square = observed[:, 0].sum(), np.sum(y[observed[:, 0], 0] ** 2)
    mean = square / (number - 2)
    np.testing.assert_allclose(draws[:, 0].mean(), mean, rtol=0.02)
    np.testing.assert_allclose(draws[:, 0].std(), mean / np.sqrt(number / 2 - 2), rtol=0.06)
    assert draws[:, 1].max() < 1e-10
    shared = replace(likelihood, noise="shared").draw_parameters(
        y, observed, np.zeros(y.shape), {}, {"log_noise": np.zeros(1)}, random
    )
    assert shared["log_noise"].shape == (1,)
