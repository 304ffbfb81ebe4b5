"""Models of every likelihood are saved and loaded bit for bit, and unsound files of them are refused."""

import copy
import json
import pickle
from dataclasses import dataclass

import numpy as np
import pytest
from helpers.model_files import (
    assert_same,
    assert_same_outputs,
    change_entry,
    change_plain,
    change_tensor,
    drop,
    fit_with_missing,
    made_up,
    mixed_fit,
    model_of_all_kinds,
    read,
    rows_of_each_kind,
    rows_with_missing,
    some_rows,
    write,
)
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone

import srflvm
from srflvm import ModelFileError
from srflvm.likelihoods import (
    LIKELIHOODS,
    Binomial,
    Categorical,
    Custom,
    Gaussian,
    Ordinal,
    Poisson,
    StudentT,
)
from srflvm.storage.model_file.likelihoods import decode_choice, encode_choice

CASES = {
    "bernoulli": {},
    "binomial": {"likelihood": Binomial((90, 80, 70, 60))},
    "negative_binomial": {"size_factors": "totals"},
    "poisson": {},
    "student_t": {"likelihood": StudentT(5.5)},
    "ordinal": {},
    "categorical": {},
    "multinomial": {},
    "gaussian": {"likelihood": Gaussian("column")},
}


def saved_and_loaded(model, target):
    """Return the loaded model, after checking that saving it again gives the same content."""
    model.save(target)
    content, loaded = read(target), srflvm.load(target)
    loaded.save(target)
    assert_same(read(target), content)
    return loaded


def test_every_likelihood_has_a_case():
    assert set(CASES) == set(rows_of_each_kind()) == set(LIKELIHOODS)


@pytest.mark.parametrize("name", CASES)
def test_every_likelihood_comes_back(name, target):
    Y = rows_of_each_kind()[name]
    model = made_up(Y, **{"likelihood": name} | CASES[name])
    loaded = saved_and_loaded(model, target)
    assert_same(loaded, model)
    assert_same_outputs(loaded, model, Y[:9])


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int64])
@pytest.mark.parametrize("name", CASES)
def test_every_likelihood_comes_back_from_other_types_of_numbers(name, dtype, target):
    """Check that float32, which is kept as it is read, does not show in what is learned from it."""
    Y = rows_of_each_kind()[name].astype(dtype)
    model = made_up(Y, **{"likelihood": name} | CASES[name])
    loaded = saved_and_loaded(model, target)
    assert_same(loaded, model)
    assert_same_outputs(loaded, model, Y[:9])


def test_what_was_resolved_from_the_data_comes_back(target):
    groups = saved_and_loaded(model_of_all_kinds(), target)._posterior.layout.groups
    found = {group.likelihood.name: group.likelihood for group in groups}
    assert found["ordinal"] == Ordinal(n_levels=3)
    assert found["categorical"].n_categories == (5, 4)
    before = {
        group.likelihood.name: group.likelihood for group in model_of_all_kinds()._posterior.layout.groups
    }
    assert found["categorical"].stick_order == before["categorical"].stick_order is not None
    assert found["binomial"] == Binomial((90, 80))
    assert found["student_t"] == StudentT(3)
    assert found["gaussian"] == Gaussian("column")


def test_transforms_come_back(target):
    Y = np.exp(some_rows())
    kinds = ("log", "none", "yeo_johnson", "auto")
    model = made_up(Y, likelihood=Gaussian("column", "column", transform=kinds))
    loaded = saved_and_loaded(model, target)
    assert_same(loaded, model)
    Y[::3, 0] = Y[1::3, 2] = np.nan
    assert_same_outputs(loaded, model, Y[:9])
    assert loaded.transforms_ == model.transforms_ == ["log", None, "yeo_johnson", "log"]
    (group,) = loaded._posterior.layout.groups
    assert group.likelihood == model._posterior.layout.groups[0].likelihood


def test_files_from_before_there_were_transforms_are_read(target):
    model = made_up(some_rows(), likelihood=Gaussian("column", "column"))
    model.save(target)
    header, tensors = read(target)
    for holder in (header["model"]["parameters"], header["model"]["groups"][0]):
        for field in ("transform", "curves"):
            assert holder["likelihood"]["fields"].pop(field) is None
    write(target, header, tensors)
    assert_same(srflvm.load(target), model)


