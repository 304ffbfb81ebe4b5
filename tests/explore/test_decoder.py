import copy
import json
from dataclasses import replace

import numpy as np
import pytest
from helpers.explore_pages import decoded_by_scripts, payload_in, run_in_node
from helpers.model_files import (
    fit_briefly,
    fit_with_missing,
    made_up,
    model_of_all_kinds,
    rows_of_each_kind,
    some_rows,
)

from srflvm.explore.decoder import Decoder
from srflvm.likelihoods import Gaussian
from srflvm.numerics import packed_symmetric
from srflvm.numerics.weight_covariances import PackedCovariances

TOLERANCE = 1e-4


def points_of(model):
    """Return latents of rows, and places between and far from them."""
    random = np.random.RandomState(1)
    n_latent = model.embedding_.shape[1]
    return np.concatenate([model.embedding_[:6], 2.0 * random.standard_normal((6, n_latent))])


def decoded_by_python(model, points):
    decoded = model.decode(points)
    return decoded.mean, np.sqrt(decoded.variance)


def assert_scripts_decode_as_python(model, path, **options):
    model.explore(path, **options)
    payload, points = payload_in(path), points_of(model)
    mean, std = decoded_by_python(model, points)
    scale = decoded_by_python(model, model.embedding_)[1].mean(axis=0)
    found = decoded_by_scripts(payload, points)
    # weights in single precision leave the seventh digit of a value that is far beyond all data
    assert np.max(np.abs(found["mean"] - mean) / (scale + 0.1 * np.abs(mean))) < TOLERANCE
    assert np.max(np.abs(found["std"] - std) / (scale + 0.1 * std)) < TOLERANCE
    np.testing.assert_allclose(found["columns"], found["mean"], rtol=1e-12, atol=1e-12)
    return payload, points, found


def test_gaussian(model, tmp_path):
    _, points, found = assert_scripts_decode_as_python(model, tmp_path / "page.html")
    share = model.decode(points).weight_variance[:, 0] / model.amplitude_
    np.testing.assert_allclose(found["uncertainty"], share, atol=1e-5)


def test_gaussian_with_missing_entries(tmp_path):
    model = fit_with_missing()
    assert_scripts_decode_as_python(model, tmp_path / "page.html")


def test_one_latent_dimension_and_compressed_columns(tmp_path):
    settings = {"n_components": 1, "compression": 2, "n_frequencies": 5, "max_iter": 1, "init": "pca"}
    model = fit_briefly(some_rows(), **settings)
    assert model._posterior.columns.directions.shape == (4, 2)
    payload, *_ = assert_scripts_decode_as_python(model, tmp_path / "page.html")
    assert payload["dims"] == [0, None]


def test_all_likelihoods_at_once(tmp_path):
    model = model_of_all_kinds()
    payload, points, found = assert_scripts_decode_as_python(model, tmp_path / "page.html")
    assert payload["decoder"]["covariances"]["values"]["type"] == "int16"
    posterior = model._posterior
    share = posterior.function_moments(points)[1] / (2.0 * posterior.amplitude)
    np.testing.assert_allclose(found["uncertainty"], share.mean(axis=1).clip(0.0, 1.0), atol=1e-5)


@pytest.mark.parametrize("likelihood", ["poisson", "negative_binomial", "bernoulli"])
def test_a_likelihood_with_size_factors_and_missing_entries(likelihood, tmp_path):
    Y = rows_of_each_kind()[likelihood].copy()
    Y[::5, 1] = np.nan
    sizes = None if likelihood == "bernoulli" else "totals"
    model = made_up(Y, likelihood=likelihood, size_factors=sizes)
    assert_scripts_decode_as_python(model, tmp_path / "page.html")


def test_transformed_columns(tmp_path):
    Y = np.exp(2.0 * some_rows())
    Y[:, 1] = -Y[:, 1]
    Y[:, 2] = np.round(Y[:, 2])
    kinds = ("log", "yeo_johnson", "yeo_johnson", "none")
    model = made_up(Y, likelihood=Gaussian("column", "column", transform=kinds))
    payload, *_ = assert_scripts_decode_as_python(model, tmp_path / "page.html")
    assert [group["kind"] for group in payload["decoder"]["groups"]] == ["transformed"]


def test_the_noise_of_rounded_columns_is_in_the_page(tmp_path):
    model = made_up(np.round(some_rows()), likelihood=Gaussian("column", "column"))
    assert_scripts_decode_as_python(model, tmp_path / "page.html")


def test_covariances_that_rounding_would_change_are_not_rounded(tmp_path):
    model = copy.copy(made_up(rows_of_each_kind()["poisson"], likelihood="poisson"))
    wide = PackedCovariances(model._posterior.covariance.packed * 30.0)
    model._posterior = replace(model._posterior, covariance=wide)
    payload, *_ = assert_scripts_decode_as_python(model, tmp_path / "page.html")
    assert payload["decoder"]["covariances"]["values"]["type"] == "float32"


