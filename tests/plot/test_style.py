"""Axes that are made, and a matplotlib that is missing."""

import subprocess
import sys

import matplotlib.pyplot as plt
import numpy as np
import pytest
from helpers.pictures import IMAGE_SHAPE, some_images

from srflvm import plot


def test_a_figure_is_made_but_not_shown(image_model, monkeypatch):
    monkeypatch.setattr(plt, "show", lambda *_: pytest.fail("shown"))
    drawn = [
        plot.embedding(image_model),
        plot.decoded_grid(image_model, IMAGE_SHAPE, 3),
        plot.elbo_curve(image_model),
        plot.reconstructions(image_model, some_images()[:2], IMAGE_SHAPE),
    ]
    assert len({id(ax.figure) for ax in drawn}) == 4
    plt.close("all")


def test_missing_matplotlib_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r"pip install 'srflvm\[plot\]'"):
        plot.embedding(np.zeros((3, 2)))


def test_matplotlib_is_imported_when_something_is_drawn():
    program = "import sys, srflvm.plot; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