def test_unsound_transforms_are_refused(target):
    model = made_up(np.exp(some_rows()), likelihood=Gaussian("column", "column", transform="log"))
    model.save(target)
    header, tensors = read(target)
    for change in (
        {"transform": ["log"] * 3},
        {"transform": ["other"] * 4},
        {"curves": [[0.0, 1.0, 2.0, 0.0, -1.0]] * 4},
        {"curves": [[0.0, "1", 2.0, 0.0, 1.0]] * 4},
        {"transform": ["log"] * 3, "curves": [[0.0, 0.5, 2.0, 0.0, 1.0]] * 3},
    ):
        changed = copy.deepcopy(header)
        changed["model"]["groups"][0]["likelihood"]["fields"].update(change)
        write(target, changed, tensors)
        with pytest.raises(ModelFileError, match="not a sound model file"):
            srflvm.load(target)


def test_all_likelihoods_together_come_back(target):
    assert_same(saved_and_loaded(model_of_all_kinds(), target), model_of_all_kinds())


@pytest.mark.parametrize("inference", ["sites", "gradient"])
def test_one_noise_for_all_columns_comes_back(inference, target):
    model = made_up(some_rows(), likelihood="gaussian", inference=inference)
    loaded = saved_and_loaded(model, target)
    assert_same(loaded, model)
    assert loaded._posterior.parameters[0]["log_noise"].shape == (1,)
    assert loaded.noise_variance_ is loaded.likelihood_parameters_["noise_variance"]
    assert ("weight_mean" in loaded._state) == (inference == "gradient")


def test_nothing_of_a_state_is_lost_in_silence(target):
    model = made_up(some_rows(), likelihood="student_t")
    model._state["momentum"] = np.zeros(3)
    with pytest.raises(ModelFileError, match="its state has momentum"):
        model.save(target)


def test_a_mixed_fit_comes_back(target):
    model, Y = mixed_fit()
    loaded = saved_and_loaded(model, target)
    assert_same(loaded, model)
    assert_same_outputs(loaded, model, Y)
    assert clone(loaded).likelihood == model.likelihood


def test_a_fit_with_missing_entries_comes_back(target):
    loaded = saved_and_loaded(fit_with_missing(), target)
    assert_same(loaded, fit_with_missing())
    assert_same_outputs(loaded, fit_with_missing(), rows_with_missing())


def test_a_loaded_mixed_model_can_be_fitted_again(target):
    model, Y = mixed_fit()
    loaded, copied = saved_and_loaded(model, target), pickle.loads(pickle.dumps(model))
    for estimator in (loaded, copied):
        estimator.set_params(warm_start=True, tol=0.0).fit(Y)
    assert loaded.start_ == "warm"
    assert_same(loaded, copied)
    assert_same(loaded.set_params(warm_start=False).fit(Y), copied.set_params(warm_start=False).fit(Y))
    assert_same(saved_and_loaded(loaded, target), loaded)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (Gaussian(), Gaussian()),
        (Ordinal(np.int64(4)), Ordinal(4)),
        (StudentT(np.float32(2.5)), StudentT(2.5)),
        (Binomial((np.int64(3), 2)), Binomial((3, 2))),
        ({0: "gaussian", (np.int64(1), 2): Gaussian(), (3,): np.str_("poisson")}, None),
        ({("a", ("b", 2)): "gaussian", "c": Categorical()}, {("a", "b", 2): "gaussian", "c": Categorical()}),
    ],
)
def test_every_form_of_the_parameter_comes_back(given, expected, target):
    """Check also a likelihood that was set after the fit: the posterior says what the model is."""
    changed = pickle.loads(pickle.dumps(fit_with_missing())).set_params(likelihood=given)
    loaded = saved_and_loaded(changed, target)
    assert loaded.likelihood == (given if expected is None else expected)
    text = json.dumps(read(target)[0])
    assert "srflvm.likelihoods" not in text
    assert "np." not in text


SINGLE = st.one_of(
    st.sampled_from([*LIKELIHOODS, "negative-binomial", "größe"]),
    st.sampled_from([kind() for name, kind in LIKELIHOODS.items() if name != "binomial"]),
    st.builds(Binomial, st.integers(1, 10**12) | st.lists(st.integers(1, 99), min_size=1).map(tuple)),
    st.builds(Categorical, st.lists(st.integers(2, 99), min_size=1).map(tuple)),
    st.builds(Ordinal, st.none() | st.integers(2, 99)),
    st.builds(StudentT, st.floats(0.0, exclude_min=True, allow_infinity=False)),
    st.builds(Gaussian, st.sampled_from(["shared", "column"])),
)
COLUMN = st.integers(0, 10**6) | st.text()
CHOICES = SINGLE | st.dictionaries(COLUMN | st.lists(COLUMN, min_size=1).map(tuple), SINGLE)


