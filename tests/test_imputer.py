"""The imputer in a pipeline."""

import numpy as np
import pandas as pd
import pytest
from helpers.missing_entries import curve, warnings_of
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from srflvm import SRFLVM, SRFLVMImputer

SMALL = {"max_iter": 3, "tol": 0, "n_frequencies": 10, "random_state": 0}


@pytest.fixture(scope="module")
def complete():
    return curve()


@pytest.fixture(scope="module")
def holes(complete):
    return np.random.RandomState(1).uniform(size=complete.shape) < 0.2


def test_it_works_in_a_pipeline_and_keeps_names(complete, holes):
    frame = pd.DataFrame(np.where(holes, np.nan, complete), columns=list("abcdefgh"))
    imputer = SRFLVMImputer(SRFLVM(**SMALL), n_components=1).set_output(transform="pandas")
    filled = imputer.fit_transform(frame)
    assert list(filled.columns) == list("abcdefgh")
    assert np.array_equal(filled.to_numpy()[~holes], complete[~holes])
    scaled = make_pipeline(SRFLVMImputer(SRFLVM(**SMALL), n_components=1), StandardScaler()).fit_transform(
        frame
    )
    assert np.isfinite(scaled).all()


def test_it_warns_of_names_that_are_left_out_once_and_in_its_own_name(complete):
    imputer = SRFLVMImputer()
    imputer.estimator_ = SRFLVM(**SMALL).fit(complete)
    imputer.location_, imputer.scale_ = np.zeros(8), np.ones(8)
    for fitted in (imputer, imputer.estimator_):
        fitted.feature_names_in_, fitted.n_features_in_ = np.array(list("abcdefgh"), dtype=object), 8
    ((message, _),) = warnings_of(lambda: imputer.transform(complete))
    assert message == "X does not have valid feature names, but SRFLVMImputer was fitted with feature names"
    hidden = np.ma.array(complete, mask=np.tile(np.arange(8) == 3, (len(complete), 1)))
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        filled = imputer.transform(hidden)
    assert not np.any(filled[:, 3] == complete[:, 3])
