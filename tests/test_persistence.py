import hashlib
import json
import os
import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from safetensors import safe_open
from safetensors.numpy import save as to_bytes
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError

import srflvm
from srflvm import SRFLVM, ModelFileError, persistence
from srflvm._model_schema import LIKELIHOOD_SCALARS, LIKELIHOOD_TENSORS
from srflvm.likelihoods import LIKELIHOODS

NAMES = ["height", "width", "größe", "a 'quoted' name"]


def some_rows(n_rows=30):
    angle = np.linspace(0.0, 5.0, n_rows)
    clean = np.column_stack([np.sin(angle), np.cos(angle), angle, angle**2 / 5.0])
    return clean + 0.1 * np.random.RandomState(0).standard_normal(clean.shape)


def fit_briefly(Y, **parameters):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return SRFLVM(**{"max_iter": 3, "random_state": 0} | parameters).fit(Y)


@pytest.fixture(scope="module")
def model():
    return fit_briefly(some_rows())


@pytest.fixture(scope="module")
def saved(model, tmp_path_factory):
    """A file that tests read but do not change."""
    path = tmp_path_factory.mktemp("saved") / "model.srflvm"
    model.save(path)
    return path


@pytest.fixture
def target(tmp_path):
    return tmp_path / "model.srflvm"


def outputs(model, Y):
    Z = model.transform(Y)
    kernels = [model.kernel(Z, method=method) for method in ("mixture", "features")]
    return [
        *model.transform(Y, return_std=True),
        *model.inverse_transform(Z, return_std=True),
        model.decode(Z, 0.1 * np.ones_like(Z)).variance,
        model.score_samples(Y),
        *model.sample(5, random_state=0, return_latents=True),
        *kernels,
        model.spectral_density(Z),
    ]


def assert_same(left, right, where="model"):
    """Equal in structure, types and every bit."""
    assert type(left) is type(right), where
    if isinstance(left, np.ndarray):
        assert left.dtype == right.dtype, where
        np.testing.assert_array_equal(left, right, err_msg=where, strict=True)
    elif isinstance(left, dict):
        assert left.keys() == right.keys(), where
        for key in left:
            assert_same(left[key], right[key], f"{where}.{key}")
    elif isinstance(left, tuple):
        for index, pair in enumerate(zip(left, right, strict=True)):
            assert_same(*pair, f"{where}[{index}]")
    elif hasattr(left, "__dict__"):
        assert_same(vars(left), vars(right), where)
    else:
        assert left == right, where


def assert_same_outputs(left, right, Y):
    for one, other in zip(outputs(left, Y), outputs(right, Y), strict=True):
        np.testing.assert_array_equal(one, other, strict=True)


def read(path):
    """Header and tensors of a file, without any of the checks of the library."""
    with safe_open(path, framework="numpy") as container:
        header = json.loads(container.metadata()[persistence.HEADER_KEY])
        return header, {name: container.get_tensor(name) for name in container.keys()}  # noqa: SIM118


def write(path, header, tensors, *, sign=True):
    """A file with the checksums that belong to its content, whatever it is."""
    if sign:
        header = header | {"tensors_sha256": persistence._digest(tensors)}
    text = json.dumps(header)
    digest = hashlib.sha256(text.encode()).hexdigest()
    metadata = {persistence.HEADER_KEY: text, persistence.HEADER_DIGEST_KEY: digest}
    path.write_bytes(to_bytes({n: np.asarray(t, order="C") for n, t in tensors.items()}, metadata))


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


def test_every_likelihood_can_be_saved():
    assert set(LIKELIHOODS) == set(LIKELIHOOD_TENSORS) == set(LIKELIHOOD_SCALARS)


def test_pickling_gives_the_same_model(model):
    copied = pickle.loads(pickle.dumps(model))
    assert_same(copied, model)
    assert_same_outputs(copied, model, some_rows(12))


def test_an_unfitted_model_is_not_saved(target):
    for save in (SRFLVM().save, lambda path: persistence.save(SRFLVM(), path)):
        with pytest.raises(NotFittedError):
            save(target)
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


def test_a_missing_file_is_named(target):
    with pytest.raises(FileNotFoundError, match=r"There is no model file .*model\.srflvm"):
        srflvm.load(target)


def test_a_directory_is_not_a_model(model, tmp_path):
    with pytest.raises(ModelFileError, match="is not a file"):
        srflvm.load(tmp_path)
    with pytest.raises(IsADirectoryError, match="is a directory"):
        model.save(tmp_path)