@given(CHOICES)
def test_any_choice_comes_back_from_json(choice):
    found = decode_choice(json.loads(json.dumps(encode_choice(choice), allow_nan=False)))
    assert found == choice
    assert repr(found) == repr(choice)


def scaled_normal(y, f, parameters):
    return -0.5 * ((y - f) ** 2 + np.log(2.0 * np.pi))


@dataclass(frozen=True)
class OwnPoisson(Poisson):
    """Likelihood with the name of another."""


@pytest.mark.parametrize("own", [Custom(scaled_normal, parameters=()), OwnPoisson()])
def test_likelihoods_that_are_code_are_not_saved(own, target):
    Y, mapping = rows_of_each_kind()["poisson"], {(0, 1, 2): "gaussian", 3: own}
    changed = pickle.loads(pickle.dumps(fit_with_missing())).set_params(likelihood=mapping)
    for estimator in (made_up(Y, likelihood=own), changed):
        message = rf"cannot be saved: its likelihood {type(own).__name__} is code .*Pickle the model"
        with pytest.raises(ModelFileError, match=message):
            estimator.save(target)
        assert not target.exists()


def change_group(kind, **entries):
    def change(header, tensors):
        for group in header["model"]["groups"]:
            if group["likelihood"]["name"] == kind:
                group.update(entries)

    return change


def change_field(kind, **fields):
    return change_group(kind, likelihood={"name": kind, "fields": fields})


def change_parameter(likelihood):
    return change_plain("parameters", "likelihood", likelihood)


def swap_groups(header, tensors):
    groups = header["model"]["groups"]
    groups[0], groups[-1] = groups[-1], groups[0]


def move_column(header, tensors):
    by_name = {group["likelihood"]["name"]: group["columns"] for group in header["model"]["groups"]}
    by_name["poisson"].append(by_name["bernoulli"].pop())


def by_column(*pairs):
    return change_parameter({"by_column": list(pairs)})


