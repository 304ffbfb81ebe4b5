"""Categories and vectors of counts: channels there and back, decoded at uncertain latents, drawn, scored."""

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats as st
from helpers.model_files import made_up, rows_of_each_kind
from scipy.special import expit

from srflvm import SRFLVM, choose_n_components
from srflvm.likelihoods import LIKELIHOODS, Categorical, Moments, Multinomial
from srflvm.numerics.features import cubature_points, with_constant
from srflvm.numerics.packed_symmetric import unpack

POINTS = np.array([[0.3, -0.5], [1.0, 0.2], [-0.8, 0.9]])
STDS = np.array([[0.9, 0.4], [0.2, 1.1], [0.6, 0.6]])


@pytest.fixture(scope="module")
def categorical():
    return made_up(rows_of_each_kind()["categorical"], likelihood="categorical")


@pytest.fixture(scope="module")
def multinomial():
    return made_up(rows_of_each_kind()["multinomial"], likelihood="multinomial")


def at_every_point(answer):
    """Return the mean of answers at the points that stand for uncertain latents, one after another."""
    points = cubature_points(POINTS, STDS[:, :, None] * np.eye(2))
    return np.mean([answer(point) for point in points], axis=0)


def drawn_sticks(model, point, n_draws):
    """Draw the sticks (n, C) of all channels at one point, over the weights."""
    posterior, rng = model._posterior, np.random.RandomState(0)
    phi = with_constant(posterior.features(point[None]))[0]
    covariance = unpack(posterior.covariance.packed.astype(float), len(phi), form=True)
    spread = np.sqrt(np.einsum("i,cij,j->c", phi, covariance, phi))
    mean = phi @ posterior.weights + posterior.level
    return expit(mean + spread * rng.standard_normal((n_draws, len(mean))))


def test_probabilities_at_a_point_are_those_of_drawn_sticks(categorical):
    sticks = drawn_sticks(categorical, POINTS[0], 200_000)
    likelihood = categorical._posterior.layout.groups[0].likelihood
    orders = np.split(likelihood.stick_order, np.cumsum(likelihood.n_categories)[:-1])
    start = 0
    for table, order in zip(categorical.category_probabilities(POINTS[:1]).values(), orders, strict=True):
        own = sticks[:, start : start + table.shape[1] - 1]
        left = np.cumprod(np.column_stack([np.ones(len(own)), 1.0 - own]), axis=1)
        shares = left * np.column_stack([own, np.ones(len(own))])
        error = shares.std(axis=0) / np.sqrt(len(shares))
        np.testing.assert_array_less(np.abs(shares.mean(axis=0) - table[0, order]), 5.0 * error + 1e-6)
        start += table.shape[1] - 1
    assert start == sticks.shape[1]


def test_probabilities_at_uncertain_latents_are_averaged_after_the_sticks(categorical):
    found = categorical.category_probabilities(POINTS, STDS)
    assert list(found) == [0, 1]
    for column, table in found.items():
        expected = at_every_point(lambda point, c=column: categorical.category_probabilities(point)[c])
        np.testing.assert_allclose(table, expected, rtol=1e-9)
        np.testing.assert_allclose(table.sum(axis=1), 1.0)
    decoded, best = categorical.decode(POINTS, STDS), np.column_stack([t.max(axis=1) for t in found.values()])
    np.testing.assert_array_equal(decoded.mean, np.column_stack([t.argmax(axis=1) for t in found.values()]))
    np.testing.assert_allclose(decoded.variance, best * (1.0 - best))


def test_counts_of_a_vector_at_uncertain_latents_are_averaged_after_the_sticks(multinomial):
    decoded = multinomial.decode(POINTS, STDS)
    mean = at_every_point(lambda point: multinomial.decode(point).mean)
    square = at_every_point(
        lambda point: multinomial.decode(point).variance + multinomial.decode(point).mean ** 2
    )
    np.testing.assert_allclose(decoded.mean, mean, rtol=1e-9)
    np.testing.assert_allclose(decoded.variance, square - mean**2, rtol=1e-9)


