"""Store of finished fits."""

import hashlib
import json
from contextlib import closing

import numpy as np
import pytest
from helpers.stub_systems import stub

from srflvm_bench.store import Outcome, Store
from srflvm_bench.tasks import task


def test_fits_are_passed_on_as_text(store, tmp_path):
    tasks = [stub("fine", seed) for seed in range(4)]
    store.put(tasks[0], Outcome((0.5, 0.25), 1.5))
    store.put(tasks[1], Outcome(failure="odd"))
    text = store.to_jsonl(tasks)
    assert text.count("\n") == 2
    with closing(Store(tmp_path / "other.sqlite")) as other:
        other.put(tasks[0], Outcome((0.75,), 2.0))
        assert other.add_jsonl(text) == 1
        assert other.get(tasks[0]).scores == (0.75,)
        other.put(tasks[0], Outcome(failure="here only"))
        assert other.add_jsonl(text) == 1
        assert other.get(tasks[0]) == store.get(tasks[0])
        taken, own = other.get(tasks[1]), store.get(tasks[1])
        assert (taken.failure, taken.date, taken.scores) == (own.failure, own.date, ())
        assert np.isnan(taken.seconds)
        with pytest.raises(ValueError, match="Line 2 is not the outcome of a fit"):
            other.add_jsonl(text.splitlines()[0] + "\n{}\n")


def test_a_store_that_is_none_is_refused(tmp_path):
    path = tmp_path / "results.csv"
    path.write_text("a,b\n1,2\n" * 100)
    with pytest.raises(OSError, match=r"results\.csv cannot be used as a file of finished fits"):
        Store(path)


def earlier(text):
    """Return text as it was written when systems were in another package."""
    assert "srflvm_bench.baselines" in text
    return text.replace("srflvm_bench.baselines", "srflvm.baselines")


def test_fits_of_earlier_versions_are_known_as_text(store, tmp_path):
    vae = task("embedding", "mnist", "VAE")
    store.put(vae, Outcome((0.5,), 1.5))
    with closing(Store(tmp_path / "other.sqlite")) as other:
        assert other.add_jsonl(earlier(store.to_jsonl([vae]))) == 1
        assert other.get(vae) == store.get(vae)


def test_stores_of_earlier_versions_are_known_with_their_arrays(tmp_path):
    path, vae = tmp_path / "fits.sqlite", task("manifold", "s-curve", "VAE")
    with closing(Store(path)) as before:
        before.put(vae, Outcome((0.5,), 1.5))
        outcome = before.get(vae)
        with before._connection as connection:
            connection.execute("UPDATE fits SET task = ?", (earlier(vae.key),))
        assert before.get(vae) is None
    name = hashlib.sha256(earlier(vae.key).encode()).hexdigest()[:16]
    (tmp_path / "fits-arrays").mkdir()
    np.savez(tmp_path / "fits-arrays" / f"{name}.npz", X=np.arange(3.0))
    with closing(Store(path)) as after:
        assert after.get(vae) == outcome
        np.testing.assert_array_equal(after.arrays(vae)["X"], np.arange(3.0))
        assert json.loads(after.to_jsonl([vae]))["task"]["path"] == "srflvm_bench.baselines.vae:VAE"
