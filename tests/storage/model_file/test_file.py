"""Saving and loading give back the same model, and a failed save changes nothing."""

import json
import os
import pickle
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from helpers.model_files import (
    assert_same,
    assert_same_outputs,
    fit_briefly,
    made_up,
    read,
    rows_of_each_kind,
    some_rows,
    write,
)
from safetensors import safe_open
from safetensors.numpy import save as to_bytes
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError

import srflvm
from srflvm import SRFLVM, ModelFileError

# The version of the format in which entries, parameters, attributes and tensors came in, if not the first.
ENTRIES_SINCE = {
    "columns": 5,
    "groups": 2,
    "has_affine": 5,
    "has_votes": 6,
    "likelihood_parameters": 2,
    "shares_basis": 6,
    "size_method": 4,
    "weights_in_state": 2,
}
PARAMETERS_SINCE = {"affine": 5, "batch_size": 2, "inference": 2, "size_factors": 2, "unknown_levels": 5}
ATTRIBUTES_SINCE = {"n_components_": 5, "n_samples_seen_": 3}
TENSORS_SINCE = {"fitted.relevance_": 2, "fitted.size_factors_": 4}
NAMES = ["height", "width", "größe", "a 'quoted' name"]


def test_a_loaded_model_has_the_same_attributes(model, saved):
    assert_same(srflvm.load(saved), model)


def test_a_loaded_model_gives_the_same_outputs(model, saved):
    assert_same_outputs(srflvm.load(saved), model, some_rows(12))


def test_loading_and_saving_again_gives_the_same_model(model, saved, target):
    srflvm.load(str(saved)).save(str(target))
    assert_same(srflvm.load(target), model)


def test_matrices_keep_their_order_in_memory(model, saved):
    loaded = srflvm.load(saved)
    for name in ("weights", "weight_covariance", "frequencies", "anchors"):
        left, right = getattr(loaded._posterior, name), getattr(model._posterior, name)
        assert left.strides == right.strides, name


def test_a_loaded_model_can_be_cloned(model, saved):
    cloned = clone(srflvm.load(saved))
    assert cloned.get_params() == model.get_params()
    assert not hasattr(cloned, "embedding_")


def test_a_loaded_model_goes_on_where_the_last_fit_ended(model, saved):
    Y = some_rows()
    loaded, copied = srflvm.load(saved), pickle.loads(pickle.dumps(model))
    for estimator in (loaded, copied):
        estimator.set_params(warm_start=True)
        with pytest.warns(ConvergenceWarning):
            estimator.fit(Y)
    assert loaded.start_ == "warm"
    assert_same(loaded, copied)


def test_loaded_arrays_can_be_written_to(saved):
    srflvm.load(saved).embedding_[0] = 0.0


def test_column_names_come_back(target):
    Y = pd.DataFrame(some_rows(), columns=NAMES)
    model = fit_briefly(Y)
    model.save(target)
    loaded = srflvm.load(target)
    assert_same(loaded, model)
    assert list(loaded.feature_names_in_) == NAMES
    np.testing.assert_array_equal(loaded.transform(Y), model.transform(Y))
    with pytest.raises(ValueError, match="feature names"):
        loaded.transform(Y[NAMES[::-1]])


def test_all_other_kinds_of_parameters_come_back(target):
    parameters = {
        "n_components": np.int64(1),
        "n_mixture": 1,
        "n_frequencies": 3,
        "covariance_type": "diag",
        "latent_covariance_type": "diag",
        "compression": 2,
        "init": np.linspace(-1, 1, 30)[:, None],
        "learning_rate": np.float32(0.01),
        "dtype": np.float64,
        "random_state": np.random.RandomState(0),
        "callbacks": [lambda progress: None],
        "verbose": False,
        "warm_start": np.True_,
    }
    model = fit_briefly(some_rows(), **parameters)
    model.save(target)
    loaded = srflvm.load(target)
    assert_same_outputs(loaded, model, some_rows(5))
    found, expected = loaded.get_params(), model.get_params()
    expected |= {"dtype": "float64", "random_state": None, "callbacks": None}
    np.testing.assert_array_equal(found.pop("init"), expected.pop("init"))
    assert found == expected
    assert {type(value) for value in found.values()} <= {str, int, float, bool, type(None)}


