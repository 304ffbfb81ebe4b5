"""Likelihoods by name."""

from srflvm.likelihoods.gaussian import Gaussian

LIKELIHOODS = {Gaussian.name: Gaussian}

__all__ = ["LIKELIHOODS", "Gaussian"]
