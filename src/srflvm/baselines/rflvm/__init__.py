"""RFLVM by Markov chain Monte Carlo, the predecessor of this library's model."""

from srflvm.baselines.rflvm._estimator import RFLVM, SweepProgress

__all__ = ["RFLVM", "SweepProgress"]
