"""A posterior whose covariances share a basis gives what the same covariances packed give."""

import copy
from dataclasses import replace

import numpy as np
import pytest
from helpers.explore_pages import decoded_by_scripts, payload_in
from helpers.known_rows import known_model
from helpers.model_files import (
    assert_same,
    assert_same_outputs,
    change_entry,
    change_tensor,
    drop,
    made_up,
    model_of_all_kinds,
    outputs,
    rewrite,
    rows_of_each_kind,
    table_of_all_kinds,
)

import srflvm
from srflvm import ModelFileError
from srflvm.numerics.weight_covariances import PackedCovariances, SharedBasisCovariances


def in_one_basis(posterior, dtype):
    """Return the posterior with random covariances in one basis, in that form and packed."""
    random = np.random.default_rng(3)
    size, n_channels = posterior.weights.shape
    basis = np.linalg.qr(random.normal(size=(size, size)))[0].astype(dtype)
    spectrum = random.uniform(0.001, 0.1, size=(n_channels, size)).astype(dtype)
    shared = SharedBasisCovariances(basis, spectrum)
    packed = PackedCovariances(
        SharedBasisCovariances(basis.astype(np.float64), spectrum.astype(np.float64)).forms()
    )
    return replace(posterior, covariance=shared), replace(posterior, covariance=packed)


def with_shared_basis(model):
    changed = copy.copy(model)
    changed._posterior = in_one_basis(model._posterior, np.float32)[0]
    return changed


@pytest.mark.parametrize("n_latent", [1, 2])
def test_rows_are_embedded_scored_and_decoded_as_with_packed_covariances(n_latent):
    posterior, _, _, raw, sizes = known_model(n_latent)
    one, other = in_one_basis(posterior, np.float64)
    embedding = other.embed(raw, sizes)
    for left, right in zip(one.embed(raw, sizes), embedding, strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-6, atol=1e-8)
    assert np.max(np.abs(posterior.embed(raw, sizes).mean - embedding.mean)) > 1e-3
    where = embedding.mean, embedding.cholesky, sizes
    for part in ("mean", "latent_variance", "weight_variance", "noise_variance"):
        left, right = (getattr(each.decode(*where), part) for each in (one, other))
        np.testing.assert_allclose(left, right, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(one.log_density(raw, sizes), other.log_density(raw, sizes), rtol=1e-6)
    latents = embedding.mean
    np.testing.assert_allclose(one.unknown_share(latents), other.unknown_share(latents), rtol=1e-9)
    np.testing.assert_allclose(one.relative_variance_form(), other.relative_variance_form(), atol=1e-12)
    filled = one.fill_missing(raw, sizes), other.fill_missing(raw, sizes)
    np.testing.assert_allclose(*filled, rtol=1e-6, atol=1e-8)


def test_rows_are_drawn_with_the_same_moments():
    """Means and standard deviations of 4000 draws agree within five standard errors."""
    posterior, _, _, _, sizes = known_model(2)
    latents, log_sizes = posterior.anchors[:3], sizes[:3]
    draws = []
    for each in in_one_basis(posterior, np.float64):
        rng = np.random.RandomState(0)
        draws.append(np.stack([each.draw(latents, rng, log_sizes) for _ in range(4000)]))
    means, stds = (np.stack([part(d, axis=0) for d in draws]) for part in (np.mean, np.std))
    error = np.sqrt(np.sum(stds**2, axis=0) / 4000)
    assert np.max(np.abs(means[0] - means[1]) / error) < 5.0
    gaussian = (..., slice(0, 3))
    assert np.max(np.abs(stds[0] / stds[1] - 1.0)[gaussian]) < 5.0 / np.sqrt(4000)


def test_a_row_gets_the_same_embedding_alone_and_in_a_batch():
    posterior, _, _, raw, sizes = known_model(2)
    shared = in_one_basis(posterior, np.float32)[0]
    whole = shared.embed(raw, sizes)
    for row in (3, 11):
        for left, right in zip(whole, shared.embed(raw[[row]], sizes[[row]]), strict=True):
            np.testing.assert_array_equal(left[row], right[0])


# ---- files and pages --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def shared_model():
    return with_shared_basis(model_of_all_kinds())


def test_a_model_with_a_shared_basis_is_saved_and_loaded(shared_model, tmp_path):
    path = tmp_path / "model.srflvm"
    shared_model.save(path)
    loaded = srflvm.load(path)
    assert_same(loaded, shared_model)
    assert_same_outputs(loaded, shared_model, table_of_all_kinds())
    packed = model_of_all_kinds()
    assert any(
        not np.array_equal(one, other)
        for one, other in zip(
            outputs(loaded, table_of_all_kinds()), outputs(packed, table_of_all_kinds()), strict=True
        )
    )


CHANGES = {
    "packed": (change_entry("shares_basis", False), "packed_covariance is missing"),
    "no truth value": (change_entry("shares_basis", 1), "'shares_basis' is of the wrong kind"),
    "missing basis": (drop("posterior.basis"), r"tensor posterior\.basis is missing"),
    "missing spectrum": (drop("posterior.spectrum"), r"tensor posterior\.spectrum is missing"),
    "fewer features": (change_tensor("posterior.basis", lambda a: a[1:]), r"basis has shape"),
    "fewer channels": (change_tensor("posterior.spectrum", lambda a: a[1:]), "spectrum has shape"),
    "negative": (change_tensor("posterior.spectrum", np.negative), "spectrum has entries that are too small"),
    "an earlier version": (
        lambda h, t: h.update(schema_version=5),
        "entry has_votes, shares_basis is not known",
    ),
}


@pytest.mark.parametrize("kind", CHANGES)
def test_unsound_files_are_refused(shared_model, tmp_path, kind):
    change, message = CHANGES[kind]
    path = tmp_path / "model.srflvm"
    shared_model.save(path)
    rewrite(path, change)
    with pytest.raises(ModelFileError, match=message):
        srflvm.load(path)


@pytest.mark.parametrize("likelihood", ["bernoulli", "negative_binomial", "categorical"])
def test_a_page_decodes_with_a_shared_basis(likelihood, tmp_path):
    model = with_shared_basis(made_up(rows_of_each_kind()[likelihood], likelihood=likelihood))
    model.explore(tmp_path / "page.html")
    points = np.concatenate([model.embedding_[:6], 2.0 * model.embedding_[6:9]])
    decoded, found = model.decode(points), decoded_by_scripts(payload_in(tmp_path / "page.html"), points)
    np.testing.assert_allclose(found["mean"], decoded.mean, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(found["std"], np.sqrt(decoded.variance), rtol=1e-3, atol=1e-4)
    posterior = model._posterior
    share = np.mean(posterior.function_moments(points)[1] / (2.0 * posterior.amplitude), axis=1)
    np.testing.assert_allclose(found["uncertainty"], share, atol=1e-5)
