"""Data of the paper: the loaders of files, and what `srflvm.datasets` draws or bundles.

Files are read from a folder that is given or named by the environment variable SRFLVM_DATA.
"""

from srflvm.datasets import Dataset, SCurve, load_digits, make_s_curve_gp
from srflvm_bench.datasets.counts import load_bridges, load_montreal, load_newsgroups
from srflvm_bench.datasets.images import load_brendan, load_cifar10, load_mnist, load_yale

__all__ = [
    "Dataset",
    "SCurve",
    "load_brendan",
    "load_bridges",
    "load_cifar10",
    "load_digits",
    "load_mnist",
    "load_montreal",
    "load_newsgroups",
    "load_yale",
    "make_s_curve_gp",
]
