"""Models with an affine part are saved and loaded bit for bit, and unsound files of them are refused."""

import pickle

import numpy as np
import pytest
from helpers.model_files import (
    assert_same,
    assert_same_outputs,
    change_entry,
    change_tensor,
    change_tensors,
    drop,
    fit_briefly,
    read,
    set_first,
    write,
)

import srflvm
from srflvm import ModelFileError
from srflvm.likelihoods import Gaussian

TENSORS = ("posterior.affine", "state.log_affine")


def linear_rows():
    """Return rows (40, 5) that are a linear function of three numbers, some entries missing."""
    random = np.random.RandomState(0)
    Y = random.standard_normal((40, 3)) @ random.standard_normal((3, 5))
    Y += 0.1 * random.standard_normal(Y.shape)
    Y[::7, 1] = np.nan
    return Y


def affine_fit(n_components):
    settings = {"likelihood": Gaussian("column"), "affine": True, "n_frequencies": 5}
    return fit_briefly(linear_rows(), n_components=n_components, **settings)


@pytest.fixture(scope="module", params=[2, 3])
def affine_model(request):
    """Return a fit with an even or an odd number of latents, which has a feature more."""
    return affine_fit(request.param)


@pytest.fixture
def saved_affine(affine_model, tmp_path):
    path = tmp_path / "affine.srflvm"
    affine_model.save(path)
    return path


def test_an_affine_part_comes_back(affine_model, saved_affine, target):
    loaded = srflvm.load(saved_affine)
    assert loaded._posterior.affine.shape == (1 + affine_model.n_components,)
    assert loaded.affine is True
    assert_same(loaded, affine_model)
    assert_same_outputs(loaded, affine_model, linear_rows())
    loaded.save(target)
    assert target.read_bytes() == saved_affine.read_bytes()


def test_a_loaded_model_goes_on_with_its_affine_part(affine_model, saved_affine):
    loaded, copied = srflvm.load(saved_affine), pickle.loads(pickle.dumps(affine_model))
    for estimator in (loaded, copied):
        estimator.set_params(warm_start=True, max_iter=1, tol=0.0).fit(linear_rows())
    assert loaded.start_ == "warm"
    assert_same(loaded, copied)


CHANGES = {
    "no affine part": (change_entry("has_affine", False), "posterior.affine, state.log_affine is not known"),
    "no truth value": (change_entry("has_affine", 1), "'has_affine' is of the wrong kind"),
    "missing flag": (lambda h, t: h["model"].pop("has_affine"), "entry has_affine is missing"),
    "missing scales": (drop("posterior.affine"), r"tensor posterior\.affine is missing"),
    "missing in the state": (drop("state.log_affine"), r"tensor state\.log_affine is missing"),
    "fewer scales": (change_tensors(TENSORS, lambda a: a[1:]), r"posterior\.affine has shape"),
    "no scales": (change_tensors(TENSORS, lambda a: a[:0]), r"posterior\.affine has shape \(0,\)"),
    "fewer in the state": (change_tensor("state.log_affine", lambda a: a[1:]), "log_affine has shape"),
    "matrix": (change_tensor("posterior.affine", np.diag), r"posterior\.affine has shape"),
    "NaN": (change_tensor("posterior.affine", set_first(np.nan)), "affine is not finite"),
    "infinity": (change_tensor("state.log_affine", set_first(-np.inf)), "log_affine is not finite"),
    "negative": (change_tensor("posterior.affine", np.negative), "affine has entries that are too small"),
    "float32": (change_tensor("posterior.affine", np.float32), "affine is float32 in place of float64"),
    "fewer weights": (change_tensor("posterior.weights", lambda a: a[2:]), r"posterior\.weights has shape"),
    "fewer pairs": (
        change_tensor("posterior.packed_covariance", lambda a: a[:, 1:]),
        r"packed_covariance has shape",
    ),
    "an earlier version": (
        lambda h, t: h.update(schema_version=4),
        "entry columns, has_affine, has_votes, shares_basis is not known",
    ),
}


@pytest.mark.parametrize("kind", CHANGES)
def test_unsound_content_is_refused(saved_affine, target, kind):
    change, message = CHANGES[kind]
    header, tensors = read(saved_affine)
    change(header, tensors)
    write(target, header, tensors)
    with pytest.raises(ModelFileError, match=message) as caught:
        srflvm.load(target)
    assert str(target) in str(caught.value)


@pytest.mark.parametrize("entry", ["log_affine", "affine"])
def test_a_model_without_one_half_of_its_affine_part_is_not_saved(affine_model, target, entry):
    spoilt = pickle.loads(pickle.dumps(affine_model))
    if entry == "affine":
        object.__setattr__(spoilt._posterior, "affine", np.zeros(0))
    else:
        del spoilt._state["log_affine"]
    with pytest.raises(ModelFileError, match="The model cannot be saved"):
        spoilt.save(target)
    assert not target.exists()
