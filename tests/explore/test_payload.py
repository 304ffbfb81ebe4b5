import copy
import json

import numpy as np
import pandas as pd
import pytest
from helpers.explore_pages import payload_in, run_in_node, unpack_array, unpack_codes
from helpers.model_files import made_up, model_of_all_kinds, rows_of_each_kind, some_rows

from srflvm import SRFLVM, DataError
from srflvm.data.schema import Schema
from srflvm.explore import write_page
from srflvm.explore.page import _script
from srflvm.likelihoods import Custom


@pytest.fixture
def page(tmp_path):
    return tmp_path / "page.html"


def test_latents_and_data_are_those_of_the_model(model, page):
    Y = some_rows()
    Y[2, 1] = np.nan
    model.explore(page, data=Y)
    payload = payload_in(page)
    latents = unpack_array(payload["latents"]).reshape(model.embedding_.shape)
    np.testing.assert_allclose(latents, model.embedding_, rtol=1e-6, atol=1e-7)
    spread = unpack_codes(payload["latent_std"]).reshape(model.embedding_.shape)
    np.testing.assert_allclose(spread, model.embedding_std_, atol=np.ptp(model.embedding_std_) / 65534)
    assert sorted(payload["data"]["columns"]) == [0, 1, 2, 3]
    for column, coded in zip(payload["data"]["columns"], payload["data"]["values"], strict=True):
        np.testing.assert_allclose(
            unpack_codes(coded), Y[:, column], atol=np.nanmax(np.ptp(Y, axis=0)) / 65534
        )
    assert len(payload["elbo"]) == model.n_iter_
    assert payload["kernel"]["curves"][0][0] == pytest.approx(1.0)


def test_small_whole_numbers_are_exact(page):
    counts = rows_of_each_kind()["poisson"]
    made_up(counts, likelihood="poisson").explore(page, data=counts)
    for column, coded in zip(*payload_in(page)["data"].values(), strict=True):
        np.testing.assert_array_equal(unpack_codes(coded), counts[:, column])


@pytest.mark.parametrize(
    ("labels", "names"),
    [
        (np.arange(30) % 3, ["0", "1", "2"]),
        (["b", None, "a", np.nan, pd.NA, *["a"] * 25], ["a", "b"]),
        (pd.Series(["x", "y"] * 15, dtype="category"), ["x", "y"]),
        ([True, False] * 15, ["False", "True"]),
        ([0.0, np.nan, 2.0] * 10, ["0", "2"]),
    ],
)
def test_labels_that_are_classes(model, page, labels, names):
    model.explore(page, labels=labels)
    found = payload_in(page)["labels"]
    assert found["names"] == names
    codes = unpack_array(found["codes"])
    missing = np.array([bool(pd.isna(label)) for label in labels])
    assert np.all(codes[missing] == 65535)
    texts = [names[code] for code in codes[~missing]]
    assert texts == [f"{x:g}" if isinstance(x, float) else str(x) for x in np.asarray(labels)[~missing]]


def test_labels_that_are_unpack_array(model, page):
    labels = np.linspace(0.0, 1.0, 30)
    labels[4] = np.nan
    model.explore(page, labels=labels)
    np.testing.assert_allclose(unpack_array(payload_in(page)["labels"]["values"]), labels, rtol=1e-6)


@pytest.mark.parametrize(
    ("title", "heading"), [(3, "3"), (0, "0"), (2.5, "2.5"), ("", "Latent space of 30 rows")]
)
def test_a_title_may_be_a_number(model, page, title, heading):
    model.explore(page, title=title)
    assert f"<h1>{heading}</h1>" in page.read_text(encoding="utf-8")
    assert payload_in(page)["title"] == heading


def test_halves_of_characters_are_replaced(model, page):
    """Check texts that UTF-8 cannot hold, such as file names with foreign bytes."""
    half, whole = "a\ud800b\udcff", "a\ufffdb\ufffd"
    model = copy.deepcopy(model)
    model.feature_names_in_ = np.array([half, "b", "c\U0001f600", "d"], dtype=object)
    ids = [f"{half}{i}" for i in range(30)]
    model.explore(page, ids=ids, labels=[half, "x\U0001f600"] * 15, title=half)
    text = page.read_bytes().decode("utf-8")
    assert f"<title>{whole}</title>" in text
    payload = payload_in(page)
    assert payload["title"] == whole
    assert payload["ids"] == [f"{whole}{i}" for i in range(30)]
    assert payload["labels"]["names"] == [whole, "x\U0001f600"]
    assert payload["columns"]["names"] == [whole, "b", "c\U0001f600", "d"]
    assert json.loads(json.dumps(payload).encode("utf-8")) == payload