def test_rows_in_the_place_of_others_have_their_totals(multinomial):
    Y = rows_of_each_kind()["multinomial"]
    rows = multinomial.to_xarray(Y, 3, random_state=0)["observation"].to_numpy()[0]
    np.testing.assert_array_equal(rows.sum(axis=2), np.tile(Y.sum(axis=1), (3, 1)))


def test_a_category_that_was_hidden_is_scored_by_its_probability(categorical):
    Y = rows_of_each_kind()["categorical"]
    holes = np.where(np.arange(2) == 1, np.nan, Y)
    scores = categorical.score_entries(holes, Y)
    assert np.isnan(scores[:, 0]).all()
    embedding = categorical._posterior.embed(holes)
    table = categorical._posterior.category_probabilities(embedding.mean, embedding.cholesky)[1]
    expected = [np.log(row[int(code)]) for row, code in zip(table, Y[:, 1], strict=True)]
    np.testing.assert_allclose(scores[:, 1], expected)


@pytest.mark.parametrize(("kind", "likelihood"), [("categorical", "categorical"), ("ordinal", "ordinal")])
def test_components_are_chosen_though_a_level_is_seen_once(monkeypatch, kind, likelihood):
    """Check that the fit knows of the largest level, though it does not see it where it is held out."""
    known, is_seen = [], []

    def fit(self, Y, mask, sizes):
        seen = np.where(mask, np.nan, Y)
        known.append((self.likelihood, seen))
        fitted = made_up(seen, likelihood=self.likelihood)
        self.__dict__.update(fitted.__dict__)
        self.interrupted_ = False

    monkeypatch.setattr(SRFLVM, "fit", fit)
    Y = np.tile(rows_of_each_kind()[kind], 4)
    Y[5, 1] = 7.0
    for seed in range(5):
        found = choose_n_components(SRFLVM(likelihood=likelihood), Y, (1,), share=0.3, random_state=seed)
        assert np.isfinite(found.scores).all()
        is_seen.append(np.nanmax(known[-1][1]) == 7.0)
        (single,) = known[-1][0].values()
        assert single == LIKELIHOODS[likelihood]().resolve(Y)
    assert not all(is_seen)


def test_vectors_are_refused_before_anything_is_fitted(monkeypatch):
    monkeypatch.setattr(SRFLVM, "fit", None)
    with pytest.raises(ValueError, match="'multinomial' columns are not scored one by one"):
        choose_n_components(SRFLVM(likelihood="multinomial"), rows_of_each_kind()["multinomial"])


def test_other_columns_have_no_categories():
    model = made_up(rows_of_each_kind()["poisson"], likelihood="poisson")
    assert model.category_probabilities(POINTS) == {}


def shares_of(sticks):
    left = np.cumprod(np.concatenate([np.ones((*sticks.shape[:-1], 1)), 1.0 - sticks], axis=-1), axis=-1)
    return left * np.concatenate([sticks, np.ones((*sticks.shape[:-1], 1))], axis=-1)


@pytest.mark.parametrize("kind", ["categorical", "multinomial"])
def test_variances_of_columns_of_several_channels_are_separated_by_cause(kind, request):
    """Compare with draws of the function at every point of an uncertain latent."""
    model = request.getfixturevalue(kind)
    points = cubature_points(POINTS[:1], (STDS[:1, :, None] * np.eye(2)))[:, 0]
    found = model.decode(POINTS[:1], STDS[:1])
    sticks = np.stack([drawn_sticks(model, point, 100_000) for point in points])
    columns = [sticks]
    if kind == "categorical":
        sizes = [n - 1 for n in model._posterior.layout.groups[0].likelihood.n_categories]
        columns = np.split(sticks, np.cumsum(sizes)[:-1], axis=-1)
    shares = [shares_of(part) for part in columns]
    if kind == "categorical":
        shares = np.stack([part[..., part.mean(axis=(0, 1)).argmax()] for part in shares], axis=-1)
    else:
        shares = shares[0]
    given = shares.mean(axis=1)
    tolerance = {"rtol": 0.02, "atol": 2e-4}
    np.testing.assert_allclose(found.latent_variance[0], given.var(axis=0), **tolerance)
    np.testing.assert_allclose(found.weight_variance[0], shares.var(axis=1).mean(axis=0), **tolerance)
    np.testing.assert_allclose(
        found.noise_variance[0], (shares * (1.0 - shares)).mean(axis=(0, 1)), **tolerance
    )
    assert np.all(found.latent_variance > 0.0)
    assert np.all(found.weight_variance > 0.0)