def with_affine_part(model, spread=0.1):
    """Return a copy of a made-up model whose latents are among its features, with made-up numbers.

    `spread` is the scale of the weights' standard deviations.
    """
    random, changed, posterior = np.random.RandomState(2), copy.copy(model), model._posterior
    n_latent, n_channels = model.embedding_.shape[1], posterior.layout.n_channels
    size = 2 * len(posterior.frequencies) + n_latent + n_latent % 2 + 1
    factors = spread * random.standard_normal((n_channels, size, size + 4))
    packed = np.asarray(packed_symmetric.pack_form(factors @ factors.swapaxes(1, 2)))
    changed._posterior = replace(
        posterior,
        weights=0.5 * random.standard_normal((size, n_channels)),
        covariance=PackedCovariances(packed.astype(np.float32)),
        affine=random.uniform(0.3, 1.5, 1 + n_latent),
    )
    return changed


def share_of_prior_variance(model, points):
    """Compute the variance of the function by that of its prior: of constant, waves, latents."""
    posterior = model._posterior
    waves, *slopes = posterior.affine
    squares = 1.0 + waves**2 + np.sum((slopes * points) ** 2, axis=1, keepdims=True)
    return np.mean(posterior.function_moments(points)[1] / (posterior.amplitude * squares), axis=1)


@pytest.mark.parametrize("n_components", [1, 2, 3])
@pytest.mark.parametrize(
    ("likelihood", "spread", "kind"),
    [("student_t", 0.05, "int16"), ("poisson", 0.1, "float32"), ("categorical", 0.05, "int16")],
)
def test_an_affine_part(n_components, likelihood, spread, kind, tmp_path):
    Y = rows_of_each_kind()[likelihood]
    plain = made_up(Y, likelihood=likelihood, n_components=n_components)
    model = with_affine_part(plain, spread)
    payload, points, found = assert_scripts_decode_as_python(model, tmp_path / "page.html")
    share = share_of_prior_variance(model, points)
    assert 0.0 < share.min() < share.max() < 1.0
    np.testing.assert_allclose(found["uncertainty"], share, rtol=1e-5, atol=1e-7)
    assert payload["decoder"]["covariances"]["values"]["type"] == kind
    plain.explore(tmp_path / "plain.html")
    assert payload["decoder"]["affine"]["data"]
    assert not payload_in(tmp_path / "plain.html")["decoder"]["affine"]["data"]


def test_the_share_left_of_the_prior_variance_is_one_for_the_prior(tmp_path):
    """Check a function of which nothing is known, also far away, where the affine part is the largest."""
    model = with_affine_part(made_up(some_rows(), likelihood="student_t", n_components=3))
    posterior = model._posterior
    prior = posterior.amplitude[:, None, None] * np.eye(len(posterior.weights))
    packed = np.asarray(packed_symmetric.pack_form(prior))
    model._posterior = replace(posterior, covariance=PackedCovariances(packed.astype(np.float32)))
    model.explore(tmp_path / "page.html")
    points = np.array([[0.0, 0.0, 0.0], [1.0, -2.0, 0.5], [30.0, 40.0, -50.0]])
    found = decoded_by_scripts(payload_in(tmp_path / "page.html"), points)["uncertainty"]
    np.testing.assert_allclose(found, 1.0, rtol=1e-6)
    halved = replace(posterior, covariance=PackedCovariances((0.5 * packed).astype(np.float32)))
    model._posterior = halved
    model.explore(tmp_path / "page.html")
    found = decoded_by_scripts(payload_in(tmp_path / "page.html"), points)["uncertainty"]
    np.testing.assert_allclose(found, 0.5, rtol=1e-6)


def test_channels_are_as_long_as_they_are_said_to_be():
    model = with_affine_part(made_up(rows_of_each_kind()["poisson"], likelihood="poisson", n_components=3))
    decoder = Decoder.of(model._posterior, model.embedding_)
    kept = np.ones(4, bool)
    whole, less = (decoder.payload(kept & (np.arange(4) < n)) for n in (4, 3))
    length = len(json.dumps(whole)) - len(json.dumps(less))
    assert length <= decoder.channel_bytes < length + 100


def test_geometry():
    program = """
    const square = [[0, 0], [2, 0], [2, 2], [1, 0.5], [0, 2]];
    const inside = insidePolygon([1, 0.2, 1, 3, 1.9], [0.2, 1, 1.5, 1, 1.2], square);
    const latents = Float32Array.from([0, 0, 3, 4, 1, 1, -1, 0]);
    const nearest = nearestRows(latents, 2, [1, 0.9], 2).map(({ row }) => row);
    const range = ticks(-0.7, 2.1, 3);
    const texts = [formatNumber(-0.01234), formatCount(1234567)];
    process.stdout.write(JSON.stringify([inside, nearest, range, ...texts]));
    """
    inside, nearest, range_ticks, number, count = json.loads(run_in_node(program))
    assert inside == [0, 1, 4]
    assert nearest == [2, 0]
    assert range_ticks == [0, 1, 2]
    assert (number, count) == ("\u22120.012", "1\u202f234\u202f567")
