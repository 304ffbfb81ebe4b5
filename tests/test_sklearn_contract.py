"""All of scikit-learn's own checks, with none expected to fail."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from srflvm import SRFLVM, SRFLVMImputer


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@pytest.mark.filterwarnings("ignore:y is ignored:UserWarning")
@parametrize_with_checks([SRFLVM(), SRFLVMImputer()])
def test_scikit_learn_contract(estimator, check):
    check(estimator)