def test_categorical_there_and_back():
    rng = np.random.RandomState(3)
    Y = np.stack([rng.randint(n, size=60) for n in (2, 5, 3)], axis=1).astype(float)
    likelihood = Categorical().resolve(Y)
    assert likelihood.n_categories == (2, 5, 3)
    y, constants = likelihood.channels(Y)
    assert y.shape == (60, 1 + 4 + 2)
    np.testing.assert_array_equal(likelihood.columns_from_draws(np.nan_to_num(y), constants), Y)
    one_hot = np.concatenate([np.arange(n - 1) == Y[:, [j]] for j, n in enumerate((2, 5, 3))], axis=1)
    np.testing.assert_array_equal(likelihood.working(y), one_hot)
    Y[0, 1] = np.nan
    assert np.isnan(likelihood.working(likelihood.channels(Y)[0])).sum() == 4


def test_sticks_are_broken_in_any_order():
    """Check codes there and back, and that probabilities are those of another order with its sticks."""
    rng = np.random.RandomState(4)
    Y = np.stack([rng.randint(n, size=60) for n in (4, 3)], axis=1).astype(float)
    Y[5, 0] = np.nan
    likelihood = Categorical((4, 3), (2, 0, 3, 1, 1, 2, 0))
    y, constants = likelihood.channels(Y)
    renamed = np.stack([np.array(place)[Y[:, j].astype(int)] for j, place in ((1, [2, 0, 1]),)], axis=1)
    np.testing.assert_array_equal(y[:, 3:], Categorical((3,)).channels(renamed.astype(float))[0])
    back = likelihood.columns_from_draws(np.nan_to_num(y), constants)
    np.testing.assert_array_equal(np.delete(back, 5, axis=0), np.delete(Y, 5, axis=0))
    assert np.isnan(y[5, :3]).all()
    means = rng.uniform(0.1, 0.9, (2, 5, 5))
    plain = Categorical((4, 3)).probabilities(means)
    for found, table, order in zip(
        likelihood.probabilities(means), plain, ([2, 0, 3, 1], [1, 2, 0]), strict=True
    ):
        np.testing.assert_array_equal(found[:, order], table)
    codes = likelihood.columns_from_moments(means, np.zeros_like(means), {}).mean
    expected = [table.argmax(axis=1) for table in likelihood.probabilities(means)]
    np.testing.assert_array_equal(codes, np.stack(expected, axis=1))


def test_the_code_that_others_tell_best_comes_first():
    """Check a column whose code 0 lies between 1 and 2, and far from 3, in the only other column."""
    rng = np.random.RandomState(5)
    codes = rng.randint(4, size=400).astype(float)
    other = np.array([0.0, -1.0, 1.0, 9.0])[codes.astype(int)] + 0.3 * rng.standard_normal(400)
    codes[::7], other[::5] = np.nan, np.nan
    arranged = Categorical((4,)).arrange(codes[:, None], other[:, None])
    assert arranged.stick_order[0] == 3
    assert set(arranged.stick_order[2:]) == {0, *({1, 2} - {arranged.stick_order[1]})}
    assert arranged.arrange(codes[:, None], -other[:, None]) is arranged
    assert Categorical((4,)).arrange(codes[:, None], np.empty((400, 0))).stick_order == (0, 1, 2, 3)


@pytest.mark.parametrize("order", [(0, 1), (0, 1, 1), (0, 1, 3)])
def test_an_order_that_is_not_one_is_refused(order):
    with pytest.raises(ValueError, match="each code of each column once"):
        Categorical((3,), order)
    with pytest.raises(ValueError, match="needs n_categories"):
        Categorical(None, order)