HUGE = 10**400
LEVELS_AS_TEXT = {"name": "ordinal", "fields": {"n_levels": "3"}}
PACKED = "posterior.packed_covariance"
CHANGES = {
    "groups are no list": (change_entry("groups", {}), "'groups' is of the wrong kind"),
    "no groups": (change_entry("groups", []), "no groups of columns"),
    "groups of a Gaussian model": (change_entry("groups", None), "attribute noise_variance_ is missing"),
    "group without entries": (change_entry("groups", [{}]), "group 0 is not described"),
    "group with code": (change_group("poisson", code="print()"), "group . is not described"),
    "missing group": (lambda h, t: h["model"]["groups"].pop(), "do not have every column exactly once"),
    "swapped groups": (swap_groups, "tensor learned_.* is missing"),
    "column twice": (change_group("poisson", columns=[5, 5]), "every column exactly once"),
    "column of another": (change_group("poisson", columns=[5, 0]), "every column exactly once"),
    "column beyond": (change_group("poisson", columns=[5, HUGE]), "every column exactly once"),
    "fewer columns": (change_group("poisson", columns=[5]), "every column exactly once"),
    "column moved": (move_column, r"tensor log_amplitude\.\d has shape"),
    "no columns": (change_group("poisson", columns=[]), "has no list of columns"),
    "column true": (change_group("poisson", columns=[5, True]), "has no list of columns"),
    "no spread": (change_group("poisson", spread=0.0), r"has spread=0\.0"),
    "infinite spread": (change_group("poisson", spread=np.inf), "has spread=inf"),
    "likelihood by name alone": (change_group("poisson", likelihood="poisson"), "not describe a likelihood"),
    "unknown likelihood": (
        change_group("poisson", likelihood={"name": "x", "fields": {}}),
        "'x' is not known",
    ),
    "custom": (change_group("poisson", likelihood={"name": "custom", "fields": {}}), "'custom' is not known"),
    "unknown field": (change_field("poisson", rate=1.0), "'poisson' has no field 'rate'"),
    "one level": (change_field("ordinal", n_levels=1), "at least two levels"),
    "no levels": (change_field("ordinal", n_levels=None), "The levels are not known yet"),
    "more levels": (change_field("ordinal", n_levels=4), r"learned_\d\.log_gap_2.* is missing"),
    "fewer levels": (change_field("ordinal", n_levels=2), r"learned_\d\.log_gap_1.* is not known"),
    "broken levels": (change_field("ordinal", n_levels=3.0), r"n_levels=3\.0 of the wrong kind"),
    "level true": (change_field("ordinal", n_levels=True), "n_levels=True of the wrong kind"),
    "very many levels": (change_field("ordinal", n_levels=10**9), "needs more than the file holds"),
    "more categories": (change_field("categorical", n_categories=[5, 5]), r"shape \(22,\) in place of \(C\)"),
    "very many categories": (change_field("categorical", n_categories=[5, 10**9]), "needs more than"),
    "categories of more columns": (change_field("categorical", n_categories=[5, 5, 5]), "not fit 2 columns"),
    "trials of more columns": (change_field("binomial", n_trials=[90, 80, 70]), "does not fit 2 columns"),
    "no trials": (change_field("binomial", n_trials=0), "at least one trial"),
    "huge trials": (change_field("binomial", n_trials=HUGE), "of its groups"),
    "negative freedom": (change_field("student_t", degrees_of_freedom=-1.0), "must be positive"),
    "no number of freedom": (change_field("student_t", degrees_of_freedom=np.nan), "nan of the wrong kind"),
    "huge freedom": (change_field("student_t", degrees_of_freedom=HUGE), "of the wrong kind"),
    "unknown noise": (change_field("gaussian", noise="pink"), "noise='pink'"),
    "shared noise": (change_field("gaussian", noise="shared"), r"\.log_noise has shape \(2,\)"),
    "no weights in the state": (change_entry("weights_in_state", True), r"weight_mean\.0.* is missing"),
    "missing learned": (drop("learned_0.log_noise"), "learned_0.log_noise is missing"),
    "more learned": (lambda h, t: t.update({"learned_2.rate": np.ones(2)}), "learned_2.rate is not known"),
    "learned is NaN": (change_tensor("learned_0.log_noise", lambda a: a * np.nan), "not finite"),
    "missing amplitudes": (drop("log_amplitude.8"), r"log_amplitude\.8 is missing"),
    "fewer columns in units": (change_tensor("layout.scale", lambda a: a[1:]), "M = 18"),
    "negative units": (change_tensor("layout.scale", np.negative), "layout.scale has entries that are too"),
    "fewer channels": (change_tensor("posterior.level", lambda a: a[1:]), "C = 22"),
    "fewer weights": (change_tensor("posterior.weights", lambda a: a[1:]), r"weights has shape \(10, 22\)"),
    "fewer pairs": (change_tensor(PACKED, lambda a: a[:, 1:]), r"shape \(22, 65\)"),
    "covariance in float64": (change_tensor(PACKED, np.float64), "is float64 in place of float32"),
    "fewer channels to compress": (change_tensor("columns.mean", lambda a: a[1:]), "C = 22"),
    "unnamed parameter": (
        change_entry("likelihood_parameters", []),
        r"likelihood_parameters\.\S+ is not known",
    ),
    "parameter named twice": (change_entry("likelihood_parameters", ["x", "x"]), "parameter is named twice"),
    "noise of a Gaussian": (change_plain("fitted", "noise_variance_", 1.0), "is not known"),
    "mapping with a key twice": (by_column(["a", "poisson"], ["a", "gaussian"]), "a key twice"),
    "mapping with a false key": (by_column([None, "poisson"]), "has the key None"),
    "mapping with a deep key": (by_column([[["a"]], "poisson"]), "has the key"),
    "mapping to nothing": (by_column(["a", None]), "None does not describe a likelihood"),
    "mapping to the unknown": (by_column(["a", "other"]), "likelihood='other'"),
    "mapping in a mapping": (by_column(["a", {"by_column": []}]), "does not describe a likelihood"),
    "mapping with more": (change_parameter({"by_column": [], "name": "x"}), "are not a list"),
    "parameter with a bad field": (change_parameter(LEVELS_AS_TEXT), "n_levels='3' of the wrong kind"),
    "likelihood as a list": (change_parameter(["poisson"]), "likelihood=.* is of the wrong kind"),
}


@pytest.fixture(scope="module")
def saved_kinds(tmp_path_factory):
    path = tmp_path_factory.mktemp("kinds") / "model.srflvm"
    model_of_all_kinds().save(path)
    return path


@pytest.mark.parametrize("kind", CHANGES)
def test_unsound_content_is_refused(saved_kinds, target, kind):
    change, message = CHANGES[kind]
    header, tensors = read(saved_kinds)
    change(header, tensors)
    write(target, header, tensors)
    with pytest.raises(ModelFileError, match=message) as caught:
        srflvm.load(target)
    assert str(target) in str(caught.value)


def test_unchanged_content_written_again_is_loaded(saved_kinds, target):
    write(target, *read(saved_kinds))
    assert_same(srflvm.load(target), model_of_all_kinds())
