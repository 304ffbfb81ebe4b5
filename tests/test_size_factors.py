"""Sizes of rows: when they are taken, and rows drawn with them."""

import numpy as np
import pytest
from model_files import made_up, read, write

from srflvm import SRFLVM, load, size_factors
from srflvm.likelihoods import Poisson
from srflvm.observations import lay_out


def rates(n_rows, n_columns, rng, signs=True):
    """Means of counts that one latent makes larger in some columns and smaller in others."""
    slopes = rng.uniform(0.3, 0.8, n_columns) * (
        np.where(np.arange(n_columns) % 4 < 2, 1, -1) if signs else 1
    )
    return np.exp(2.5 + rng.standard_normal((n_rows, 1)) * slopes)


def chosen(Y, parameter="auto"):
    return size_factors.choose_method(parameter, Y, lay_out(Y, [(Poisson(), np.arange(Y.shape[1]))]))


@pytest.mark.parametrize(("n_columns", "level", "method"), [(8, 1.0, "ratios"), (60, 0.05, "totals")])
def test_sizes_are_taken_where_they_explain_the_counts(n_columns, level, method):
    rng = np.random.RandomState(0)
    means = level * rates(300, n_columns, rng)
    assert chosen(rng.poisson(means).astype(float)) is None
    sized = rng.poisson(means * rng.gamma(1.0, 1.0, (300, 1))).astype(float)
    assert chosen(sized) == method
    # with a hole in every fifth place, and as asked for
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
    posterior.weights[:] = 0.0
    posterior.packed_covariance[:] = 0.0
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