def test_bounds_of_lost_starts_need_not_be_finite(model, target):
    lost = pickle.loads(pickle.dumps(model))
    lost.start_elbos_ = lost.start_elbos_ | {"random": -np.inf}
    lost.elbo_history_[0] = np.nan
    lost.save(target)
    assert_same(srflvm.load(target), lost)


def test_a_parameter_that_the_file_does_not_know_has_its_default(saved, target):
    header, tensors = read(saved)
    del header["model"]["parameters"]["learning_rate"]
    write(target, header, tensors)
    assert srflvm.load(target).learning_rate == SRFLVM().learning_rate


def as_version(version, header, tensors):
    """Return what an earlier version of the format held of the same model."""

    def held(values, since):
        return {name: value for name, value in values.items() if since.get(name, 1) <= version}

    model = held(header["model"], ENTRIES_SINCE)
    model["parameters"] = held(model["parameters"], PARAMETERS_SINCE)
    model["fitted"] = held(model["fitted"], ATTRIBUTES_SINCE)
    return header | {"schema_version": version, "model": model}, held(tensors, TENSORS_SINCE)


def assert_same_but_for_the_affine_part(loaded, model):
    """Compare a model from an old file, of which a further fit would have no affine part either."""
    assert loaded.affine is False
    assert_same(loaded.set_params(affine=model.affine), model)


def test_files_of_version_1_are_read(model, saved, target):
    write(target, *as_version(1, *read(saved)))
    loaded = srflvm.load(target)
    # made from standard deviations, not variances
    np.testing.assert_allclose(loaded.relevance_, model.relevance_, rtol=1e-13)
    loaded.relevance_ = model.relevance_
    assert_same_but_for_the_affine_part(loaded, model)
    loaded.save(target)
    assert read(target)[0]["schema_version"] == 6


def test_files_of_before_version_5_mean_the_parameters_of_their_time(saved, target):
    header, tensors = as_version(4, *read(saved))
    for name in ("n_components", "likelihood"):
        del header["model"]["parameters"][name]
    write(target, header, tensors)
    loaded = srflvm.load(target)
    assert (loaded.n_components, loaded.likelihood, loaded.affine) == (2, "gaussian", False)
    assert loaded.n_components_ == 2


def test_files_of_version_1_hold_nothing_newer(saved, target):
    header, tensors = read(saved)
    write(target, header | {"schema_version": 1}, tensors)
    with pytest.raises(ModelFileError, match=f"entry {', '.join(ENTRIES_SINCE)} is not known"):
        srflvm.load(target)
    header, kept = as_version(1, header, tensors)
    write(target, header, tensors)
    with pytest.raises(ModelFileError, match=r"tensor fitted\.relevance_ is not known"):
        srflvm.load(target)
    write(target, header | {"schema_version": 2}, kept)
    missing = [name for name, version in ENTRIES_SINCE.items() if version == 2]
    with pytest.raises(ModelFileError, match=f"entry {', '.join(missing)} is missing"):
        srflvm.load(target)


@pytest.mark.parametrize("version", [2, 3, 4])
def test_files_of_versions_2_to_4_are_read(version, target):
    model = made_up(rows_of_each_kind()["poisson"], likelihood="poisson", size_factors="totals")
    model.save(target)
    write(target, *as_version(version, *read(target)))
    loaded = srflvm.load(target)
    assert loaded._posterior.layout.size_method == "totals"
    assert loaded._posterior.affine.shape == (0,)
    if version < 4:
        np.testing.assert_array_equal(loaded.size_factors_, np.ones(30))
        loaded.size_factors_ = model.size_factors_
    assert_same_but_for_the_affine_part(loaded, model)


def test_pickling_gives_the_same_model(model):
    copied = pickle.loads(pickle.dumps(model))
    assert_same(copied, model)
    assert_same_outputs(copied, model, some_rows(12))


def test_an_unfitted_model_is_not_saved(target):
    with pytest.raises(NotFittedError):
        SRFLVM().save(target)
    assert not target.exists()


