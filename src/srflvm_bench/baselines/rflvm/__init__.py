"""RFLVM by Markov chain Monte Carlo, the predecessor of the model of `srflvm`."""

from srflvm_bench.baselines.rflvm.estimator import RFLVM, SweepProgress

__all__ = ["RFLVM", "SweepProgress"]