@pytest.mark.parametrize("content", [b"", b"{}", b"a,b\n1,2\n" * 100, bytes(1000), pickle.dumps([1.0])])
def test_foreign_files_are_refused(target, content):
    target.write_bytes(content)
    with pytest.raises(ModelFileError, match=r"model.srflvm is not a model file.*SRFLVM\.save"):
        srflvm.load(target)


@pytest.mark.parametrize("metadata", [None, {"format": "pt"}])
def test_other_safetensors_files_are_refused(target, metadata):
    target.write_bytes(to_bytes({"weight": np.zeros((2, 2), np.float16)}, metadata))
    with pytest.raises(ModelFileError, match="a safetensors file but not a model file"):
        srflvm.load(target)


@pytest.mark.parametrize("share", [0.0005, 0.01, 0.1, 0.3, 0.6, 0.9, 0.9999])
def test_truncated_files_are_refused(saved, target, share):
    content = saved.read_bytes()
    target.write_bytes(content[: int(share * len(content))])
    with pytest.raises(ModelFileError, match="cut short"):
        srflvm.load(target)


def test_lengthened_files_are_refused(saved, target):
    target.write_bytes(saved.read_bytes() + b"\0" * 8)
    with pytest.raises(ModelFileError, match="damaged"):
        srflvm.load(target)


def flips():
    """Places as shares of the file, and masks; half of the places are in the header."""
    random = np.random.RandomState(0)
    places = np.concatenate([random.uniform(0.0, 0.1, 20), random.uniform(0.1, 1.0, 20), [0.0]])
    return [(float(place), int(mask)) for place, mask in zip(places, random.randint(1, 256, 41), strict=True)]


@pytest.mark.parametrize(("share", "mask"), flips())
def test_a_changed_byte_never_gives_another_model(model, saved, target, share, mask):
    content = bytearray(saved.read_bytes())
    content[int(share * len(content))] ^= mask
    target.write_bytes(content)
    try:
        loaded = srflvm.load(target)
    except ModelFileError:
        return
    assert_same(loaded, model)


def test_every_single_bit_of_a_number_counts(saved, target):
    content = bytearray(saved.read_bytes())
    content[-1] ^= 1
    target.write_bytes(content)
    with pytest.raises(ModelFileError, match="numbers do not have the checksum"):
        srflvm.load(target)


def change_plain(entry, name, value):
    def change(header, tensors):
        header["model"][entry][name] = value

    return change


def change_entry(name, value):
    def change(header, tensors):
        header["model"][name] = value

    return change


def change_header(**entries):
    def change(header, tensors):
        header.update(entries)

    return change


def change_tensor(name, function):
    def change(header, tensors):
        tensors[name] = np.asarray(function(tensors[name]))

    return change


def drop(*names):
    def change(header, tensors):
        for name in names:
            del tensors[name]

    return change


def set_first(value):
    def change(tensor):
        changed = np.array(tensor)
        changed.flat[0] = value
        return changed

    return change


