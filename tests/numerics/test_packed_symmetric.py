"""Packed pairs of features against dense matrices.

A sum of n products is off by at most n eps times the sum of their absolute values: no comparison allows more.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from srflvm.numerics import packed_symmetric

SIZES = [1, 3, 5, 9, 21]
DTYPES = [np.float32, np.float64]
N_ROWS, N_COLUMNS = 11, 4
# Sizes, and how many diagonals of T are made at a time: more than there are, twice; groups of which the last
# runs over by one; three whole groups of one; four groups of three, of which the last runs over by one.
CASES = [
    (1, 3, np.float64),
    (3, 3, np.float32),
    (5, 2, np.float32),
    (5, 1, np.float64),
    (21, 3, np.float64),
]


@pytest.fixture(params=CASES, ids=lambda case: f"{case[0]}-{case[1]}-{case[2].__name__}")
def case(request, monkeypatch):
    """Return a number of features and a precision."""
    size, diagonals, dtype = request.param
    monkeypatch.setattr(packed_symmetric, "_DIAGONALS", diagonals)
    return size, dtype


def some_features(size, dtype=np.float64, n_rows=N_ROWS):
    return np.random.default_rng(size).normal(size=(n_rows, size)).astype(dtype)


def some_symmetric(size, dtype=np.float64):
    matrices = np.random.default_rng(size + 1).normal(size=(N_COLUMNS, size, size))
    return (matrices + np.swapaxes(matrices, 1, 2)).astype(dtype)


def assert_within_rounding(found, exact, sum_of_absolutes, n_terms, dtype):
    assert found.dtype == dtype
    assert np.all(np.abs(found - exact) <= n_terms * np.finfo(dtype).eps * sum_of_absolutes)


@pytest.mark.parametrize("size", SIZES)
def test_every_pair_is_packed_exactly_once(size):
    # products of two primes tell the pair that they came from
    candidates = np.arange(2, 100)
    primes = np.array([p for p in candidates if np.all(p % np.arange(2, p) != 0)][:size], float)
    packed = packed_symmetric.pair_products(primes[None])[0]
    expected = np.outer(primes, primes)[np.triu_indices(size)]
    assert len(packed) == size * (size + 1) // 2
    np.testing.assert_array_equal(np.sort(packed), np.sort(expected))
    np.testing.assert_array_equal(packed_symmetric.unpack(packed[None], size)[0], np.outer(primes, primes))


def test_the_diagonal_comes_first():
    """Check what `site_regression.solve` relies on: it takes traces of the first entries."""
    features = some_features(9)
    np.testing.assert_array_equal(packed_symmetric.pair_products(features)[:, :9], features**2)


def test_weighted_grams_are_those_of_each_column(case):
    size, dtype = case
    features = some_features(size, dtype)
    weights = np.random.default_rng(7).normal(size=(N_COLUMNS, N_ROWS)).astype(dtype)
    weights[1, 3:8] = 0.0
    packed = jax.jit(packed_symmetric.weighted_grams)(jnp.asarray(features), jnp.asarray(weights))
    assert packed.shape == (N_COLUMNS, size * (size + 1) // 2)
    exact, absolute = (
        np.einsum("bn,ni,nj->bij", w, phi, phi)
        for w, phi in [
            (weights.astype(float), features.astype(float)),
            (abs(weights).astype(float), abs(features).astype(float)),
        ]
    )
    # two roundings for each product of three, and a sum of 11
    found = np.asarray(packed_symmetric.unpack(packed, size))
    assert_within_rounding(found, exact, absolute, N_ROWS + 2, dtype)
    np.testing.assert_array_equal(found, np.swapaxes(found, 1, 2))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [1, 9])
def test_unpacking_a_form_undoes_packing(size, dtype):
    matrices = some_symmetric(size, dtype)
    packed = packed_symmetric.pack_form(jnp.asarray(matrices))
    assert packed.dtype == dtype
    np.testing.assert_array_equal(packed_symmetric.unpack(packed, size, form=True), matrices)
    np.testing.assert_array_equal(packed_symmetric.unpack(np.asarray(packed), size, form=True), matrices)


def test_quadratic_forms_are_those_of_each_row_and_column(case):
    size, dtype = case
    features, matrices = some_features(size, dtype), some_symmetric(size, dtype)
    packed = packed_symmetric.pack_form(jnp.asarray(matrices))
    found = jax.jit(lambda phi: packed_symmetric.quadratic_forms(phi, packed))(features)
    plain = packed_symmetric.quadratic_forms(features, np.asarray(packed))
    exact, absolute = (
        np.einsum("ni,bij,nj->bn", phi, V, phi)
        for phi, V in [
            (features.astype(float), matrices.astype(float)),
            (abs(features).astype(float), abs(matrices).astype(float)),
        ]
    )
    for forms in (np.asarray(found), plain):
        assert_within_rounding(forms, exact, absolute, size * (size + 1) // 2 + 2, dtype)


def dense_forms(features, matrices):
    return jnp.einsum("ni,bij,nj->bn", features, matrices, features)


def gradient_of(function, features, cotangent):
    return np.asarray(jax.jit(lambda phi: jax.vjp(function, phi)[1](cotangent)[0])(features))


def test_gradients_of_quadratic_forms_are_those_of_the_dense_form(case):
    size, dtype = case
    features, matrices = some_features(size, dtype), some_symmetric(size, dtype)
    cotangent = np.random.default_rng(8).normal(size=(N_COLUMNS, N_ROWS)).astype(dtype)
    packed = packed_symmetric.pack_form(jnp.asarray(matrices))
    found = gradient_of(lambda phi: packed_symmetric.quadratic_forms(phi, packed), features, cotangent)
    wide = [np.asarray(array, float) for array in (features, matrices, cotangent)]
    exact = gradient_of(lambda phi: dense_forms(phi, wide[1]), wide[0], wide[2])
    absolute = 2.0 * np.einsum("bn,bij,nj->ni", *(abs(wide[i]) for i in (2, 1, 0)))
    assert_within_rounding(found, exact, absolute, N_COLUMNS + size + 3, dtype)


def test_gradients_are_central_differences_and_none_goes_to_the_packed_form():
    features, matrices = some_features(5), some_symmetric(5)
    packed, cotangent = (
        packed_symmetric.pack_form(jnp.asarray(matrices)),
        np.cos(np.arange(44.0)).reshape(4, 11),
    )

    def total(phi, form):
        return jnp.sum(cotangent * packed_symmetric.quadratic_forms(phi, form))

    gradient, none = jax.grad(total, argnums=(0, 1))(jnp.asarray(features), packed)
    direction = np.sin(np.arange(55.0)).reshape(11, 5)
    # the form is quadratic: central differences are exact up to rounding, 1e-16 / 1e-3 of the total
    ahead, behind = (total(jnp.asarray(features + s * direction), packed) for s in (1e-3, -1e-3))
    np.testing.assert_allclose((ahead - behind) / 2e-3, np.sum(gradient * direction), rtol=1e-10)
    assert not np.any(none)


def test_compiled_and_mapped_over_draws_they_are_the_same():
    draws = jnp.asarray(np.stack([some_features(5), some_features(5)[::-1]]))
    packed = packed_symmetric.pack_form(jnp.asarray(some_symmetric(5)))
    value_and_slope = jax.value_and_grad(
        lambda phi: jnp.sum(jnp.sin(packed_symmetric.quadratic_forms(phi, packed)))
    )
    together = jax.jit(jax.vmap(value_and_slope))(draws)
    for index, draw in enumerate(draws):
        for left, right in zip(together, value_and_slope(draw), strict=True):
            np.testing.assert_allclose(left[index], right, rtol=1e-12, atol=1e-12)
