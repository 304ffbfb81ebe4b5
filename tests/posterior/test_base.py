"""Interface of posteriors: what is derived from them is computed once, and copies do not hold it."""

import copy
import pickle
from dataclasses import fields, replace

import numpy as np
import pytest
from helpers.fitted_models import small_data, small_model
from helpers.model_files import made_up, model_of_all_kinds, table_of_all_kinds

from srflvm.numerics.features import with_constant
from srflvm.numerics.packed_symmetric import quadratic_forms
from srflvm.posterior import base, gaussian
from srflvm.posterior.base import Posterior


def fresh(posterior, **changes):
    """Return a posterior with the same contents from which nothing has been derived."""
    return type(posterior)(**posterior.as_dict() | changes)


def cases():
    """Return posteriors of both kinds with rows, of which some have missing entries."""
    gaussian_rows = np.array(small_data()[1])
    mixed_rows = np.array(table_of_all_kinds(), np.float64)[:6]
    for rows in (gaussian_rows, mixed_rows):
        rows[::2, 1] = np.nan
    return [(small_model()._posterior, gaussian_rows), (model_of_all_kinds()._posterior, mixed_rows)]


class Count:
    """Calls of a function, which are made."""

    def __init__(self, function):
        self.function, self.number = function, 0

    def __call__(self, *arguments, **options):
        """Call the function."""
        self.number += 1
        return self.function(*arguments, **options)


def test_the_anchors_are_indexed_and_decoded_once(monkeypatch):
    """Gaussian data have an index for complete rows, and all have one for rows with missing entries."""
    made = cases()
    searches, indices = Count(gaussian.NearestNeighbors), Count(base.AnchorIndex)
    monkeypatch.setattr(gaussian, "NearestNeighbors", searches)
    monkeypatch.setattr(base, "AnchorIndex", indices)
    for kind, (posterior, rows) in enumerate(made):
        own = fresh(posterior)
        decoded = Count(type(own)._build_function)
        monkeypatch.setattr(type(own), "_build_function", lambda self, count=decoded: count(self))
        for number in range(4):
            own.embed(rows[number : number + 1])
        assert (searches.number, indices.number, decoded.number) == (1, 1 + kind, 1)


def test_kept_outputs_of_the_anchors_are_not_computed_again(monkeypatch):
    posterior = fresh(small_model()._posterior)
    sizes, features = [], type(posterior).features

    def watched(self, latents):
        sizes.append(len(latents))
        return features(self, latents)

    monkeypatch.setattr(type(posterior), "features", watched)
    for row in range(3):
        posterior.embed(small_data()[1][row : row + 1])
    assert sizes == [len(posterior.anchors)]


def test_answers_do_not_depend_on_what_was_asked_before(monkeypatch):
    for posterior, rows in cases():
        posterior.embed(rows)
        for left, right in zip(posterior.embed(rows), fresh(posterior).embed(rows), strict=True):
            np.testing.assert_array_equal(left, right)
        # nothing is kept of a posterior that is too large for it
        monkeypatch.setattr(base, "_MOST_KEPT", 0)
        large = fresh(posterior)
        for left, right in zip(posterior.embed(rows), large.embed(rows), strict=True):
            np.testing.assert_array_equal(left, right)
        assert large._kept_anchor_index is None
        assert large._kept_device_function is None
        monkeypatch.undo()


def test_a_replaced_posterior_keeps_nothing_that_was_derived_before():
    for posterior, rows in cases():
        own = fresh(posterior)
        own.embed(rows)
        own.log_density(rows)
        changes = {"weights": 0.5 * own.weights, "anchors": own.anchors[::-1].copy()}
        moved, expected = replace(own, **changes), fresh(own, **changes)
        assert set(vars(moved)) == {field.name for field in fields(moved)}
        for left, right in zip(moved.embed(rows), expected.embed(rows), strict=True):
            np.testing.assert_array_equal(left, right)
        assert not np.array_equal(moved.embed(rows).mean, own.embed(rows).mean)


def test_other_anchors_are_indexed_anew():
    for posterior, rows in cases():
        posterior.embed(rows)
        few = posterior.with_anchors(posterior.anchors[:5], posterior.anchor_scores[:5])
        again = fresh(posterior, anchors=posterior.anchors[:5], anchor_scores=posterior.anchor_scores[:5])
        for left, right in zip(few.embed(rows), again.embed(rows), strict=True):
            np.testing.assert_array_equal(left, right)
        moved = posterior.with_anchors(posterior.anchors + 1.0)
        assert moved.anchor_scores is posterior.anchor_scores


