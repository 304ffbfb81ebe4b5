"""Data to try the model on: drawn, bundled with scikit-learn, or read from a folder of files."""

from srflvm.datasets._dataset import Dataset
from srflvm.datasets.images import load_brendan, load_cifar10, load_digits, load_mnist, load_yale
from srflvm.datasets.synthetic import SCurve, make_s_curve_gp
from srflvm.datasets.tables import load_bridges, load_montreal, load_newsgroups

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
