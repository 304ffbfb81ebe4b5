"""Both forms of the covariances of weights against dense matrices, channel by channel."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from srflvm.numerics import weight_covariances
from srflvm.numerics.packed_symmetric import pack_form, quadratic_forms
from srflvm.numerics.weight_covariances import PackedCovariances, SharedBasisCovariances

SIZE, N_CHANNELS, N_ROWS = 7, 5, 4


def numbers():
    """Return dense covariances (C, L, L) with a common basis, features (n, L) and precisions (n, C)."""
    random = np.random.default_rng(0)
    basis = np.linalg.qr(random.normal(size=(SIZE, SIZE)))[0]
    spectrum = random.uniform(0.01, 2.0, size=(N_CHANNELS, SIZE))
    dense = np.stack([basis @ np.diag(own) @ basis.T for own in spectrum])
    features, precisions = random.normal(size=(N_ROWS, SIZE)), random.uniform(size=(N_ROWS, N_CHANNELS))
    return basis, spectrum, dense, features, precisions


def both_forms():
    basis, spectrum, dense, *_ = numbers()
    return {
        "packed": PackedCovariances(np.asarray(pack_form(dense))),
        "shared basis": SharedBasisCovariances(basis, spectrum),
    }


@pytest.fixture(params=["packed", "shared basis"])
def covariances(request):
    return both_forms()[request.param]


def test_variances_are_quadratic_forms(covariances):
    _, _, dense, features, _ = numbers()
    expected = [[phi @ own @ phi for own in dense] for phi in features]
    np.testing.assert_allclose(covariances.variances(features), expected, rtol=1e-12)
    found = covariances.products(features) @ covariances.coefficients.T
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_some_channels_are_taken(covariances):
    features = numbers()[3]
    for some in (slice(1, 3), np.array([4, 0])):
        expected = covariances.variances(features)[:, some]
        np.testing.assert_allclose(covariances.take(some).variances(features), expected, rtol=1e-14)


@pytest.mark.parametrize("most", [5_000_000, 60, 1])
def test_the_penalty_is_half_the_weighted_sum_of_forms(covariances, most, monkeypatch):
    """Also where packed covariances are summed in blocks, of which the last is not full."""
    monkeypatch.setattr(weight_covariances, "_MOST_CONVERTED", most)
    _, _, dense, features, precisions = numbers()
    with jax.enable_x64(True):
        on_device = jax.tree.map(jnp.asarray, covariances)
        value, slope = on_device.weighted_penalty(jnp.asarray(precisions))(jnp.asarray(features))
    for row, phi in enumerate(features):
        matrix = sum(lam * own for lam, own in zip(precisions[row], dense, strict=True))
        np.testing.assert_allclose(value[row], 0.5 * phi @ matrix @ phi, rtol=1e-12)
        np.testing.assert_allclose(slope[row], matrix @ phi, rtol=1e-10, atol=1e-12)


def test_forms_are_those_of_dense_matrices(covariances, monkeypatch):
    _, _, dense, features, precisions = numbers()
    monkeypatch.setattr(weight_covariances, "_CHANNELS_AT_ONCE", 2)
    np.testing.assert_allclose(covariances.forms(), pack_form(dense), rtol=1e-12, atol=1e-14)
    summed = covariances.weighted_form(precisions[0])
    matrix = np.einsum("c,cij->ij", precisions[0], dense)
    expected = np.einsum("ni,ij,nj->n", features, matrix, features)
    np.testing.assert_allclose(quadratic_forms(features, summed[None])[0], expected, rtol=1e-12)


def test_draws_have_the_covariances(covariances, monkeypatch):
    """With 20 000 draws, entries are within five standard errors, sqrt((V_ij^2 + V_ii V_jj) / n)."""
    monkeypatch.setattr(weight_covariances, "_CHANNELS_AT_ONCE", 2)
    dense, n_draws = numbers()[2], 20_000
    many = covariances.take(np.repeat(np.arange(N_CHANNELS), n_draws // 100))
    rng = np.random.RandomState(0)
    drawn = np.concatenate([many.draw(rng).reshape(SIZE, N_CHANNELS, -1) for _ in range(100)], axis=2)
    assert drawn.shape == (SIZE, N_CHANNELS, n_draws)
    for channel, own in enumerate(dense):
        found = drawn[:, channel] @ drawn[:, channel].T / n_draws
        error = np.sqrt((own**2 + np.outer(np.diag(own), np.diag(own))) / n_draws)
        assert np.max(np.abs(found - own) / error) < 5.0
    between = drawn[:, 0] @ drawn[:, 1].T / n_draws
    assert np.max(np.abs(between)) < 5.0 * np.sqrt(np.max(dense[0]) * np.max(dense[1]) / n_draws)
