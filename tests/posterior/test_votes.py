"""Votes of similar rows: against loops over rows, a grid of shares, and what no voter may know."""

import warnings

import numpy as np
import pandas as pd
import pytest
from helpers.model_files import (
    assert_same,
    change_entry,
    change_tensor,
    drop,
    made_up,
    read,
    write,
)

import srflvm
from srflvm import ModelFileError, SRFLVMImputer
from srflvm.likelihoods import Gaussian
from srflvm.posterior.votes import UNKNOWN, Electorate


def voted_by_loops(point, voters, codes, n_classes):
    """Return the shares of the classes among the twenty nearest, written down entry by entry."""
    squares = [float(np.sum((point - voter) ** 2)) for voter in voters]
    reach = sorted(squares)[min(20, len(squares)) - 1]
    counts = [sum(code == k for code in codes) / len(codes) for k in range(n_classes)]
    for square, code in zip(squares, codes, strict=True):
        if square < reach:
            counts[int(code)] += 1.0 - square / reach
    return np.array(counts) / sum(counts)


def made_up_votes(n_voters=60, n_classes=3, seed=0):
    """Return points, codes (some unknown) that depend on them, and probabilities that know less."""
    random = np.random.default_rng(seed)
    points = random.normal(size=(1, n_voters, 4)).astype(np.float32).astype(float)
    codes = np.clip(np.round(points[:, :, 0] + 1.0), 0, n_classes - 1)
    codes[:, ::7] = UNKNOWN
    return points, codes, random.dirichlet(np.ones(n_classes), size=n_voters)


def test_votes_are_those_of_the_nearest_voters():
    points, codes, of_model = made_up_votes()
    electorate = Electorate.assemble(points, codes, [of_model])._replace(shares=np.ones(1))
    known = codes[0] != UNKNOWN
    asked = np.random.default_rng(1).normal(size=(5, 4))
    found = electorate.mix(0, asked, np.zeros((5, 3)))
    expected = [voted_by_loops(point, points[0][known], codes[0][known], 3) for point in asked]
    np.testing.assert_allclose(found, expected, rtol=1e-10)


@pytest.mark.parametrize("seed", range(3))
def test_the_share_is_the_best_for_classes_that_are_not_known(seed):
    points, codes, of_model = made_up_votes(seed=seed)
    known = np.flatnonzero(codes[0] != UNKNOWN)
    chances = []
    for row in known:
        others = known[known != row]
        votes = voted_by_loops(points[0][row], points[0][others], codes[0][others], 3)
        chances.append((of_model[row, int(codes[0, row])], votes[int(codes[0, row])]))
    model, voted = np.array(chances).T
    shares = np.linspace(0.001, 0.999, 999)
    # the prior of the share is Beta(3, 3)
    bounds = [np.sum(np.log((1 - s) * model + s * voted)) + 2 * np.log(s * (1 - s)) for s in shares]
    found = Electorate.assemble(points, codes, [of_model]).shares[0]
    assert found == pytest.approx(shares[np.argmax(bounds)], abs=0.02)


def test_equal_rows_and_single_voters_can_vote():
    codes = np.array([[0.0, 1.0, 1.0, 1.0]])
    equal = Electorate.assemble(np.zeros((1, 4, 2)), codes, [np.full((4, 2), 0.5)])
    np.testing.assert_allclose(
        equal._replace(shares=np.ones(1)).mix(0, np.zeros((1, 2)), np.zeros((1, 2))), [[0.25, 0.75]]
    )
    alone = Electorate.assemble(np.zeros((1, 1, 2)), codes[:, :1], [np.full((1, 2), 0.5)])
    assert 0.0 < alone.shares[0] < 1.0


# ---- of a model -------------------------------------------------------------------------------------


def classes_and_numbers(n_rows=60):
    """Return a table of two numbers, a level of three, a yes or no, and a small count, with holes."""
    random = np.random.default_rng(0)
    numbers = random.normal(size=(n_rows, 2))
    table = np.column_stack(
        [
            numbers,
            np.digitize(numbers[:, 0], [-0.5, 0.5]),
            numbers[:, 1] > 0.0,
            random.poisson(2.0, n_rows),
        ]
    ).astype(float)
    table[random.uniform(size=table.shape) < 0.2] = np.nan
    return table


LIKELIHOODS = {(0, 1): Gaussian("column"), 2: "categorical", 3: "bernoulli", 4: "ordinal"}


def voting_model():
    """Return a model whose numbers are made up, with the votes of its rows, and these."""
    table = classes_and_numbers()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = made_up(table, likelihood=LIKELIHOODS, n_components=2, affine=True)
    encoded = model._posterior.layout.encode(table)
    latents = model._posterior.embed_encoded(encoded).mean
    model._posterior = model._posterior.with_votes(encoded, latents, np.random.RandomState(0))
    return model, table


@pytest.fixture(scope="module")
def voting():
    return voting_model()


def test_rows_vote_on_classes_without_an_order(voting):
    model, table = voting
    votes = model._posterior.votes
    assert model._posterior.voting_columns == [2, 3]
    for codes, column in zip(votes.codes, (2, 3), strict=True):
        np.testing.assert_array_equal(np.where(codes == UNKNOWN, np.nan, codes), table[:, column])


