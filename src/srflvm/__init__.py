"""Scalable random feature latent variable models with the face of scikit-learn."""

from srflvm import likelihoods
from srflvm._version import __version__
from srflvm.estimator import SRFLVM
from srflvm.exceptions import DataError, ModelFileError, NumericalError
from srflvm.imputer import SRFLVMImputer
from srflvm.persistence import load
from srflvm.progress import Progress
from srflvm.selection import Selection, choose_n_components

__all__ = [
    "SRFLVM",
    "DataError",
    "ModelFileError",
    "NumericalError",
    "Progress",
    "SRFLVMImputer",
    "Selection",
    "__version__",
    "choose_n_components",
    "likelihoods",
    "load",
]
