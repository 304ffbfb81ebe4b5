"""Pictures of a fitted model with matplotlib: `pip install 'srflvm[plot]'`.

Every function draws into the Axes it is given, or into a new figure, and returns the Axes. None shows it.

The package draws the results of a fitted estimator, which it does not import. It imports `data` and what lies
below, and `cli` alone imports it. matplotlib is imported when something is drawn.
"""

from srflvm.plot.charts import calibration, history, imputation, kernel, relevance, spectral_density
from srflvm.plot.images import reconstructions
from srflvm.plot.plane import decoded_grid, embedding, magnification, uncertainty_map
from srflvm.plot.style import COLOURS, MARKERS, require_matplotlib

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
