"""Scalable random feature latent variable models with the face of scikit-learn.

Names are imported when they are first asked for, so that importing the package is quick.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from srflvm._version import __version__

if TYPE_CHECKING:
    from srflvm import likelihoods
    from srflvm.estimator import SRFLVM, load
    from srflvm.exceptions import DataError, FallingBoundWarning, ModelFileError, NumericalError
    from srflvm.imputation import SRFLVMImputer
    from srflvm.inference.progress import Progress
    from srflvm.numerics.compilation_cache import use_compilation_cache
    from srflvm.selection import Selection, choose_n_components

__all__ = [
    "SRFLVM",
    "DataError",
    "FallingBoundWarning",
    "ModelFileError",
    "NumericalError",
    "Progress",
    "SRFLVMImputer",
    "Selection",
    "__version__",
    "choose_n_components",
    "likelihoods",
    "load",
    "use_compilation_cache",
]

_MODULES = {
    "SRFLVM": "estimator",
    "DataError": "exceptions",
    "FallingBoundWarning": "exceptions",
    "ModelFileError": "exceptions",
    "NumericalError": "exceptions",
    "Progress": "inference.progress",
    "SRFLVMImputer": "imputation",
    "Selection": "selection",
    "choose_n_components": "selection",
    "load": "estimator",
    "use_compilation_cache": "numerics.compilation_cache",
}
_SUBMODULES = ("anndata", "bcd", "datasets", "explore", "imputation", "likelihoods", "parallel", "plot")


def __getattr__(name: str) -> Any:
    if name in _SUBMODULES:
        return import_module(f"srflvm.{name}")
    if name not in _MODULES:
        raise AttributeError(f"module 'srflvm' has no attribute {name!r}")
    value = getattr(import_module(f"srflvm.{_MODULES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*__all__, *_SUBMODULES})
