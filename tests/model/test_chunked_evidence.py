"""Evidence by chunks of rows against the evidence of all rows at once, on one device and on several."""

import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as Spec

from srflvm import bcd
from srflvm.model import chunked_evidence, elbo
from srflvm.model.chunked_evidence import chunk_targets
from srflvm.model.evidence_layers import SharedData, SharedLayer
from srflvm.numerics import features
from srflvm.numerics.features import ROWS, fourier_features
from srflvm.numerics.shared_regression import Targets, predict_and_evidence

N_ROWS, N_COLUMNS = 23, 4
NOISE, RATIO = jnp.asarray(0.3), jnp.asarray(0.12)


def some_problem(dtype=np.float64):
    random = np.random.default_rng(0)
    latents, frequencies = random.normal(size=(N_ROWS, 2)), random.normal(size=(5, 2))
    Y = np.sin(latents @ random.normal(size=(2, N_COLUMNS))) + 0.3 * random.normal(size=(N_ROWS, N_COLUMNS))
    return jnp.asarray(latents, dtype), jnp.asarray(frequencies, dtype), Y


def whole(latents, frequencies, noise, ratio, Y):
    targets = Targets(jnp.asarray(Y), jnp.sum(jnp.asarray(Y) ** 2), jnp.asarray(float(Y.shape[1])))
    return predict_and_evidence(fourier_features(latents, frequencies), noise, ratio, targets)[0]


def by_chunks(latents, frequencies, noise, ratio, Y, mesh=None, dtype=np.float64):
    targets = chunk_targets(Y, np.sum(Y**2), Y.shape[1], dtype)
    value = jax.jit(jax.value_and_grad(chunked_evidence.log_evidence, argnums=(1, 2, 3, 4)), static_argnums=0)
    return value(mesh, latents, frequencies, noise, ratio, targets)


@pytest.fixture(params=[4, 10, 23, 2048])
def most_rows(request, monkeypatch):
    monkeypatch.setattr(features, "MOST_CHUNK_ROWS", request.param)


@pytest.mark.usefixtures("most_rows")
def test_chunks_of_any_size_give_value_and_gradients_of_the_whole():
    latents, frequencies, Y = some_problem()
    value, gradients = by_chunks(latents, frequencies, NOISE, RATIO, Y)
    exact = jax.value_and_grad(whole, argnums=(0, 1, 2, 3))(latents, frequencies, NOISE, RATIO, Y)
    np.testing.assert_allclose(value, exact[0], rtol=1e-12)
    for found, truth in zip(gradients, exact[1], strict=True):
        np.testing.assert_allclose(found, truth, rtol=1e-9, atol=1e-10)


def test_single_precision_loses_only_rounding(monkeypatch):
    monkeypatch.setattr(features, "MOST_CHUNK_ROWS", 6)
    latents, frequencies, Y = some_problem(np.float32)
    value, gradients = by_chunks(latents, frequencies, NOISE, RATIO, Y, dtype=np.float32)
    exact, slopes = by_chunks(latents.astype(float), frequencies.astype(float), NOISE, RATIO, Y)
    np.testing.assert_allclose(value, exact, rtol=1e-5)
    for found, truth in zip(gradients, slopes, strict=True):
        np.testing.assert_allclose(found, truth, atol=1e-4 * np.abs(truth).max())
    assert [gradient.dtype for gradient in gradients] == [jnp.float32, jnp.float32, jnp.float64, jnp.float64]


def test_latents_beyond_the_rows_count_for_nothing(monkeypatch):
    monkeypatch.setattr(features, "MOST_CHUNK_ROWS", 6)
    latents, frequencies, Y = some_problem()
    more = jnp.concatenate([latents, jnp.full((1, 2), 7.0)])
    value, gradients = by_chunks(latents, frequencies, NOISE, RATIO, Y)
    padded, padded_gradients = by_chunks(more, frequencies, NOISE, RATIO, Y)
    np.testing.assert_allclose(padded, value, rtol=1e-14)
    np.testing.assert_allclose(padded_gradients[0][:-1], gradients[0], rtol=1e-12)
    np.testing.assert_array_equal(padded_gradients[0][-1:], 0.0)


