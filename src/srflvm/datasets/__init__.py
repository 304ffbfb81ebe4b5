"""Data to try the model on."""

from srflvm.datasets.synthetic import SCurve, make_s_curve_gp

__all__ = ["SCurve", "make_s_curve_gp"]
