"""Layouts of columns and channels, rows of groups, and the sizes of rows."""

from dataclasses import replace

import numpy as np
import pytest
from helpers.model_files import made_up, read, write

from srflvm import SRFLVM, load
from srflvm.data.encoding import GroupRows, Layout
from srflvm.likelihoods import Bernoulli, Categorical, Gaussian, NegativeBinomial, Poisson
from srflvm.numerics.weight_covariances import PackedCovariances

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
    return Layout.from_data(TABLE, [(likelihood, np.array(columns)) for likelihood, columns in CHOICE])


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
    # three rows tell nothing about the order of the sticks: is it the first code, and if not, the second?
    first, second, _ = layout.groups[3].likelihood.stick_order
    y = TABLE[:, 4]
    np.testing.assert_array_equal(codes.y[:, 0], np.where(np.isnan(y), NAN, y == first))
    reached = ~np.isnan(y) & (y != first)
    np.testing.assert_array_equal(codes.y[:, 1], np.where(reached, y == second, NAN))
    np.testing.assert_allclose(counts.offset[:, 0], np.log([1.0, 2.0, 3.0, 4.0]))
    assert not any(np.any(other.offset) for other in (gaussian, binary, codes))
    np.testing.assert_array_equal(gaussian.observed, ~np.isnan(TABLE[:, [0, 2]]))
    # six observed Gaussian entries, and no units elsewhere
    np.testing.assert_allclose(layout.log_scale_total(TABLE), 6.0 * np.log(scale), rtol=1e-12)
    np.testing.assert_allclose(layout.groups[0].log_scales(TABLE), np.log(scale) * np.array([2, 1, 1, 2]))


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
    layout = Layout.from_data(counts, [(NegativeBinomial(), np.array([0, 1])), (Gaussian(), np.array([2]))])
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
    layouts = {dtype: Layout.from_data(counts.astype(dtype), choice) for dtype in (np.float32, np.float64)}
    assert layouts[np.float32].count_means.dtype == np.float64
    for method in ("totals", "ratios"):
        single, double = (
            replace(layout, size_method=method).log_sizes(counts.astype(t)) for t, layout in layouts.items()
        )
        np.testing.assert_array_equal(single, double)


def test_rows_of_a_group_are_filled_taken_and_transposed():
    y = np.array([[1.0, NAN], [3.0, 4.0], [NAN, 6.0]])
    constants = {"n_trials": np.array([[7.0, NAN], [8.0, 9.0], [NAN, 5.0]])}
    rows = GroupRows(y, ~np.isnan(y), constants, np.array([[0.1], [0.2], [0.3]]))
    filled = rows.filled()
    np.testing.assert_array_equal(filled.y, [[1.0, 0.0], [3.0, 4.0], [0.0, 6.0]])
    np.testing.assert_array_equal(filled.constants["n_trials"], [[7.0, 1.0], [8.0, 9.0], [1.0, 5.0]])
    some = filled.take_rows([2, 0])
    np.testing.assert_array_equal(some.y, [[0.0, 6.0], [1.0, 0.0]])
    np.testing.assert_array_equal(some.offset, [[0.3], [0.1]])
    channels = filled.channels_first(np.float32)
    assert {channels.y.dtype, channels.offset.dtype, channels.constants["n_trials"].dtype} == {np.dtype("f4")}
    np.testing.assert_array_equal(channels.y, filled.y.T)
    np.testing.assert_array_equal(channels.observed, rows.observed.T)
    second = channels.take_channels([1])
    np.testing.assert_array_equal(second.y, [[0.0, 4.0, 6.0]])
    np.testing.assert_array_equal(second.constants["n_trials"], [[1.0, 9.0, 5.0]])
    # the offset belongs to the rows
    np.testing.assert_array_equal(second.offset, channels.offset)
    arguments = channels.arguments({"log_noise": np.array([0.5, 0.7])})
    np.testing.assert_array_equal(arguments["log_noise"], [[0.5], [0.7]])
    assert set(arguments) == {"n_trials", "log_noise"}


# ---- sizes of rows --------------------------------------------------------------------------------


def rates(n_rows, n_columns, rng, signs=True):
    """Return means of counts that one latent makes larger in some columns and smaller in others."""
    slopes = rng.uniform(0.3, 0.8, n_columns) * (
        np.where(np.arange(n_columns) % 4 < 2, 1, -1) if signs else 1
    )
    return np.exp(2.5 + rng.standard_normal((n_rows, 1)) * slopes)


def chosen(Y, parameter="auto"):
    layout = Layout.from_data(Y, [(Poisson(), np.arange(Y.shape[1]))])
    return layout.choose_size_method(parameter, Y)