def test_no_voter_knows_its_own_class(voting):
    model, table = voting
    posterior = model._posterior
    other = table.copy()
    row = np.flatnonzero(~np.isnan(table[:, 2:4]).any(axis=1))[0]
    other[row, 2], other[row, 3] = (table[row, 2] + 1) % 3, 1 - table[row, 3]

    def points(values, column):
        values = values.copy()
        encoded, latents = posterior.layout.encode(values), posterior.embed(table).mean
        place = posterior.voting_columns.index(column)
        return posterior.with_votes(encoded, latents, np.random.RandomState(0)).votes.points[place, row]

    for column, its_other in ((2, 3), (3, 2)):
        changed = table.copy()
        changed[row, column] = other[row, column]
        np.testing.assert_array_equal(points(changed, column), points(table, column))
        assert np.max(np.abs(points(changed, its_other) - points(table, its_other))) > 0.1


def test_missing_classes_are_filled_by_the_mixture(voting):
    model, table = voting
    posterior = model._posterior
    filled, std, tables = model.impute(table, return_std=True, return_proba=True)
    missing = np.isnan(table)
    rows = np.flatnonzero(missing.any(axis=1))
    some = posterior.embed_incomplete(table)
    alone = posterior.category_probabilities(some.embedding.mean, some.embedding.cholesky)[2]
    votes = posterior.votes
    for row in np.flatnonzero(missing[:, 2])[:5]:
        place = int(np.flatnonzero(rows == row)[0])
        by_votes = (tables[2][row] - (1.0 - votes.shares[0]) * alone[place]) / votes.shares[0]
        assert by_votes.sum() == pytest.approx(1.0)
        assert np.all(by_votes > 0.0)
        assert filled[row, 2] == np.argmax(tables[2][row])
        assert std[row, 2] ** 2 == pytest.approx(tables[2][row].max() * (1.0 - tables[2][row].max()))
    hidden = missing[:, 3]
    np.testing.assert_allclose(filled[hidden, 3], tables[3][hidden, 1])
    np.testing.assert_allclose(std[hidden, 3] ** 2, tables[3][hidden].prod(axis=1))
    np.testing.assert_array_equal(filled[~missing], table[~missing])


def test_a_row_gets_the_same_votes_alone(voting):
    model, table = voting
    filled, tables = model.impute(table, return_proba=True)
    some, some_tables = model.impute(table[7:20], return_proba=True)
    np.testing.assert_allclose(some, filled[7:20], rtol=1e-9)
    for column in tables:
        np.testing.assert_allclose(some_tables[column], tables[column][7:20], rtol=1e-9)


def test_votes_do_not_change_numbers(voting):
    model, table = voting
    filled = model.impute(table)
    kept = model._posterior.votes
    object.__setattr__(model._posterior, "votes", None)
    try:
        alone = model.impute(table)
    finally:
        object.__setattr__(model._posterior, "votes", kept)
    np.testing.assert_array_equal(filled[:, [0, 1, 4]], alone[:, [0, 1, 4]])
    assert np.any(filled[:, 3] != alone[:, 3])


def test_too_few_rows_and_no_classes_have_no_votes(voting):
    model, table = voting
    posterior = model._posterior
    few = posterior.layout.encode(table[:10])
    latents = posterior.embed(table[:10]).mean
    alone = posterior.with_votes(few, latents, np.random.RandomState(0))
    assert alone.votes is posterior.votes


# ---- in files ---------------------------------------------------------------------------------------


def test_votes_come_back(voting, tmp_path):
    model, table = voting
    path = tmp_path / "model.srflvm"
    model.save(path)
    loaded = srflvm.load(path)
    assert_same(loaded, model)
    np.testing.assert_array_equal(loaded.impute(table), model.impute(table))


CHANGES = {
    "no votes": (change_entry("has_votes", False), "votes.codes, votes.points, votes.shares is not known"),
    "missing": (drop("votes.codes"), r"tensor votes\.codes is missing"),
    "fewer voters": (change_tensor("votes.codes", lambda a: a[:, 1:]), r"votes\.codes has shape"),
    "fewer entries": (change_tensor("votes.points", lambda a: a[:, :, 1:]), "not those of its columns"),
    "no class": (change_tensor("votes.codes", lambda a: a + 0.5), "not those of its columns"),
    "too large": (change_tensor("votes.codes", lambda a: a + 3.0), "not those of its columns"),
    "more than all": (change_tensor("votes.shares", lambda a: a + 1.0), "not those of its columns"),
    "negative": (change_tensor("votes.shares", np.negative), "shares has entries that are too small"),
}


@pytest.mark.parametrize("kind", CHANGES)
def test_unsound_files_are_refused(voting, tmp_path, kind):
    change, message = CHANGES[kind]
    path = tmp_path / "model.srflvm"
    voting[0].save(path)
    header, tensors = read(path)
    change(header, tensors)
    write(path, header, tensors)
    with pytest.raises(ModelFileError, match=message):
        srflvm.load(path)


def test_classes_on_a_checkerboard_are_found_by_their_neighbours():
    random = np.random.default_rng(0)
    place = random.uniform(-2.0, 2.0, size=(300, 2))
    cell = np.floor(place).astype(int).sum(axis=1) % 2
    frame = pd.DataFrame({"x": place[:, 0], "y": place[:, 1], "name": np.array(["odd", "even"])[cell]})
    truth = frame["name"].copy()
    hidden = random.uniform(size=len(frame)) < 0.3
    frame.loc[hidden, "name"] = None
    imputer = SRFLVMImputer(random_state=0).fit(frame)
    filled, tables = imputer.transform(frame, return_proba=True)
    found = np.mean(filled["name"][hidden] == truth[hidden])
    # chance is right in half of the 85 entries, with a standard error of 0.054
    assert found > 0.5 + 5 * 0.054
    assert (tables["name"].idxmax(axis=1)[hidden] == filled["name"][hidden]).all()