@pytest.mark.parametrize(
    ("parameter", "value", "message"),
    [("n_mixture", 0, "n_mixture=0"), ("dtype", "float16", "dtype"), ("verbose", "loud", "verbose='loud'")],
)
def test_a_model_that_could_not_be_loaded_is_not_saved(model, target, parameter, value, message):
    spoilt = pickle.loads(pickle.dumps(model)).set_params(**{parameter: value})
    with pytest.raises(ValueError, match=message):
        spoilt.save(target)
    assert not target.exists()


@pytest.mark.parametrize("step", ["replace", "fsync"])
@pytest.mark.parametrize("failure", [OSError("disk full"), KeyboardInterrupt()])
def test_a_failed_save_leaves_everything_as_it_was(model, target, monkeypatch, step, failure):
    def fail(*arguments):
        raise failure

    target.write_bytes(b"an older file")
    monkeypatch.setattr(os, step, fail)
    with pytest.raises(type(failure)):
        model.save(target)
    assert target.read_bytes() == b"an older file"
    assert os.listdir(target.parent) == [target.name]


def test_saving_replaces_an_older_file_and_leaves_nothing_else(model, target):
    target.write_bytes(b"an older file")
    model.save(target)
    assert_same(srflvm.load(target), model)
    assert os.listdir(target.parent) == [target.name]


def test_the_same_model_gives_the_same_bytes(model, saved, target):
    model.save(target)
    assert target.read_bytes() == saved.read_bytes()
    srflvm.load(saved).save(target)
    assert target.read_bytes() == saved.read_bytes()


def test_another_process_gives_the_same_bytes(saved, target):
    program = "import sys, srflvm; srflvm.load(sys.argv[1]).save(sys.argv[2])"
    for seed in ("1", "2"):
        environment = os.environ | {"PYTHONHASHSEED": seed}
        subprocess.run([sys.executable, "-c", program, saved, target], env=environment, check=True)
        assert target.read_bytes() == saved.read_bytes()


def test_the_container_is_one_of_safetensors(saved):
    """Compare with the file that the writer of safetensors makes, up to the order of the metadata."""
    header, tensors = read(saved)
    with safe_open(saved, framework="numpy") as container:
        metadata = container.metadata()
    assert json.loads(metadata["srflvm"]) == header
    length = int.from_bytes(saved.read_bytes()[:8], "little")
    theirs = to_bytes(tensors, metadata)
    assert length == int.from_bytes(theirs[:8], "little")
    assert json.loads(saved.read_bytes()[8 : 8 + length]) == json.loads(theirs[8 : 8 + length])
    assert saved.read_bytes()[8 + length :] == theirs[8 + length :]


KILLED_WHILE_SAVING = """
import os, signal, sys, srflvm
os.fsync = lambda descriptor: os.kill(os.getpid(), signal.SIGKILL)
srflvm.load(sys.argv[1]).save(sys.argv[2])
"""


def test_what_a_killed_save_left_is_removed_by_the_next_one(model, saved, target):
    ended = subprocess.run([sys.executable, "-c", KILLED_WHILE_SAVING, saved, target])
    assert ended.returncode == -9
    assert [name.endswith(".tmp") for name in os.listdir(target.parent)] == [True]
    model.save(target)
    assert os.listdir(target.parent) == [target.name]


def test_saving_writes_through_a_link(model, tmp_path, target):
    link = tmp_path / "latest"
    link.symlink_to(target)
    model.save(link)
    assert link.is_symlink()
    assert_same(srflvm.load(target), model)


def test_a_saved_file_has_the_usual_permissions(saved, tmp_path):
    (tmp_path / "usual").touch()
    assert saved.stat().st_mode == (tmp_path / "usual").stat().st_mode


def test_a_missing_directory_is_named(model, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"There is no directory .*absent"):
        model.save(tmp_path / "absent" / "model.srflvm")


def test_an_unwritable_directory_is_an_error(model, target, monkeypatch):
    def refuse(*arguments):
        raise PermissionError("not allowed")

    monkeypatch.setattr(type(target), "open", refuse)
    with pytest.raises(PermissionError):
        model.save(target)
    assert os.listdir(target.parent) == []