@pytest.mark.parametrize(("n_columns", "level", "method"), [(8, 1.0, "ratios"), (60, 0.05, "totals")])
def test_sizes_are_taken_where_they_explain_the_counts(n_columns, level, method):
    rng = np.random.RandomState(0)
    means = level * rates(300, n_columns, rng)
    assert chosen(rng.poisson(means).astype(float)) is None
    sized = rng.poisson(means * rng.gamma(1.0, 1.0, (300, 1))).astype(float)
    assert chosen(sized) == method
    # with a fifth of the entries missing, and as asked for
    assert chosen(np.where(rng.uniform(size=sized.shape) < 0.2, np.nan, sized)) == method
    assert chosen(sized, None) is None
    assert chosen(rng.poisson(means).astype(float), "totals") == "totals"


def test_few_columns_of_small_counts_have_no_sizes():
    rng = np.random.RandomState(0)
    counts = rng.poisson(2.0 * rng.gamma(1.0, 1.0, (300, 1)) * np.ones(20)).astype(float)
    assert chosen(counts) is None


def sized_counts(n_rows=60):
    rng = np.random.RandomState(1)
    sizes = rng.gamma(2.0, 0.5, n_rows)
    return rng.poisson(20.0 * sizes[:, None] * np.ones(6)).astype(float)


@pytest.mark.parametrize("latents", ["rows", "prior"])
def test_rows_are_drawn_with_the_sizes_that_the_data_have(latents):
    """Totals were far too even: all rows had the size one."""
    Y = sized_counts()
    model = made_up(Y, likelihood="poisson")
    assert model._posterior.layout.size_method == "ratios"
    np.testing.assert_allclose(np.log(model.size_factors_), model._posterior.layout.log_sizes(Y))
    # a model with the same function at all latents, so that only sizes differ
    posterior = model._posterior
    nothing = PackedCovariances(0.0 * posterior.covariance.packed)
    model._posterior = replace(posterior, weights=0.0 * posterior.weights, covariance=nothing)
    drawn = model.sample(4000, latents=latents, random_state=0)
    totals, seen = drawn.sum(axis=1), Y.sum(axis=1)
    assert np.std(np.log(totals + 0.5)) == pytest.approx(np.std(np.log(seen + 0.5)), rel=0.1)
    ones = model.sample(4000, latents=latents, sizes=1.0, random_state=0).sum(axis=1)
    assert np.std(np.log(ones + 0.5)) < 0.3 * np.std(np.log(seen + 0.5))
    sizes = np.linspace(1.0, 50.0, 4000)
    many = model.sample(4000, latents=latents, sizes=sizes, random_state=0).sum(axis=1)
    assert np.corrcoef(many, sizes)[0, 1] > 0.95


def test_sizes_and_their_method_survive_a_file(tmp_path):
    model = made_up(sized_counts(), likelihood="negative_binomial")
    model.save(tmp_path / "m.srflvm")
    loaded = load(tmp_path / "m.srflvm")
    np.testing.assert_array_equal(loaded.size_factors_, model.size_factors_)
    assert loaded._posterior.layout.size_method == "ratios"
    np.testing.assert_array_equal(loaded.sample(5, random_state=0), model.sample(5, random_state=0))


def test_files_of_version_3_have_the_method_that_followed_from_the_means(tmp_path):
    model, path = made_up(sized_counts(), likelihood="poisson"), tmp_path / "m.srflvm"
    model.save(path)
    header, tensors = read(path)
    del header["model"]["size_method"], tensors["fitted.size_factors_"]
    del header["model"]["has_affine"], header["model"]["columns"]
    del header["model"]["shares_basis"], header["model"]["has_votes"]
    del header["model"]["fitted"]["n_components_"]
    write(path, header | {"schema_version": 3}, tensors)
    loaded = load(path)
    assert loaded._posterior.layout.size_method == "ratios"
    np.testing.assert_array_equal(loaded.size_factors_, 1.0)
    np.testing.assert_array_equal(loaded.transform(sized_counts()), model.transform(sized_counts()))


def test_impossible_requests_are_refused():
    model = made_up(sized_counts(), likelihood="poisson")
    with pytest.raises(ValueError, match="latents='posterior' is not known"):
        model.sample(3, latents="posterior")
    with pytest.raises(ValueError, match="sizes"):
        model.sample(3, sizes=[1.0, -1.0, 2.0])
    with pytest.raises(ValueError, match="sizes"):
        model.sample(3, sizes=[1.0, 2.0])
    with pytest.raises(ValueError, match="Size factors are for counts"):
        made_up((sized_counts() > 20).astype(float), likelihood="bernoulli").sample(2, sizes=2.0)


def test_a_fit_keeps_the_sizes_of_its_rows():
    Y, sizes = sized_counts(), np.linspace(0.5, 2.0, 60)
    model = SRFLVM(1, likelihood="poisson", n_frequencies=5, max_iter=1, tol=0, random_state=0)
    np.testing.assert_allclose(model.fit(Y, sizes=sizes).size_factors_, sizes)
    model.set_params(batch_size=30)
    np.testing.assert_allclose(model.fit(Y, sizes=sizes).size_factors_, sizes)