CHANGES = {
    "newer version": (
        change_header(schema_version=2, library_version="9.8.7"),
        "written by srflvm 9.8.7 in version 2 .*Upgrade srflvm",
    ),
    "version zero": (change_header(schema_version=0), "version of the format is 0"),
    "version as text": (change_header(schema_version="1"), "version of the format is '1'"),
    "other format": (change_header(format="other"), "does not say 'srflvm-model'"),
    "no description": (change_header(model=None), "not described"),
    "missing tensor": (drop("posterior.weights"), "tensor posterior.weights is missing"),
    "missing state": (drop("sticks.a", "sticks.b"), "tensor sticks.a, sticks.b is missing"),
    "extra tensor": (lambda h, t: t.update(more=np.zeros(2)), "tensor more is not known"),
    "extra init": (lambda h, t: t.update({"parameters.init": np.zeros((2, 2))}), "init is not known"),
    "missing init": (change_plain("parameters", "init", None), "tensor parameters.init is missing"),
    "flat tensor": (change_tensor("posterior.weights", np.ravel), "weights has shape"),
    "transposed weights": (change_tensor("posterior.weights", np.transpose), r"weights has shape \(4, 50\)"),
    "fewer rows": (change_tensor("fitted.embedding_std_", lambda a: a[1:]), r"N = 30"),
    "fewer rows in the state": (change_tensor("state.latent_mean", lambda a: a[1:]), r"N = 30"),
    "fewer components": (change_tensor("sticks.a", lambda a: a[1:]), r"sticks.a has shape"),
    "fewer latents": (change_tensor("posterior.anchors", lambda a: a[:, 1:]), r"Q = 2"),
    "no anchors": (change_tensor("posterior.anchors", lambda a: a[:0]), "no entries along A"),
    "more anchors": (change_tensor("posterior.anchors", lambda a: np.tile(a, (2, 1))), "anchors than rows"),
    "more directions": (change_tensor("columns.directions", lambda a: np.tile(a, 2)), "directions than"),
    "fewer sweeps": (change_tensor("fitted.elbo_history_", lambda a: a[1:]), "n_iter_ does not agree"),
    "fewer starts": (change_tensor("starts.elbos", lambda a: a[1:]), "start_names does not agree"),
    "NaN": (change_tensor("posterior.weights", set_first(np.nan)), "weights is not finite"),
    "infinity": (change_tensor("state.logits", set_first(np.inf)), "logits is not finite"),
    "asymmetric": (change_tensor("posterior.weight_covariance", np.triu), "not symmetric"),
    "no noise": (change_tensor("posterior.noise", np.zeros_like), "noise has entries that are too small"),
    "negative scale": (change_tensor("columns.scale", np.negative), "scale has entries that are too small"),
    "float32": (change_tensor("posterior.weights", np.float32), "is float32 in place of float64"),
    "integers": (change_tensor("posterior.weights", lambda a: a.astype(np.int64)), "is I64 in place of"),
    "two precisions": (change_tensor("state.latent_mean", np.float64), "two types"),
    "unknown parameter": (change_plain("parameters", "wings", 2), "parameter wings is not known"),
    "callbacks": (change_plain("parameters", "callbacks", ["print"]), "callbacks is not known"),
    "bad parameter": (change_plain("parameters", "n_mixture", 0), "n_mixture=0"),
    "nested parameter": (change_plain("parameters", "tol", [1]), "tol=.* wrong kind"),
    "bad likelihood": (change_plain("parameters", "likelihood", "other"), "likelihood='other'"),
    "bad dtype": (change_plain("parameters", "dtype", "object"), "dtype='object'"),
    "missing attribute": (lambda h, t: h["model"]["fitted"].pop("elbo_"), "attribute elbo_ is missing"),
    "extra attribute": (change_plain("fitted", "coef_", 1.0), "attribute coef_ is not known"),
    "attribute of another kind": (change_plain("fitted", "converged_", "yes"), "converged_='yes' is of"),
    "negative amplitude": (change_plain("fitted", "amplitude_", -1.0), "amplitude_=-1.0 is out of range"),
    "infinite bound": (change_plain("fitted", "elbo_", -np.inf), "elbo_=-inf is out of range"),
    "huge number": (change_plain("fitted", "n_iter_", 10**400), "n_iter_ does not agree"),
    "too few names": (change_entry("feature_names", ["a", "b"]), "feature_names does not agree"),
    "names that are numbers": (change_entry("feature_names", ["a", "b", "c", 4]), "4 in feature_names"),
    "names in a mapping": (change_entry("feature_names", {}), "'feature_names' is of the wrong kind"),
    "a start named twice": (change_entry("start_names", ["pca", "pca"]), "named twice"),
    "order of an unknown tensor": (change_entry("fortran_order", ["more"]), "fortran_order names"),
    "extra entry": (change_entry("code", "print()"), "entry code is not known"),
}


@pytest.mark.parametrize("kind", CHANGES)
def test_unsound_content_is_refused_though_its_checksums_are_right(saved, target, kind):
    change, message = CHANGES[kind]
    header, tensors = read(saved)
    change(header, tensors)
    write(target, header, tensors)
    with pytest.raises(ModelFileError, match=message) as caught:
        srflvm.load(target)
    assert str(target) in str(caught.value)


def test_unchanged_content_written_again_is_loaded(model, saved, target):
    write(target, *read(saved))
    assert_same(srflvm.load(target), model)


def test_a_header_that_is_not_json_is_refused(saved, target):
    for text in ("{", "[" * 100_000, "[]", "null"):
        digest = hashlib.sha256(text.encode()).hexdigest()
        metadata = {persistence.HEADER_KEY: text, persistence.HEADER_DIGEST_KEY: digest}
        target.write_bytes(to_bytes(read(saved)[1], metadata))
        with pytest.raises(ModelFileError, match="its header"):
            srflvm.load(target)


def test_wrong_checksums_are_refused(saved, target):
    header, tensors = read(saved)
    write(target, header | {"tensors_sha256": "0" * 64}, tensors, sign=False)
    with pytest.raises(ModelFileError, match="numbers do not have the checksum"):
        srflvm.load(target)
    metadata = {persistence.HEADER_KEY: json.dumps(header), persistence.HEADER_DIGEST_KEY: "0" * 64}
    target.write_bytes(to_bytes(tensors, metadata))
    with pytest.raises(ModelFileError, match="header does not have the checksum"):
        srflvm.load(target)


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