def colours_by_scripts(block):
    """Return the colours that the page gives to numbers, and their range."""
    program = (
        _script(["colours.js"])
        + """
        const block = JSON.parse(require("fs").readFileSync(0, "utf8"));
        const { colours, low, high } = coloursOfNumbers(readBlock(block), "light");
        process.stdout.write(JSON.stringify({ colours: [...colours], low, high }));
    """
    )
    return json.loads(run_in_node(program, json.dumps(block)))


@pytest.mark.parametrize("scale", [1.0, 1e-300, 1e37, 1e38, 1.7e308])
def test_labels_of_any_size_have_the_same_colours(model, page, scale):
    shares = np.linspace(-1.0, 1.0, 30)
    shares[4] = np.nan
    model.explore(page, labels=scale * shares)
    block = payload_in(page)["labels"]["values"]
    np.testing.assert_allclose(unpack_array(block), scale * shares, rtol=1e-6)
    found = colours_by_scripts(block)
    assert (found["low"], found["high"]) == pytest.approx((-scale, scale), rel=1e-6)
    model.explore(page, labels=shares)
    assert found["colours"] == colours_by_scripts(payload_in(page)["labels"]["values"])["colours"]
    assert len(set(found["colours"])) > 25


@pytest.mark.parametrize(
    ("labels", "names"),
    [
        ([1e308, -1e308, 5.0], ["-1e+308", "5", "1e+308"]),
        ([np.inf, -np.inf, 1.0], ["-inf", "1", "inf"]),
        ([10**400, 2, 3], [str(10**400), "2", "3"]),
    ],
)
def test_classes_of_any_size_have_names(model, page, labels, names):
    model.explore(page, labels=labels * 10)
    assert payload_in(page)["labels"]["names"] == names


def test_infinite_labels_are_at_the_ends_of_the_scale(model, page):
    labels = np.linspace(0.0, 1.0, 30)
    labels[[0, -1]] = -np.inf, np.inf
    model.explore(page, labels=labels)
    colours = colours_by_scripts(payload_in(page)["labels"]["values"])["colours"]
    assert colours[0] == colours[1] != colours[-2] == colours[-1]


def test_data_that_single_precision_cannot_hold_are_refused_by_their_place(model, page):
    Y = some_rows()
    Y[3, 2] = -1e100
    with pytest.raises(DataError, match=r"data has -1e\+100 at row 3, column 2, .* up to 3\.4e\+38"):
        model.explore(page, data=Y)
    assert not page.exists()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_largest_data_of_single_precision_are_kept(model, page, dtype):
    Y = some_rows().astype(dtype)
    Y[:2, 1] = -3.4e38, 3.4e38
    model.explore(page, data=Y)
    shipped = payload_in(page)["data"]
    coded = shipped["values"][shipped["columns"].index(1)]
    np.testing.assert_allclose(unpack_codes(coded)[:2], [-3.4e38, 3.4e38], rtol=1e-6)


def test_rows_without_names_or_of_a_model_without_are_taken_in_silence(page):
    """Check that there is no warning, which would be an error here."""
    Y = some_rows()
    frame = pd.DataFrame(Y, columns=list("abcd"))
    named, nameless = (made_up(rows, likelihood="student_t") for rows in (frame, Y))
    hidden = np.zeros(Y.shape, bool)
    hidden[3, 1] = True
    masked = np.ma.array(Y, mask=hidden)
    for model, data in ((named, Y), (named, Y.tolist()), (named, frame), (nameless, frame), (named, masked)):
        model.explore(page, data=data)
        blocks = payload_in(page)["data"]
        column = blocks["values"][blocks["columns"].index(1)]
        expected = np.where(hidden[:, 1], np.nan, Y[:, 1]) if data is masked else Y[:, 1]
        np.testing.assert_allclose(unpack_codes(column), expected, atol=column["step"])
    with pytest.raises(ValueError, match="3 features"):
        named.explore(page, data=Y[:, :3])
    with pytest.raises(ValueError, match="feature names should match"):
        named.explore(page, data=frame.rename(columns={"a": "x"}))


