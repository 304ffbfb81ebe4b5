"""Pictures of a fitted model with matplotlib: `pip install 'srflvm[plot]'`.

Every function draws into the Axes it is given, or into a new figure, and returns the Axes. None shows it.
"""

from srflvm.plot._checks import calibration, imputation
from srflvm.plot._embedding import embedding
from srflvm.plot._fit import history, relevance
from srflvm.plot._images import decoded_grid, reconstructions
from srflvm.plot._kernel import kernel, spectral_density
from srflvm.plot._maps import magnification, uncertainty_map
from srflvm.plot._style import COLOURS, MARKERS, require_matplotlib

elbo_curve = history

__all__ = [
    "COLOURS",
    "MARKERS",
    "calibration",
    "decoded_grid",
    "elbo_curve",
    "embedding",
    "history",
    "imputation",
    "kernel",
    "magnification",
    "reconstructions",
    "relevance",
    "require_matplotlib",
    "spectral_density",
    "uncertainty_map",
]
