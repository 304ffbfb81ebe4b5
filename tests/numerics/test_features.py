"""Features against library calls, their derivatives, and their precision."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from srflvm.numerics.features import (
    MOST_CHUNK_ROWS,
    QUARTERS,
    VECTOR,
    _shifted_sine,
    chunk_shape,
    fourier_features,
    jacobian,
    layer_features,
)


def some_inputs(dtype=np.float64, n_rows=6, n_frequencies=5, size=2):
    random = np.random.default_rng(0)
    latents = random.normal(size=(n_rows, size)).astype(dtype)
    return latents, (2.0 * random.normal(size=(n_frequencies, size))).astype(dtype)


def test_features_are_sines_then_cosines():
    latents, frequencies = some_inputs()
    features = fourier_features(jnp.asarray(latents), jnp.asarray(frequencies))
    phases = [[float(w @ x) for w in frequencies] for x in latents]
    expected = np.hstack([np.sin(phases), np.cos(phases)]) / np.sqrt(5)
    np.testing.assert_allclose(features, expected, rtol=1e-13, atol=1e-15)


def test_products_of_features_are_mean_cosines_of_differences():
    latents, frequencies = some_inputs()
    features = fourier_features(jnp.asarray(latents), jnp.asarray(frequencies))
    differences = latents[:, None] - latents
    expected = np.mean(np.cos(differences @ frequencies.T), axis=-1)
    np.testing.assert_allclose(features @ features.T, expected, atol=1e-14)


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float32, 1e-6), (np.float64, 1e-15)])
def test_features_have_unit_length(dtype, tolerance):
    latents, frequencies = some_inputs(dtype, n_rows=50, n_frequencies=30)
    features = fourier_features(jnp.asarray(latents), jnp.asarray(frequencies))
    assert features.dtype == dtype
    np.testing.assert_allclose(jnp.sum(features**2, axis=1), 1.0, atol=tolerance)


@pytest.mark.parametrize("size", [1, 2, 12])
@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float32, 1e-6), (np.float64, 1e-14)])
def test_numpy_and_jax_agree(dtype, tolerance, size):
    latents, frequencies = some_inputs(dtype, size=size)
    plain = fourier_features(latents, frequencies)
    assert isinstance(plain, np.ndarray)
    assert plain.dtype == dtype
    for transform in (fourier_features, jax.jit(fourier_features)):
        np.testing.assert_allclose(
            transform(jnp.asarray(latents), jnp.asarray(frequencies)), plain, atol=tolerance
        )


@pytest.mark.parametrize("size", [1, 2, 12])
def test_gradients_of_the_features_are_those_of_double_precision(size):
    def total(latents, frequencies):
        features = fourier_features(latents, frequencies)
        return jnp.sum(features * jnp.arange(features.size).reshape(features.shape) / features.size)

    def by_library_calls(latents, frequencies):
        phase = latents @ frequencies.T
        features = jnp.concatenate([jnp.sin(phase), jnp.cos(phase)], axis=1) / len(frequencies) ** 0.5
        return jnp.sum(features * jnp.arange(features.size).reshape(features.shape) / features.size)

    truth = jax.grad(by_library_calls, argnums=(0, 1))(*map(jnp.asarray, some_inputs(size=size)))
    # a phase is a sum of so many products, whose roundings add up in an order that the processor chooses
    for dtype, tolerance in ((np.float32, (1 + size) * 1e-6), (np.float64, (1 + size) * 5e-15)):
        found = jax.jit(jax.grad(total, argnums=(0, 1)))(*map(jnp.asarray, some_inputs(dtype, size=size)))
        for gradient, expected in zip(found, truth, strict=True):
            assert gradient.dtype == dtype
            np.testing.assert_allclose(gradient, expected, atol=tolerance)


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float32, 2e-7), (np.float64, 4e-16)])
def test_fast_sine_and_cosine_are_accurate_in_every_quadrant(dtype, tolerance):
    boundaries = np.arange(-637, 638)[:, None] * (np.pi / 4) + np.array([-1e-4, 0.0, 1e-4])
    phase = np.concatenate([np.linspace(-1e3, 1e3, 100_001), boundaries.ravel()]).astype(dtype)
    shifts = jnp.array([[0.0], [0.5]], dtype)
    sine, cosine = jax.jit(_shifted_sine)(jnp.asarray(phase), shifts)
    assert sine.dtype == cosine.dtype == dtype
    np.testing.assert_allclose(sine, np.sin(phase.astype(float)), atol=tolerance, rtol=0)
    np.testing.assert_allclose(cosine, np.cos(phase.astype(float)), atol=tolerance, rtol=0)


def test_the_jacobian_is_that_of_the_function():
    random = np.random.default_rng(3)
    frequencies, weights = jnp.asarray(random.normal(size=(40, 3))), jnp.asarray(random.normal(size=(80, 60)))
    latents = jnp.asarray(random.normal(size=(2, 3)))
    dense = jax.vmap(jax.jacfwd(lambda x: (fourier_features(x[None], frequencies) @ weights)[0]))(latents)
    np.testing.assert_allclose(
        jacobian(frequencies, weights, latents), np.moveaxis(dense, 2, 1), rtol=1e-10, atol=1e-12
    )


@pytest.mark.parametrize("n_rows", [1, 2, 2048, 2049, 60_000, 1_000_003, 30_000_001])
def test_chunks_hold_all_rows_with_little_to_spare(n_rows):
    n_chunks, size = chunk_shape(n_rows)
    assert size <= MOST_CHUNK_ROWS
    assert 0 <= n_chunks * size - n_rows < 0.01 * n_rows + n_chunks * VECTOR
    assert n_chunks <= 2 or (n_chunks % QUARTERS, size % VECTOR) == (0, 0)


# ---- features of the layer ------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_features_of_a_layer_are_waves_latents_and_the_constant(size):
    latents, frequencies = some_inputs(size=size)
    affine = np.linspace(0.3, 0.9, 1 + size)
    waves = fourier_features(latents, frequencies)
    columns = [affine[0] * wave for wave in waves.T]
    columns += [affine[1 + q] * latents[:, q] for q in range(size)]
    columns += [np.zeros(6)] * (size % 2) + [np.ones(6)]
    found = layer_features(latents, frequencies, affine)
    assert isinstance(found, np.ndarray)
    # an odd number of features, as packed matrices need it
    assert found.shape[1] % 2 == 1
    np.testing.assert_array_equal(found, np.stack(columns, axis=1))
    by_jax = jax.jit(layer_features)(*map(jnp.asarray, (latents, frequencies, affine)))
    np.testing.assert_allclose(by_jax, found, atol=1e-14)
    assert layer_features(*(part.astype(np.float32) for part in (latents, frequencies, affine))).dtype == "f4"


def test_without_an_affine_part_the_layer_has_waves_and_the_constant():
    latents, frequencies = some_inputs()
    found = layer_features(latents, frequencies, np.zeros(0))
    expected = np.c_[fourier_features(latents, frequencies), np.ones(6)]
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("has_affine", [False, True])
def test_derivatives_in_the_latents_are_those_of_jax(size, has_affine):
    latents, frequencies = some_inputs(size=size)
    affine = jnp.linspace(0.3, 0.9, 1 + size) if has_affine else jnp.zeros(0)
    n_features = layer_features(latents, frequencies, np.asarray(affine)).shape[1]
    weights = jnp.asarray(np.random.default_rng(1).normal(size=(n_features, 4)))

    def function(x):
        return layer_features(x[None], jnp.asarray(frequencies), affine)[0] @ weights

    expected = np.swapaxes(jax.jit(jax.vmap(jax.jacfwd(function)))(jnp.asarray(latents)), 1, 2)
    # the embedding leaves the constant's weight out
    found = jacobian(jnp.asarray(frequencies), weights[:-1], jnp.asarray(latents), affine)
    assert found.shape == (6, size, 4)
    np.testing.assert_allclose(found, expected, atol=1e-13)
