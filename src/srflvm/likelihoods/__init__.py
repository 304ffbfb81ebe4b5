"""Likelihoods: the distribution of an entry given the function value, one module for each family.

`base` has the protocol, `columns` turns the parameter `likelihood` into groups of columns. The package
imports `numerics`, `exceptions` and `_typing` alone.
"""

from srflvm.likelihoods.base import Expected, Likelihood, Moments, Parameters, Start, Units
from srflvm.likelihoods.columns import LIKELIHOODS
from srflvm.likelihoods.counts import NegativeBinomial, Poisson
from srflvm.likelihoods.custom import Custom
from srflvm.likelihoods.gaussian import Gaussian
from srflvm.likelihoods.ordinal import Ordinal
from srflvm.likelihoods.student_t import StudentT
from srflvm.likelihoods.trials import Bernoulli, Binomial, Categorical, Multinomial
from srflvm.numerics.polya_gamma import PolyaGamma

__all__ = [
    "LIKELIHOODS",
    "Bernoulli",
    "Binomial",
    "Categorical",
    "Custom",
    "Expected",
    "Gaussian",
    "Likelihood",
    "Moments",
    "Multinomial",
    "NegativeBinomial",
    "Ordinal",
    "Parameters",
    "Poisson",
    "PolyaGamma",
    "Start",
    "StudentT",
    "Units",
]
