"""Scalable random feature latent variable models with the face of scikit-learn."""

from srflvm._version import __version__
from srflvm.estimator import SRFLVM
from srflvm.exceptions import DataError, ModelFileError, NumericalError
from srflvm.persistence import load
from srflvm.progress import Progress

__all__ = ["SRFLVM", "DataError", "ModelFileError", "NumericalError", "Progress", "__version__", "load"]
