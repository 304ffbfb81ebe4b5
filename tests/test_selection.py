import numpy as np
import pytest

from srflvm import SRFLVM, choose_n_components


def test_ctrl_c_in_one_fit_ends_the_choice(monkeypatch):
    fitted = []

    def fit(self, Y, mask, sizes):
        fitted.append(self.n_components)
        self.relevance_, self.interrupted_ = np.ones(self.n_components), True

    monkeypatch.setattr(SRFLVM, "fit", fit)
    monkeypatch.setattr(SRFLVM, "score_entries", lambda self, *_, **__: np.zeros(2))
    with pytest.raises(KeyboardInterrupt):
        choose_n_components(SRFLVM(), np.random.RandomState(0).standard_normal((10, 6)), (1, 2))
    assert fitted == [1]


def choice_by(scores, monkeypatch, n_columns):
    """Return what is chosen for a table of so many columns if candidates have these scores."""

    def fit(self, Y, mask, sizes):
        self.relevance_, self.interrupted_ = np.ones(self.n_components), False

    monkeypatch.setattr(SRFLVM, "fit", fit)
    monkeypatch.setattr(
        SRFLVM, "score_entries", lambda self, *_, **__: np.full(2, scores.get(self.n_components, -9.0))
    )
    return choose_n_components(SRFLVM(), np.random.RandomState(0).standard_normal((200, n_columns)))


@pytest.mark.parametrize(
    ("n_columns", "tried"),
    [(2, (1,)), (4, (1, 2, 3)), (13, (1, 2, 3, 5, 8)), (33, (1, 2, 3, 5, 8, 16, 32))],
)
def test_candidates_go_up_to_the_smaller_side_less_one(n_columns, tried, monkeypatch):
    """Tables of less than 16 columns were only tried with two components."""
    rising = {number: float(number) for number in tried}
    selection = choice_by(rising, monkeypatch, n_columns)
    assert selection.candidates == tried
    assert selection.n_components == tried[-1]


def test_the_search_goes_on_past_one_worse_candidate_and_ends_after_two(monkeypatch):
    scores = {1: 0.0, 2: 2.0, 3: 1.0, 5: 3.0, 8: 2.9, 16: 2.8, 32: 9.0}
    selection = choice_by(scores, monkeypatch, 100)
    assert selection.candidates == (1, 2, 3, 5, 8, 16)
    assert selection.n_components == 5
