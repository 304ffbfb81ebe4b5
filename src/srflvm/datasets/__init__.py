"""Small data to try the model on: drawn from a known model, or bundled with scikit-learn.

Nothing here reads files of its own; loaders of files are in `srflvm_bench.datasets`. The package imports
`likelihoods` and `_typing` alone, and no other package of `srflvm` imports it.
"""

from srflvm.datasets.dataset import Dataset, load_digits
from srflvm.datasets.synthetic import SCurve, make_s_curve_gp

__all__ = ["Dataset", "SCurve", "load_digits", "make_s_curve_gp"]