@pytest.mark.parametrize(
    "copied", [copy.deepcopy, copy.copy, lambda model: pickle.loads(pickle.dumps(model))]
)
def test_copies_compute_the_same_and_do_not_hold_what_is_derived(copied):
    for model, rows in ((small_model(), small_data()[1]), (model_of_all_kinds(), table_of_all_kinds()[:6])):
        expected = model.transform(rows)
        assert set(vars(model._posterior)) > {field.name for field in fields(model._posterior)}
        again = copied(model._posterior)
        assert set(vars(again)) == {field.name for field in fields(again)}
        np.testing.assert_array_equal(again.embed(np.asarray(rows, np.float64)).mean, expected)
        np.testing.assert_array_equal(copied(model).transform(rows), expected)


def test_files_do_not_depend_on_what_was_asked_before(tmp_path):
    for model, rows in ((small_model(), small_data()[1]), (model_of_all_kinds(), table_of_all_kinds()[:6])):
        own = copy.deepcopy(model)
        own.save(tmp_path / "before.srflvm")
        own.transform(rows)
        own.save(tmp_path / "after.srflvm")
        assert (tmp_path / "before.srflvm").read_bytes() == (tmp_path / "after.srflvm").read_bytes()


def test_a_posterior_is_finite_if_all_its_numbers_are():
    for posterior, _ in cases():
        assert posterior.is_finite
        weights = posterior.weights.copy()
        weights[0, 0] = np.inf
        assert not replace(posterior, weights=weights).is_finite
    (shared, _), (sites, _) = cases()
    assert not replace(shared, noise=np.nan).is_finite
    learned = tuple({name: np.nan * value for name, value in group.items()} for group in sites.parameters)
    assert not replace(sites, parameters=learned).is_finite


def test_the_packed_covariances_give_the_variance_of_the_function():
    for posterior, _ in cases():
        latents = posterior.anchors[:4]
        features = with_constant(posterior.features(latents))
        variance = quadratic_forms(features, posterior.covariances.forms().astype(np.float64)).T
        _, expected = posterior.function_moments(latents)
        np.testing.assert_allclose(variance, expected, rtol=1e-9)
        assert posterior.shares_covariance == (len(posterior.covariances.coefficients) == 1)


def test_the_variance_left_is_a_share_of_the_prior_variance():
    """The Fourier features of a latent have the square one, and with the constant two."""
    (shared, _), (sites, _) = cases()
    for posterior, prior in ((shared, shared.noise / shared.ratio), (sites, 2.0 * sites.amplitude)):
        latents = posterior.anchors[:4]
        features = with_constant(posterior.features(latents))
        share = quadratic_forms(features, posterior.relative_variance_form()[None].astype(np.float64))[0]
        expected = np.mean(posterior.function_moments(latents)[1] / prior, axis=1)
        np.testing.assert_allclose(share, expected, rtol=1e-6)
    known = shared.unknown_share(shared.anchors[:4])
    np.testing.assert_allclose(
        known, shared.function_moments(shared.anchors[:4])[1][:, 0] * shared.ratio / shared.noise
    )
    assert np.all(known < shared.unknown_share(np.full((4, 2), 1e3)))


def test_both_kinds_have_the_whole_interface():
    with pytest.raises(TypeError, match="abstract"):
        Posterior(*[None] * 4)
    (shared, _), (sites, _) = cases()
    assert set(shared.state_entries()) == {"log_noise", "log_ratio"}
    assert set(sites.state_entries()) == {"parameters", "log_amplitude"}
    assert shared.learned_parameters() == {}
    assert shared.noise_variance == pytest.approx(shared.columns.scale**2 * shared.noise)
    np.testing.assert_array_equal(sites.noise_variance, sites.learned_parameters()["noise_variance"])
    assert sites.mean_amplitude == pytest.approx(np.mean(sites.amplitude))


# ---- probabilities of levels ----------------------------------------------------------------------


def rows_with_levels():
    """Return a posterior of all kinds of columns, rows in which some levels are missing, and their names."""
    table = table_of_all_kinds().iloc[:6]
    values = np.array(table, np.float64)
    values[1:4] = np.where(
        np.random.RandomState(0).uniform(size=(3, values.shape[1])) < 0.3, np.nan, values[1:4]
    )
    values[4:] = np.nan
    values[4, 0] = table.iloc[4, 0]
    return model_of_all_kinds()._posterior, values, list(table.columns)


def test_probabilities_of_levels_sum_to_one_and_observed_ones_are_certain():
    posterior, Y, names = rows_with_levels()
    tables = posterior.level_probabilities(Y)
    kinds = {names[column].partition(" ")[0] for column in tables}
    assert kinds == {"bernoulli", "ordinal", "categorical"}
    assert len(tables) == 6
    for column, table in tables.items():
        codes = posterior.level_columns[column]
        assert table.shape == (6, len(codes))
        np.testing.assert_allclose(table.sum(axis=1), 1.0, rtol=1e-12)
        assert np.all(table >= 0.0)
        for row, entry in enumerate(Y[:, column]):
            if np.isnan(entry):
                assert np.all((table[row] > 0.0) & (table[row] < 1.0))
            else:
                assert codes[np.argmax(table[row])] == entry
                assert np.max(table[row]) == 1.0