def test_categorical_moments_and_log_probability():
    """Check three categories with log-odds f: sticks sigmoid(f_0), sigmoid(f_1), and the rest."""
    likelihood, f = Categorical((3,)), np.array([[0.3, -0.4]])
    p = np.array([expit(0.3), expit(-0.3) * expit(-0.4), expit(-0.3) * expit(0.4)])
    for code in range(3):
        y, _ = likelihood.channels(np.array([[float(code)]]))
        seen = ~np.isnan(y)
        np.testing.assert_allclose(likelihood.log_prob(y, f, {})[seen].sum(), np.log(p[code]), rtol=1e-12)
    moments = likelihood.moments(jnp.asarray(f), {})
    moments = Moments(*(np.asarray(part)[None] for part in moments))
    np.testing.assert_allclose(likelihood.probabilities(moments.mean)[0], p[None])
    found = likelihood.columns_from_moments(moments.mean, np.zeros_like(moments.mean), {})
    assert found.mean[0, 0] == p.argmax()
    np.testing.assert_allclose(found.noise[0, 0], p.max() * (1.0 - p.max()))
    assert found.latent[0, 0] == found.weight[0, 0] == 0.0
    draws = likelihood.sample(np.tile(f, (40_000, 1)), {}, np.random.RandomState(4))
    frequencies = np.bincount(likelihood.columns_from_draws(draws, {})[:, 0].astype(int)) / 40_000
    np.testing.assert_array_less(np.abs(frequencies - p), 5.0 * np.sqrt(p * (1.0 - p) / 40_000))


def test_multinomial_there_and_back():
    Y = np.array([[2.0, 1.0, 3.0], [4.0, 0.0, 0.0], [0.0, 0.0, 0.0], [np.nan, 2.0, 1.0], [1.0, 1.0, np.nan]])
    y, constants = Multinomial().channels(Y)
    np.testing.assert_array_equal(
        y, [[2.0, 1.0], [4.0, np.nan], [np.nan, np.nan], [np.nan, 2.0], [np.nan, np.nan]]
    )
    np.testing.assert_array_equal(constants["n_trials"], [[6, 4], [4, 0], [0, 0], [0, 3], [0, 0]])
    np.testing.assert_array_equal(constants["total"][:, 0], [6, 4, 0, 1, 1])
    back = Multinomial().columns_from_draws(np.nan_to_num(y), constants)
    np.testing.assert_array_equal(back[:3], Y[:3])
    np.testing.assert_allclose(Multinomial().working(y)[1], [np.log(5.0), 0.0])


def test_multinomial_probability_moments_and_draws():
    f, n = np.array([0.3, -0.4]), 9
    p = np.array([expit(0.3), expit(-0.3) * expit(-0.4), expit(-0.3) * expit(0.4)])
    Y = np.array([[3.0, 2.0, 4.0]])
    y, constants = Multinomial().channels(Y)
    found = np.sum(Multinomial().log_prob(y, f[None], constants))
    np.testing.assert_allclose(found, st.multinomial.logpmf(Y[0], n, p), rtol=1e-12)
    rng = np.random.RandomState(5)
    many = {"total": np.full((40_000, 2), float(n))}
    # f uncertain: the law of total variance on channels, then columns, against draws of f and y
    uncertain = f + 0.8 * rng.standard_normal((40_000, 2))
    draws = Multinomial().columns_from_draws(Multinomial().sample(uncertain, many, rng), many)
    assert np.all(draws.sum(axis=1) == n)
    shares = expit(f + 0.8 * rng.standard_normal((400_000, 2)))
    channels = shares.mean(axis=0)[None, None], shares.var(axis=0)[None, None]
    mean, latent, weight, noise = Multinomial().columns_from_moments(*channels, constants)
    assert not latent.any()
    variance = weight + noise
    np.testing.assert_allclose(draws.mean(axis=0), mean[0], atol=5.0 * np.sqrt(variance.max() / 40_000))
    np.testing.assert_allclose(draws.var(axis=0), variance[0], rtol=5.0 * np.sqrt(3.0 / 40_000))
