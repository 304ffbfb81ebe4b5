"""Data with holes: the first fill, the layer that fills, and the layout of columns."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import multivariate_normal

from srflvm import SRFLVM, filling
from srflvm.evidence import Targets, predict_and_evidence
from srflvm.filling import low_rank_fill
from srflvm.freezing import _inflation
from srflvm.layers import FillingLayer, HoleyData
from srflvm.likelihoods import Bernoulli, Categorical, Gaussian, NegativeBinomial
from srflvm.observations import lay_out

# ---- the first fill -------------------------------------------------------------------------------


def low_rank(n_rows, n_columns, rank, noise=0.0, share=0.2, seed=0):
    """Y whole, and with holes."""
    random = np.random.default_rng(seed)
    Y = random.normal(size=(n_rows, rank)) @ random.normal(size=(rank, n_columns)) / np.sqrt(rank) + 2.0
    Y += noise * random.normal(size=Y.shape)
    return Y, np.where(random.uniform(size=Y.shape) < share, np.nan, Y)


@pytest.mark.parametrize("shape", [(200, 80), (80, 200)])
def test_data_of_low_rank_are_recovered_and_observed_entries_kept(shape):
    Y, holey = low_rank(*shape, 12)
    filled = low_rank_fill(holey, 12)
    seen = ~np.isnan(holey)
    assert filled.dtype == np.float64
    np.testing.assert_array_equal(filled[seen], Y[seen])
    # the iteration ends when it moves by 1e-3 of the spread, one, and goes at least a tenth of the way
    assert np.sqrt(np.mean((filled - Y)[~seen] ** 2)) < 1e-2


def test_data_of_low_rank_without_noise_are_recovered():
    random = np.random.default_rng(0)
    Y = random.normal(size=(100, 3)) @ random.normal(size=(3, 40))
    holey = np.where(random.uniform(size=Y.shape) < 0.2, np.nan, Y)
    assert np.sqrt(np.mean((low_rank_fill(holey, 2) - Y)[np.isnan(holey)] ** 2)) < 0.2 * Y.std()


def test_the_fill_is_a_fixed_point_of_probabilistic_pca(monkeypatch):
    """E y of a hole is the mean plus each direction's score times 1 - noise / variance."""
    monkeypatch.setattr(filling, "_TOLERANCE", 1e-9)
    monkeypatch.setattr(filling, "_MOST_ROUNDS", 2000)
    _, holey = low_rank(60, 40, 3, noise=0.3)
    filled = low_rank_fill(holey, 2)
    centre = filled.mean(axis=0)
    left, singular, right = np.linalg.svd(filled - centre, full_matrices=False)
    # ten directions, a quarter of the shorter side
    variances, noise = singular**2 / 60, np.mean(singular[10:] ** 2 / 60)
    expected = centre + (left[:, :10] * singular[:10] * (1.0 - noise / variances[:10])) @ right[:10]
    np.testing.assert_allclose(filled[np.isnan(holey)], expected[np.isnan(holey)], atol=1e-7)
    # a randomised decomposition finds nearly the same directions
    monkeypatch.setattr(filling, "_LARGEST_EXACT", 20)
    np.testing.assert_allclose(low_rank_fill(holey, 2), filled, atol=0.02)


@pytest.mark.parametrize("scale", [1e-90, 1.0, 1e90])
def test_the_fill_has_the_units_of_the_data(scale):
    _, holey = low_rank(40, 30, 2, noise=0.1)
    np.testing.assert_allclose(low_rank_fill(scale * holey, 2), scale * low_rank_fill(holey, 2), rtol=1e-6)


def test_small_and_constant_data_are_filled_without_a_murmur():
    nan = np.nan
    for Y in (
        [[1.0, nan], [nan, 2.0]],
        [[5.0, 5.0, nan]] * 3 + [[5.0, nan, 5.0]],
        [[nan, 1.0, 2.0, 4.0], [3.0] * 4],
    ):
        filled = low_rank_fill(np.array(Y), 2)
        assert np.all(np.isfinite(filled))
        assert np.nanmin(Y) <= filled.min() <= filled.max() <= np.nanmax(Y)
    whole = low_rank(5, 4, 2)[0].astype(np.float32)
    np.testing.assert_array_equal(low_rank_fill(whole, 2), whole)


# ---- the layer that fills -------------------------------------------------------------------------

N_ROWS = 30
FEATURES = np.random.default_rng(0).normal(size=(N_ROWS, 2))


def holey(hidden=0.0, share=0.3):
    """Four Gaussian columns, with any number where nothing is observed."""
    random = np.random.default_rng(4)
    Y = FEATURES @ random.normal(size=(2, 4)) + 0.5 * random.normal(size=(N_ROWS, 4))
    missing = np.random.default_rng(5).uniform(size=Y.shape) < share
    parts = np.where(missing, hidden, Y), missing, np.sum(~missing, dtype=float), 0.0
    return Y, missing, HoleyData(*map(jnp.asarray, parts))


