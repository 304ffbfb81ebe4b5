import base64
import re

import numpy as np
import pandas as pd
import pytest
from explore_pages import payload_in, run_in_node
from model_files import made_up, model_of_all_kinds, rows_of_each_kind, some_rows

from srflvm import SRFLVM, DataError
from srflvm.explore import write_page
from srflvm.explore.page import SCRIPTS, script
from srflvm.likelihoods import Custom


@pytest.fixture
def page(tmp_path):
    return tmp_path / "page.html"


def numbers(block):
    return np.frombuffer(base64.b64decode(block["data"]), block["type"])


def decoded_codes(coded):
    """Numbers from codes, by the rule in the docstring of `codes`."""
    values = numbers(coded["codes"]).astype(float)
    values[values == np.iinfo(coded["codes"]["type"]).max] = np.nan
    return coded["low"] + coded["step"] * values


def test_the_page_is_one_file_that_refers_to_nothing(model, page):
    assert model.explore(page) == page
    text = page.read_text(encoding="utf-8")
    assert "default-src 'none'" in text
    assert not re.search(r'(src|href)="(?!data:|#)', text)
    assert not re.search(r"\b(import|fetch|XMLHttpRequest)\b\s*[(\"']", text)
    assert "%%" not in text
    told = int(re.search(r"This page is (\d+) kB", text).group(1))
    assert told == pytest.approx(page.stat().st_size / 1e3, abs=1)


def test_scripts_are_sound_and_small():
    run_in_node("")
    for name in SCRIPTS:
        assert script([name]).count("\n") <= 300, name
    assert "</script" not in script(SCRIPTS)
    assert "innerHTML" not in script(SCRIPTS)


def test_latents_and_data_are_those_of_the_model(model, page):
    Y = some_rows()
    Y[2, 1] = np.nan
    model.explore(page, data=Y)
    payload = payload_in(page)
    latents = numbers(payload["latents"]).reshape(model.embedding_.shape)
    np.testing.assert_allclose(latents, model.embedding_, rtol=1e-6, atol=1e-7)
    spread = decoded_codes(payload["latent_std"]).reshape(model.embedding_.shape)
    np.testing.assert_allclose(spread, model.embedding_std_, atol=np.ptp(model.embedding_std_) / 65534)
    assert sorted(payload["data"]["columns"]) == [0, 1, 2, 3]
    for column, coded in zip(payload["data"]["columns"], payload["data"]["values"], strict=True):
        np.testing.assert_allclose(
            decoded_codes(coded), Y[:, column], atol=np.nanmax(np.ptp(Y, axis=0)) / 65534
        )
    assert len(payload["elbo"]) == model.n_iter_
    assert payload["kernel"]["curves"][0][0] == pytest.approx(1.0)


def test_small_whole_numbers_are_exact(page):
    counts = rows_of_each_kind()["poisson"]
    made_up(counts, likelihood="poisson").explore(page, data=counts)
    for column, coded in zip(*payload_in(page)["data"].values(), strict=True):
        np.testing.assert_array_equal(decoded_codes(coded), counts[:, column])


def test_text_of_users_stays_text(model, page):
    evil = "</script><script>alert(1)</script>&<!--"
    ids = [f"{evil}{i}" for i in range(30)]
    model.explore(page, ids=ids, labels=[evil] * 30, title=evil)
    text = page.read_text(encoding="utf-8")
    assert "<script>alert" not in text
    assert text.count("</script>") == 2
    payload = payload_in(page)
    assert payload["ids"] == ids
    assert payload["labels"]["names"] == [evil]
    assert payload["title"] == evil


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
    codes = numbers(found["codes"])
    missing = np.array([bool(pd.isna(label)) for label in labels])
    assert np.all(codes[missing] == 65535)
    texts = [names[code] for code in codes[~missing]]
    assert texts == [f"{x:g}" if isinstance(x, float) else str(x) for x in np.asarray(labels)[~missing]]


def test_labels_that_are_numbers(model, page):
    labels = np.linspace(0.0, 1.0, 30)
    labels[4] = np.nan
    model.explore(page, labels=labels)
    np.testing.assert_allclose(numbers(payload_in(page)["labels"]["values"]), labels, rtol=1e-6)


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