def test_a_gradient_keeps_no_features_of_all_rows():
    latents = jax.ShapeDtypeStruct((200_000, 2), jnp.float32)
    frequencies = jax.ShapeDtypeStruct((100, 2), jnp.float32)
    targets = jax.eval_shape(lambda: chunk_targets(np.zeros((200_000, 10)), 1.0, 10, np.float32))
    scalar = jax.ShapeDtypeStruct((), jnp.float64)
    gradient = jax.jit(jax.grad(chunked_evidence.log_evidence, argnums=(1, 2)), static_argnums=0)
    compiled = gradient.lower(None, latents, frequencies, scalar, scalar, targets).compile()
    assert compiled.memory_analysis().temp_size_in_bytes < 0.1 * (200_000 * 200 * 4)


def check_four_devices():
    features.MOST_CHUNK_ROWS, features.VECTOR = 6, 2
    latents, frequencies, Y = some_problem()
    padded = jnp.concatenate([latents, jnp.zeros((1, 2))])
    mesh = Mesh(np.array(jax.devices()), (ROWS,))
    assert mesh.size == 4
    spread = by_chunks(padded, frequencies, NOISE, RATIO, Y, mesh)
    alone = by_chunks(padded, frequencies, NOISE, RATIO, Y)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-10), spread, alone)


def check_exchanges_of_a_step():
    """Check that Phi'Phi and Phi'Y travel together, and all that is summed after the regression."""
    features.MOST_CHUNK_ROWS = 16
    mesh = Mesh(np.array(jax.devices()), (ROWS,))
    rng, dtype = np.random.RandomState(0), np.dtype(np.float32)
    start = elbo.StartingPoint("random", rng.standard_normal((64, 2)), 1.0, 0.5, 0.5)
    kinds = {"covariance_type": "full", "latent_covariance_type": "full", "dtype": dtype}
    state = elbo.initial_state(start, rng, n_frequencies=5, n_mixture=2, **kinds)
    state |= {"log_noise": np.zeros(()), "log_ratio": np.zeros(())}
    model = elbo.build_model(elbo.Settings(layer=SharedLayer(mesh)))
    run = bcd.begin(model, state)
    targets = chunk_targets(rng.standard_normal((64, 3)), 1.0, 3, dtype)
    data = SharedData(targets, jnp.asarray(1e-3))

    def sharded(leaf):
        spec = Spec(ROWS) if leaf.ndim and len(leaf) == 64 else Spec()
        return jax.device_put(leaf, NamedSharding(mesh, spec))

    state, memories = jax.tree.map(sharded, (run.carry.state, run.carry.memories[:2]))
    data = data._replace(
        targets=data.targets._replace(scores=jax.device_put(targets.scores, NamedSharding(mesh, Spec(ROWS))))
    )
    climb = jax.jit(bcd._climb_steps, static_argnames="group")
    key = jax.random.key(0, impl="rbg")
    text = climb.lower(model.blocks[:2], key, state, memories, data, np.asarray(0.1)).compile().as_text()
    assert text.count(" all-reduce(") == 2, [line for line in text.splitlines() if " all-reduce(" in line]


@pytest.mark.parametrize("check", [check_four_devices, check_exchanges_of_a_step])
def test_rows_spread_over_devices(check):
    environment = os.environ | {
        "XLA_FLAGS": "--xla_force_host_platform_device_count=4",
        "JAX_ENABLE_X64": "1",
        "PYTHONPATH": os.pathsep.join([os.path.dirname(__file__), os.environ.get("PYTHONPATH", "")]),
    }
    command = [sys.executable, "-c", f"import test_chunked_evidence as tests; tests.{check.__name__}()"]
    outcome = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert outcome.returncode == 0, outcome.stderr