STATE = {"log_noise": np.log(0.4), "log_ratio": np.log(0.4 / 1.3)}


@jax.jit
def filled_bound(features, state, data):
    """Value, gradient in the features, and what is carried on."""

    def value(phi):
        return FillingLayer().at_features(jax.random.key(0), phi, state, data)

    (found, carried), gradient = jax.value_and_grad(value, has_aux=True)(features)
    return found, gradient, carried


def test_a_filled_bound_is_below_the_evidence_of_the_observed_entries_and_rises_to_its_best_fill():
    Y, missing, data = holey()
    exact, best_fill = 0.0, np.zeros(Y.shape)
    for column, (y, seen) in enumerate(zip(Y.T, ~missing.T, strict=True)):
        covariance = 1.3 * FEATURES[seen] @ FEATURES[seen].T + 0.4 * np.eye(seen.sum())
        exact += multivariate_normal.logpdf(y[seen], cov=covariance)
        best_fill[:, column] = 1.3 * FEATURES @ FEATURES[seen].T @ np.linalg.solve(covariance, y[seen])
    fill, values = jnp.asarray(np.random.default_rng(6).normal(size=Y.shape)), []
    start = np.where(missing, 0.0, fill)
    for _ in range(150):
        value, _, carried = filled_bound(jnp.asarray(FEATURES), {**STATE, "fill": fill}, data)
        fill = carried["fill"]
        values.append(float(value))
    assert np.all(np.diff(values) > -1e-10)
    assert values[0] + 1.0 < values[-1] < exact
    np.testing.assert_allclose(fill[missing], best_fill[missing], atol=1e-10)
    np.testing.assert_array_equal(np.where(missing, 0.0, fill), start)
    # q(h) of a column has the precision of all rows, the exact posterior that of the observed ones only
    lost = 0.0
    for seen in ~missing.T:
        gram, part = FEATURES.T @ FEATURES, FEATURES[seen].T @ FEATURES[seen]
        ridge = 0.4 / 1.3 * np.eye(2)
        lost += 0.5 * (np.linalg.slogdet(gram + ridge)[1] - np.linalg.slogdet(part + ridge)[1])
    np.testing.assert_allclose(values[-1], exact - lost, rtol=1e-10)


def test_numbers_in_the_holes_do_not_matter():
    state = {**STATE, "fill": jnp.zeros((N_ROWS, 4))}
    first, *others = (filled_bound(jnp.asarray(FEATURES), state, holey(h)[2]) for h in (0.0, 1e300, np.nan))
    for other in others:
        jax.tree.map(np.testing.assert_array_equal, first, other)


def test_without_holes_it_is_the_evidence():
    Y, _, data = holey(share=0.0)
    value, gradient, _ = filled_bound(jnp.asarray(FEATURES), {**STATE, "fill": jnp.asarray(Y)}, data)
    targets = Targets(jnp.asarray(Y), jnp.asarray(np.sum(Y**2)), jnp.asarray(4.0))
    point = jnp.asarray(FEATURES), jnp.asarray(0.4), jnp.asarray(0.4 / 1.3), targets
    (exact, _), slope = jax.jit(jax.value_and_grad(predict_and_evidence, has_aux=True))(*point)
    np.testing.assert_allclose(value, exact, rtol=1e-13)
    np.testing.assert_allclose(gradient, slope, rtol=1e-12)


# ---- columns and channels -------------------------------------------------------------------------

NAN = np.nan
TABLE = np.array(
    [
        [1.0, 0.0, 7.0, 1.0, 2.0],
        [3.0, 4.0, NAN, 0.0, 0.0],
        [NAN, NAN, 1.0, NAN, 1.0],
        [5.0, 2.0, 1.0, 1.0, NAN],
    ]
)
CHOICE = [(Gaussian(), [0, 2]), (NegativeBinomial(), [1]), (Bernoulli(), [3]), (Categorical(), [4])]


def mixed_layout():
    return lay_out(TABLE, [(likelihood, np.array(columns)) for likelihood, columns in CHOICE])


def test_columns_become_channels_in_their_groups_units():
    layout = mixed_layout()
    assert layout.n_columns == 5
    assert layout.n_channels == 6
    assert [(g.channels.start, g.channels.stop) for g in layout.groups] == [(0, 2), (2, 3), (3, 4), (4, 6)]
    gaussian, counts, binary, codes = layout.encode(TABLE, np.log([1.0, 2.0, 3.0, 4.0]))
    # deviations of columns 0 and 2 from their means 3 and 3: -2, 0, 2 and 4, -2, -2
    scale = np.sqrt((4.0 + 0.0 + 4.0 + 16.0 + 4.0 + 4.0) / 6.0)
    np.testing.assert_allclose(gaussian.y * scale, [[-2, 4], [0, NAN], [NAN, -2], [2, -2]], rtol=1e-12)
    np.testing.assert_array_equal(counts.y, TABLE[:, [1]])
    np.testing.assert_array_equal(binary.y, TABLE[:, [3]])
    # is it 0, and if not, is it 1?
    np.testing.assert_array_equal(codes.y, [[0, 0], [1, NAN], [0, 1], [NAN, NAN]])
    np.testing.assert_allclose(counts.offset[:, 0], np.log([1.0, 2.0, 3.0, 4.0]))
    assert not any(np.any(other.offset) for other in (gaussian, binary, codes))
    np.testing.assert_array_equal(gaussian.observed, ~np.isnan(TABLE[:, [0, 2]]))
    # six observed Gaussian entries, and no units elsewhere
    np.testing.assert_allclose(layout.log_scale_total(TABLE), 6.0 * np.log(scale), rtol=1e-12)
    np.testing.assert_allclose(
        layout.row_log_scales(TABLE[:, [0, 2]], layout.groups[0]), np.log(scale) * np.array([2, 1, 1, 2])
    )


