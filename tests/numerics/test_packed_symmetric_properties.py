"""Packed symmetric matrices of any size against dense ones, exactly: entries are small whole numbers."""

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from srflvm.numerics import packed_symmetric

N_COLUMNS = 3
ODD_SIZES = st.integers(0, 8).map(lambda half: 2 * half + 1)
WHOLE_NUMBERS = st.integers(-9, 9).map(float)


def numbers(*shape):
    return arrays(np.float64, shape, elements=WHOLE_NUMBERS)


@st.composite
def problems(draw):
    """Draw features (N, L) and symmetric matrices (B, L, L)."""
    size, n_rows = draw(ODD_SIZES), draw(st.integers(1, 6))
    matrices = draw(numbers(N_COLUMNS, size, size))
    return draw(numbers(n_rows, size)), matrices + np.swapaxes(matrices, 1, 2)


@settings(max_examples=30)
@given(problems())
def test_unpacking_undoes_packing(problem):
    _, matrices = problem
    size = matrices.shape[-1]
    packed = np.asarray(packed_symmetric.pack_form(jnp.asarray(matrices)))
    assert packed.shape == (N_COLUMNS, size * (size + 1) // 2)
    np.testing.assert_array_equal(packed_symmetric.unpack(packed, size, form=True), matrices)


@settings(max_examples=30)
@given(problems())
def test_quadratic_forms_are_those_of_dense_matrices(problem):
    features, matrices = problem
    with jax.disable_jit():
        packed = packed_symmetric.pack_form(jnp.asarray(matrices))
        found = packed_symmetric.quadratic_forms(jnp.asarray(features), packed)
    np.testing.assert_array_equal(found, np.einsum("ni,bij,nj->bn", features, matrices, features))
    np.testing.assert_array_equal(packed_symmetric.quadratic_forms(features, np.asarray(packed)), found)


@settings(max_examples=30)
@given(problems())
def test_gradients_of_quadratic_forms_are_those_of_dense_matrices(problem):
    features, matrices = problem
    with jax.disable_jit():
        packed = packed_symmetric.pack_form(jnp.asarray(matrices))
        found = jax.grad(lambda phi: jnp.sum(packed_symmetric.quadratic_forms(phi, packed)))(
            jnp.asarray(features)
        )
    np.testing.assert_array_equal(found, 2.0 * features @ matrices.sum(axis=0))


@settings(max_examples=30)
@given(problems(), st.data())
def test_weighted_gram_matrices_are_dense_ones(problem, data):
    features, _ = problem
    n_rows, size = features.shape
    weights = data.draw(numbers(N_COLUMNS, n_rows))
    with jax.disable_jit():
        packed = packed_symmetric.weighted_grams(jnp.asarray(features), jnp.asarray(weights))
    found = packed_symmetric.unpack(np.asarray(packed), size)
    np.testing.assert_array_equal(found, np.einsum("bn,ni,nj->bij", weights, features, features))