def test_probabilities_of_levels_are_the_frequencies_of_draws():
    """Frequencies of n draws are off by sqrt(p (1 - p) / n), and cubature of the latents by less than 0.01.

    Of rows of which little is observed it is off by more: their latents are anywhere.
    """
    posterior, Y, _ = rows_with_levels()
    Y, n_draws = Y[:4], 4000
    assert np.isnan(Y[:, list(posterior.level_columns)]).any(axis=0).sum() >= 3
    _, drawn = posterior.draw_rows(Y, None, n_draws, np.random.RandomState(0))
    for column, table in posterior.level_probabilities(Y).items():
        for row in np.flatnonzero(np.isnan(Y[:, column])):
            share = np.mean(drawn[:, row, column, None] == posterior.level_columns[column], axis=0)
            assert share.sum() == pytest.approx(1.0)
            error = np.sqrt(table[row] * (1.0 - table[row]) / n_draws)
            np.testing.assert_array_less(np.abs(share - table[row]), 4.0 * error + 0.01)


def test_probabilities_of_ordered_levels_give_the_means_that_fill():
    posterior, Y, names = rows_with_levels()
    filled, _ = posterior.fill_missing(Y)
    for column, table in posterior.level_probabilities(Y).items():
        mean = table @ posterior.level_columns[column]
        best = posterior.level_columns[column][np.argmax(table, axis=1)]
        expected = best if names[column].startswith("categorical") else mean
        np.testing.assert_allclose(filled[:, column], expected, atol=2e-3)


def test_codes_of_ordered_levels_are_those_of_the_columns():
    Y = np.random.RandomState(0).choice([1.0, 2.0, 5.0], size=(40, 3))
    Y[:, 2] = np.where(Y[:, 2] > 2.0, 2.0, Y[:, 2])
    posterior = made_up(Y, likelihood="ordinal")._posterior
    assert [codes.tolist() for codes in posterior.level_columns.values()] == [[1, 2, 5], [1, 2, 5], [1, 2]]
    Y[0] = np.nan
    tables = posterior.level_probabilities(Y[:2])
    assert [table.shape for table in tables.values()] == [(2, 3), (2, 3), (2, 2)]
    np.testing.assert_array_equal(tables[0][1], Y[1, 0] == np.array([1, 2, 5]))


def test_columns_of_numbers_have_no_levels():
    posterior, rows = cases()[0]
    assert posterior.level_columns == {}
    assert posterior.level_probabilities(rows) == {}


def test_only_rows_with_missing_entries_are_embedded(monkeypatch):
    """A complete row is not, and is filled, drawn and told the probabilities of without."""
    posterior = cases()[1][0]
    Y = np.array(table_of_all_kinds(), np.float64)[:6]
    Y[2, 1] = Y[4, 0] = np.nan
    alone = posterior.embed(Y[[2, 4]])
    incomplete = posterior.embed_incomplete(Y)
    np.testing.assert_array_equal(incomplete.rows, [2, 4])
    np.testing.assert_array_equal(incomplete.embedding.mean, alone.mean)
    sizes, embed = [], type(posterior).embed

    def watched(self, Y, log_sizes=None):
        sizes.append(len(Y))
        return embed(self, Y, log_sizes)

    monkeypatch.setattr(type(posterior), "embed", watched)
    complete = np.delete(Y, [2, 4], axis=0)
    np.testing.assert_array_equal(posterior.fill_missing(complete)[0], complete)
    assert all(
        set(np.ravel(table)) == {0.0, 1.0} for table in posterior.level_probabilities(complete).values()
    )
    assert posterior.embed_incomplete(complete).embedding.mean.shape == (0, alone.mean.shape[1])
    assert sizes == []
    posterior.fill_missing(Y)
    posterior.draw_filled(Y, None, 2, np.random.RandomState(0))
    posterior.level_probabilities(Y)
    assert sizes == [2, 2, 2]


def test_rows_that_are_embedded_already_give_the_same_answers(monkeypatch):
    posterior, rows = cases()[1]
    incomplete = posterior.embed_incomplete(rows)
    filled, tables = posterior.fill_missing(rows), posterior.level_probabilities(rows)
    monkeypatch.setattr(type(posterior), "embed", None)
    for left, right in zip(filled, posterior.fill_missing(rows, None, incomplete), strict=True):
        np.testing.assert_array_equal(left, right)
    for column, table in posterior.level_probabilities(rows, None, incomplete).items():
        np.testing.assert_array_equal(table, tables[column])