def test_working_values_are_per_unit_of_size_and_weigh_alike():
    layout = mixed_layout()
    working = layout.working(layout.encode(TABLE))
    assert working.shape == (4, 6)
    for group in layout.groups:
        values = working[:, group.channels]
        deviations = values - np.nanmean(values, axis=0)
        np.testing.assert_allclose(np.nanmean(deviations**2), 1.0, rtol=1e-12)
    sized = layout.working(layout.encode(TABLE, np.log([1.0, 2.0, 3.0, 4.0])))
    spread = np.nanstd(np.log1p(TABLE[:, 1]))
    np.testing.assert_allclose(sized[:, 2], np.log1p(TABLE[:, 1] / [1.0, 2.0, 3.0, 4.0]) / spread, rtol=1e-12)
    np.testing.assert_array_equal(np.delete(sized, 2, axis=1), np.delete(working, 2, axis=1))
    # a code that is known leaves no channel unknown
    np.testing.assert_array_equal(np.isnan(working[:, 4:]), np.isnan(TABLE[:, [4, 4]]))


def test_sizes_compare_totals_with_what_the_same_columns_have_on_average():
    counts = np.array([[2.0, 0.0, 9.0], [NAN, 4.0, 1.0], [4.0, NAN, 8.0], [NAN, NAN, 5.0]])
    layout = lay_out(counts, [(NegativeBinomial(), np.array([0, 1])), (Gaussian(), np.array([2]))])
    # means 3 and 2; half a count more on either side
    totals = np.array([2.5 / 5.5, 4.5 / 2.5, 4.5 / 3.5, 1.0])
    np.testing.assert_allclose(
        np.exp(replace(layout, size_method="totals").log_sizes(counts)), totals, rtol=1e-12
    )
    ratios = np.array([(2.5 / 3.5 + 0.5 / 2.5) / 2.0, 4.5 / 2.5, 4.5 / 3.5, 1.0])
    np.testing.assert_allclose(
        np.exp(replace(layout, size_method="ratios").log_sizes(counts)), ratios, rtol=1e-12
    )


def test_sizes_of_counts_in_float32_are_those_of_float64():
    """Totals beyond 2^24 are no numbers of float32."""
    counts = np.array([[2.0**24, 1.0, 1.0], [5.0, 2.0**23 + 1.0, 3.0], [1.0, 2.0, 3.0]])
    choice = [(NegativeBinomial(), np.arange(3))]
    layouts = {dtype: lay_out(counts.astype(dtype), choice) for dtype in (np.float32, np.float64)}
    assert layouts[np.float32].count_means.dtype == np.float64
    for method in ("totals", "ratios"):
        single, double = (
            replace(layout, size_method=method).log_sizes(counts.astype(t)) for t, layout in layouts.items()
        )
        np.testing.assert_array_equal(single, double)


# ---- the frozen noise -----------------------------------------------------------------------------


def test_the_noise_is_raised_to_what_an_entry_left_out_shows():
    """Ridge regression with latents known, then weights known: one leverage alone changes nothing."""
    assert _inflation(0.3, 0.0) == pytest.approx(1.0)
    assert _inflation(0.0, 0.3) == pytest.approx(1.0)
    expected = (1.0 / (1.0 - 0.22 - 0.16)) / (1.0 + 0.22 / 0.78 + 0.16 / 0.84)
    assert _inflation(0.22, 0.16) == pytest.approx(expected)
    assert 1.0 <= _inflation(0.7, 0.9) < 10.0


def test_far_from_the_data_the_function_has_its_prior_variance():
    random = np.random.default_rng(0)
    Y = np.sin(random.normal(size=(60, 1)) + np.arange(12.0)) + 0.1 * random.normal(size=(60, 12))
    Y[random.uniform(size=Y.shape) < 0.3] = np.nan
    model = SRFLVM(n_components=2, max_iter=3, tol=0.0, random_state=0).fit(Y)
    far = model.decode(1e3 * random.normal(size=(200, 2)))
    assert np.max(far.weight_variance) <= model.amplitude_ * (1.0 + 1e-9)
    assert np.median(far.weight_variance) > 0.2 * model.amplitude_