def test_levels_of_a_frame_are_shown_as_their_codes(page):
    places = np.add.outer(np.arange(30), np.arange(4)) % 3
    codes, levels = 1.0 * places, np.array(["high", "low", "mid"], dtype=object)
    frame = pd.DataFrame(levels[places], columns=list("abcd"))
    frame.iloc[2, 1] = None
    model = copy.copy(made_up(pd.DataFrame(codes, columns=list("abcd")), likelihood="ordinal"))
    model.columns_ = Schema.of(frame)
    model.explore(page, data=frame)
    for column, coded in zip(*payload_in(page)["data"].values(), strict=True):
        expected = codes[:, column].copy()
        expected[2] = np.nan if column == 1 else expected[2]
        np.testing.assert_array_equal(unpack_codes(coded), expected)
    model.explore(page, data=codes)
    assert sorted(payload_in(page)["data"]["columns"]) == [0, 1, 2, 3]


def test_names_of_columns_are_kept(page):
    model_of_all_kinds().explore(page)
    names = payload_in(page)["columns"]["names"]
    assert names == [str(name) for name in model_of_all_kinds().feature_names_in_]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"labels": [1, 2]}, "labels must have one value for each of the 30 rows"),
        ({"ids": ["a"]}, "ids must have one value"),
        ({"data": np.zeros((3, 4))}, "data has 3 rows"),
        ({"data": np.zeros((30, 3))}, "3 features"),
        ({"dims": (0, 0)}, "dims must be two"),
        ({"dims": (0, 5)}, "dims must be two"),
        ({"image_shape": (3, 3)}, "does not have 4 pixels"),
        ({"max_megabytes": -1}, "max_megabytes"),
        ({"max_megabytes": 0.01}, "Give a larger max_megabytes"),
    ],
)
def test_bad_options_are_refused_and_nothing_is_written(model, page, options, message):
    with pytest.raises(ValueError, match=message):
        model.explore(page, **options)
    assert not page.exists()


def test_data_errors_are_told_by_their_type(model, page):
    with pytest.raises(DataError):
        model.explore(page, ids=["one"])


def test_a_model_that_is_not_fitted_is_refused(page):
    from sklearn.exceptions import NotFittedError

    with pytest.raises(NotFittedError):
        write_page(SRFLVM(), page)


def wide_counts():
    return np.random.RandomState(0).poisson(3.0, (30, 300)).astype(float)


def test_columns_are_thinned_out_to_the_size_allowed_with_a_warning(page):
    counts = wide_counts()
    model = made_up(counts, likelihood="poisson")
    limit = 0.24
    with pytest.warns(UserWarning, match="left out") as caught:
        model.explore(page, data=counts, max_megabytes=limit)
    assert page.stat().st_size <= 1e6 * limit
    payload = payload_in(page)
    kept = [column for group in payload["decoder"]["groups"] for column in group["columns"]]
    assert 0 < len(kept) < 300
    assert payload["columns"]["kept"] == kept
    assert [str(warning.message) for warning in caught] == payload["left_out"]
    spread = model.inverse_transform(model.embedding_).std(axis=0)
    assert np.median(spread[kept]) > np.median(np.delete(spread, kept))


def test_images_are_not_thinned_out(page):
    model = made_up(wide_counts(), likelihood="poisson")
    with pytest.raises(ValueError, match=r"would take \d+\.\d MB"):
        model.explore(page, image_shape=(15, 20), max_megabytes=0.24)


def test_likelihoods_without_a_decoder_are_named(page):
    def log_prob(y, f, parameters):
        return -((y - f) ** 2)

    Y = some_rows()
    likelihood = {(0, 1): Custom(log_prob, parameters=(), label="mine"), (2, 3): "gaussian"}
    made_up(Y, likelihood=likelihood).explore(page)
    decoder = payload_in(page)["decoder"]
    assert decoder["unsupported"] == [{"likelihood": "custom", "columns": [0, 1]}]
    assert [group["columns"] for group in decoder["groups"]] == [[2, 3]]
