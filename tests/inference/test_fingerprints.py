"""Whose checkpoint it is: that of another fit is refused, and that of the same fit is known again."""

import copy
import functools

import numpy as np
import pytest
from helpers.resumable_fits import (
    assert_same_fit,
    content_of,
    fit,
    fit_case,
    header_of,
    kill_once,
    kill_race,
    some_data,
    store_every_sweep,
    undisturbed,
    with_holes,
)

from srflvm.data.sources import ArraySource
from srflvm.inference import fingerprints
from srflvm.inference.checkpoints import _paths_in as paths_in
from srflvm.inference.params import Params
from srflvm.likelihoods import Bernoulli, Custom
from srflvm.likelihoods.columns import Choice
from srflvm.parallel.communicator import Communicator


@pytest.fixture(autouse=True)
def every_sweep_is_stored(monkeypatch):
    store_every_sweep(monkeypatch)


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "checkpoint"


def other_value():
    Y = some_data().copy()
    Y[3, 2] += 1e-9
    return Y


OTHER_FITS = {
    "a value": (other_value, {}, "differs in the data\\. Give"),
    "a hole": (lambda: np.where(np.arange(150).reshape(30, 5) == 7, np.nan, some_data()), {}, "the data\\."),
    "precision": (lambda: some_data().astype(np.float32), {}, "in the data\\."),
    "a parameter": (some_data, {"max_iter": 7}, r"in max_iter \(6 there, 7 here\)\. Give"),
    "two": (some_data, {"tol": 0.1, "dtype": "float64"}, r"dtype \(float32 .*\), tol \(0.001 there, 0.1"),
    "an array": (some_data, {"init": some_data()[:, :2]}, r"init \(auto there, an array of shape \(30, 2\)"),
    "the seed": (some_data, {"random_state": 1}, r"random_state \(0 there, 1 here\)"),
    "no seed": (some_data, {"random_state": None}, r"random_state \(0 there, None here\)"),
    "a state": (some_data, {"random_state": np.random.RandomState(0)}, r"\(0 there, a RandomState with"),
    "likelihood": (
        some_data,
        {"likelihood": "student_t"},
        r"Gaussian\(noise='shared', .*\) there, StudentT\(",
    ),
}


@pytest.mark.parametrize("what", OTHER_FITS)
def test_the_checkpoint_of_another_fit_is_refused_and_kept(folder, monkeypatch, what):
    data, parameters, message = OTHER_FITS[what]
    kill_race(folder, monkeypatch, 1)
    before = content_of(folder)
    with pytest.raises(ValueError, match=message) as refused:
        fit(data(), **parameters, checkpoint_dir=folder)
    assert str(folder) in str(refused.value)
    assert content_of(folder) == before


@pytest.mark.parametrize(("name", "what"), [("__version__", "srflvm"), ("jax.__version__", "jax")])
def test_another_version_is_refused(folder, monkeypatch, name, what):
    kill_race(folder, monkeypatch, 1)
    monkeypatch.setattr(f"srflvm.inference.fingerprints.{name}", "0.0.7")
    with pytest.raises(ValueError, match=rf"the version of {what} \(.* there, 0\.0\.7 here\)"):
        fit_case("race", checkpoint_dir=folder)


def test_holes_and_sizes_are_part_of_the_data():
    def digest(Y, sizes=None):
        return fingerprints.fingerprint(
            Params(), ArraySource(Y), Choice([(Bernoulli(), np.arange(5))]), sizes, None, Communicator()
        )

    Y = with_holes()
    assert digest(Y) == digest(Y.copy())
    moved = Y.copy()
    hole = np.argwhere(np.isnan(Y[:, 0]) & ~np.isnan(Y[:, 1]))[0, 0]
    moved[hole, 0], moved[hole, 1] = Y[hole, 1], np.nan
    assert digest(Y)["the data"] != digest(moved)["the data"]
    assert digest(Y)["the sizes"] != digest(Y, np.zeros(30))["the sizes"]


def test_a_likelihood_of_ones_own_is_known_by_its_code():
    def text(function):
        return fingerprints._likelihood_text(Custom(function))

    functions = [eval(f"lambda y, f, p: {body}") for body in ("f - y", "f - y", "f + y", "f - 2 * y")]
    same, again, *others = map(text, functions)
    assert same == again
    assert len({same, *others}) == 3
    assert "0x" not in same


def test_a_likelihood_of_ones_own_is_known_by_what_it_holds():
    def text(function):
        return fingerprints._likelihood_text(Custom(function))

    def closing_over(c):
        return lambda y, f, p: -c * (y - f) ** 2

    def with_default(c):
        def log_prob(y, f, p, scale=c):
            return -scale * (y - f) ** 2

        return log_prob

    def plain(y, f, p, c):
        return -c * (y - f) ** 2

    held = [1.0, 5.0, np.arange(2.0), np.arange(3.0), closing_over(1.0), closing_over(2.0)]
    for make in (closing_over, with_default, lambda c: functools.partial(plain, c=c)):
        texts = [text(make(value)) for value in held]
        assert len(set(texts)) == len(held)
        assert [text(make(value)) for value in held] == texts
    assert "0x" not in text(closing_over(object()))
    assert text(functools.partial(plain, c=1.0)) != text(functools.partial(with_default(1.0), p=1.0))


def test_a_drawn_seed_is_kept(folder, monkeypatch):
    kill_race(folder, monkeypatch, random_state=None)
    seed = int(header_of(paths_in(folder)[0])["fit"]["the seed that was drawn"])
    expected = fit_case("race", random_state=seed)
    for _ in range(2):
        assert_same_fit(fit_case("race", checkpoint_dir=folder, random_state=None), expected)
    assert not np.array_equal(expected.embedding_, undisturbed("race").embedding_)


def test_a_random_state_is_known_by_its_state(folder, monkeypatch):
    kill_race(folder, monkeypatch, random_state=np.random.RandomState(0))
    used = np.random.RandomState(0)
    assert_same_fit(fit_case("race", checkpoint_dir=folder, random_state=used), undisturbed("race"))
    with pytest.raises(ValueError, match="random_state"):
        fit_case("race", checkpoint_dir=folder, random_state=used)


def test_warm_starts_have_checkpoints_of_their_own(folder, tmp_path, monkeypatch):
    def warm():
        return clone_with_state(fit_case("race", init="pca", checkpoint_dir=folder))

    expected = warm().set_params(checkpoint_dir=None).fit(some_data())
    with pytest.raises(ValueError, match="the earlier fit that warm_start goes on from"):
        warm().fit(some_data())
    model = warm().set_params(checkpoint_dir=tmp_path / "second")
    kill_once(monkeypatch, lambda: model.fit(some_data()))
    assert_same_fit(model.fit(some_data()), expected)


def clone_with_state(model):
    return copy.copy(model).set_params(warm_start=True, tol=1e3)
