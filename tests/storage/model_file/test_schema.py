"""Damaged, foreign and unsound model files are refused with a reason."""

import hashlib
import json
import pickle
import tracemalloc

import numpy as np
import pytest
from helpers.model_files import (
    assert_same,
    change_entry,
    change_header,
    change_plain,
    change_tensor,
    change_tensors,
    drop,
    read,
    set_first,
    write,
)
from safetensors.numpy import save as to_bytes

import srflvm
from srflvm import ModelFileError
from srflvm.storage.container import HEADER_DIGEST_KEY, HEADER_KEY

ANCHORS = ("posterior.anchors", "posterior.anchor_scores")
DIRECTIONS = ("columns.directions", "posterior.anchor_scores")


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
    """Return places as shares of the file, and masks; half of the places are in the header."""
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


CHANGES = {
    "newer version": (
        change_header(schema_version=7, library_version="9.8.7"),
        "written by srflvm 9.8.7 in version 7 .*Upgrade srflvm",
    ),
    "version zero": (change_header(schema_version=0), "version of the format is 0"),
    "version as text": (change_header(schema_version="1"), "version of the format is '1'"),
    "other format": (change_header(format="other"), "does not say 'srflvm-model'"),
    "no description": (change_header(model=None), "not described"),
    "missing tensor": (drop("posterior.weights"), "tensor posterior.weights is missing"),
    "missing state": (drop("sticks.a", "sticks.b"), "tensor sticks.a, sticks.b is missing"),
    "extra tensor": (lambda h, t: t.update(more=np.zeros(2)), "tensor more is not known"),
    "extra init": (lambda h, t: t.update({"parameters.init": np.zeros((2, 2))}), "init is not known"),
    "missing init": (change_plain("parameters", "init", None), "init=None is not known"),
    "flat tensor": (change_tensor("posterior.weights", np.ravel), "weights has shape"),
    "transposed weights": (change_tensor("posterior.weights", np.transpose), r"weights has shape \(4, 50\)"),
    "fewer rows": (change_tensor("fitted.embedding_std_", lambda a: a[1:]), r"N = 30"),
    "fewer rows in the state": (change_tensor("state.latent_mean", lambda a: a[1:]), r"N = 30"),
    "fewer components": (change_tensor("sticks.a", lambda a: a[1:]), r"sticks.a has shape"),
    "fewer latents": (change_tensor("posterior.anchors", lambda a: a[:, 1:]), r"Q = 2"),
    "no anchors": (change_tensors(ANCHORS, lambda a: a[:0]), "no entries along A"),
    "more anchors": (change_tensors(ANCHORS, lambda a: np.tile(a, (2, 1))), "rows or anchors than were seen"),
    "more directions": (change_tensors(DIRECTIONS, lambda a: np.tile(a, 2)), "directions than"),
    "fewer anchor scores": (change_tensor("posterior.anchor_scores", lambda a: a[1:]), "A = 30"),
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
    "no likelihood": (change_plain("parameters", "likelihood", {}), "{} does not describe a likelihood"),
    "affine part": (change_entry("has_affine", True), "an affine part without groups"),
    "affine as a number": (change_plain("parameters", "affine", 1), "affine=1 is of the wrong kind"),
    "affine as another text": (change_plain("parameters", "affine", "yes"), "affine='yes' is not known"),
    "weights in the state": (change_entry("weights_in_state", True), "weights in a state without groups"),
    "missing relevance": (drop("fitted.relevance_"), "tensor fitted.relevance_ is missing"),
    "bad dtype": (change_plain("parameters", "dtype", "object"), "dtype='object'"),
    "missing attribute": (lambda h, t: h["model"]["fitted"].pop("elbo_"), "attribute elbo_ is missing"),
    "extra attribute": (change_plain("fitted", "coef_", 1.0), "attribute coef_ is not known"),
    "attribute of another kind": (change_plain("fitted", "converged_", "yes"), "converged_='yes' is of"),
    "negative amplitude": (change_plain("fitted", "amplitude_", -1.0), "amplitude_=-1.0 is out of range"),
    "infinite bound": (change_plain("fitted", "elbo_", -np.inf), "elbo_=-inf is out of range"),
    "huge number": (change_plain("fitted", "n_iter_", 10**400), "n_iter_ does not agree"),
    "fewer dimensions": (change_plain("fitted", "n_components_", 1), "n_components_ does not agree"),
    "dimensions as text": (change_plain("fitted", "n_components_", "auto"), "n_components_='auto' is of"),
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
        metadata = {HEADER_KEY: text, HEADER_DIGEST_KEY: digest}
        target.write_bytes(to_bytes(read(saved)[1], metadata))
        with pytest.raises(ModelFileError, match="its header"):
            srflvm.load(target)


def write_sparse_file(path, header, tensors, shapes):
    """Write a file that announces further tensors of float64, all zero, of which nothing is stored."""
    text = json.dumps(header)
    entries = {"__metadata__": {"srflvm": text, "srflvm_sha256": hashlib.sha256(text.encode()).hexdigest()}}
    codes, end, content = {"float64": "F64", "float32": "F32"}, 0, b""
    for name, tensor in tensors.items():
        content += np.asarray(tensor, order="C").tobytes()
        entries[name] = {"dtype": codes[tensor.dtype.name], "shape": list(tensor.shape)}
        entries[name]["data_offsets"] = [end, end := end + tensor.nbytes]
    for name, shape in shapes.items():
        n_bytes = 8 * int(np.prod(shape))
        entries[name] = {"dtype": "F64", "shape": list(shape), "data_offsets": [end, end := end + n_bytes]}
    start = json.dumps(entries).encode()
    with path.open("wb") as file:
        file.write(len(start).to_bytes(8, "little") + start + content)
        file.truncate(8 + len(start) + end)


@pytest.fixture
def peak_of_loading():
    def load(path, message):
        tracemalloc.start()
        try:
            with pytest.raises(ModelFileError, match=message):
                srflvm.load(path)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    return load


HUGE = 50_000_000  # numbers: 400 MB that take no room on the disk


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ({"state.logits": (HUGE // 2, 2)}, r"state\.logits has shape \(25000000, 2\)"),
        ({"posterior.weights": (HUGE,)}, r"posterior\.weights has shape"),
        ({"more": (HUGE,)}, "tensor more is not known"),
        ({"posterior.anchors": (HUGE // 2, 2), "posterior.anchor_scores": (HUGE // 2, 4)}, "than were seen"),
    ],
)
def test_tensors_of_wrong_names_and_shapes_are_refused_unread(
    saved, target, peak_of_loading, shapes, message
):
    header, tensors = read(saved)
    write_sparse_file(target, header, {n: t for n, t in tensors.items() if n not in shapes}, shapes)
    # less than what is read at a time to compute a checksum
    assert peak_of_loading(target, message) < 5e6


def test_no_tensor_is_held_before_its_checksum_is_known(saved, target, peak_of_loading):
    header, tensors = read(saved)
    header["model"]["parameters"]["init"] = None
    write_sparse_file(target, header, tensors, {"parameters.init": (HUGE // 2, 2)})
    assert peak_of_loading(target, "numbers do not have the checksum") < 1e8


def test_a_loaded_model_is_held_once(saved, target):
    """Check that tensors are read into the arrays of the model, without a second copy of them."""
    header, tensors = read(saved)
    header["model"]["parameters"]["init"] = None
    write(target, header, tensors | {"parameters.init": np.zeros((4_000_000, 2))})
    tracemalloc.start()
    try:
        assert srflvm.load(target).init.shape == (4_000_000, 2)
        assert tracemalloc.get_traced_memory()[1] < 1.5 * 8 * 8_000_000
    finally:
        tracemalloc.stop()


def test_wrong_checksums_are_refused(saved, target):
    header, tensors = read(saved)
    write(target, header | {"tensors_sha256": "0" * 64}, tensors, sign=False)
    with pytest.raises(ModelFileError, match="numbers do not have the checksum"):
        srflvm.load(target)
    metadata = {HEADER_KEY: json.dumps(header), HEADER_DIGEST_KEY: "0" * 64}
    target.write_bytes(to_bytes(tensors, metadata))
    with pytest.raises(ModelFileError, match="header does not have the checksum"):
        srflvm.load(target)
