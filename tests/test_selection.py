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
