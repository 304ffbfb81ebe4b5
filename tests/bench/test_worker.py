"""Worker: the scores of one fit."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from helpers.stub_systems import stub

from srflvm.datasets import load_digits
from srflvm_bench import views, worker
from srflvm_bench.tasks import Task, plan


def test_worker_refuses_what_is_not_finite(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "helpers"))
    with pytest.raises(ArithmeticError, match="not finite"):
        worker.measure(stub("infinite"))


def test_sizes_that_failed_are_not_the_best(monkeypatch):
    Y = load_digits().rows(np.arange(200)).Y.astype(float)
    fills = [("rank 1", np.full(Y.shape, np.nan)), ("rank 2", Y + 0.5), ("rank 3", Y + 0.25)]
    monkeypatch.setattr(worker, "_fills", lambda task, holes: fills)
    task = Task("imputation", "digits", "mean", share=0.3)
    measured = worker.measure(task)
    np.testing.assert_allclose(measured["scores"], 0.25**2)
    assert measured["note"] == "rank 3"
    monkeypatch.setattr(worker, "_fills", lambda task, holes: fills[:1])
    with pytest.raises(ArithmeticError, match="not finite"):
        worker.measure(task)


def test_chains_tell_how_far_they_came():
    class Chain:
        rhat_, ess_, n_iter_ = {"log_joint": 1.234}, {"log_joint": 17.2}, 300

    for Chain.converged_, start in ((False, "not converged"), (True, "converged")):
        expected = f"{start} after 300 sweeps, R-hat 1.23, effective sample size 17"
        assert worker.describe_chain(Chain()) == expected
    assert worker.describe_chain(object()) == ""


@pytest.mark.parametrize(
    ("first", "where"), [("mean", "the mean of its draws"), ("draw", "its most probable")]
)
def test_chains_are_scored_at_the_better(monkeypatch, first, where):
    data = load_digits().rows(np.arange(200))
    good, bad = data.Y[:, 20:40], np.zeros((200, 2))

    class Chain:
        converged_, n_iter_, rhat_, ess_ = True, 300, {"log_joint": 1.0}, {"log_joint": 99.0}
        most_probable_draw_ = good if first == "draw" else bad

        def fit_transform(self, Y):
            return bad if first == "draw" else good

    monkeypatch.setattr(worker, "make", lambda task: Chain())
    found = worker.measure(Task("embedding", "digits", "G-RFLVM"))
    assert found["scores"] == [worker.accuracy(good, data.labels, 1)]
    assert f"scored at {where}" in found["note"]


def test_our_own_fill_has_intervals_and_a_number_of_components():
    (task,) = plan("reconstructions", seeds=1, quick=True)
    found = worker.measure(
        dataclasses.replace(task, settings={**task.settings, "max_iter": 2, "n_frequencies": 5, "tol": 0.0})
    )
    error, coverage, n_components = found["scores"]
    assert 0.0 < error < 0.2
    assert 0.5 < coverage <= 1.0
    assert n_components == 2


def test_imputation_of_column_means():
    data = load_digits().rows(np.arange(200))
    Y = data.Y.astype(float)
    holes, scored = views.hide_entries(Y, 0.3)
    found = worker.measure(Task("imputation", "digits", "mean", share=0.3))
    expected = np.mean(((np.nanmean(holes, axis=0) - Y)[scored]) ** 2)
    np.testing.assert_allclose(found["scores"], expected, rtol=1e-12)
    assert abs(scored.mean() - 0.3) < 0.01
