"""Likelihoods by name. A new one is one file and one line here."""

from srflvm.likelihoods.gaussian import Gaussian

LIKELIHOODS = {Gaussian.name: Gaussian}

__all__ = ["LIKELIHOODS", "Gaussian"]
