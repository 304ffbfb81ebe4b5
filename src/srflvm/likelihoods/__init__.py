"""Likelihoods by name."""

from typing import Any

from srflvm.likelihoods._base import Expected, Likelihood, Moments, Parameters, PolyaGamma, Start, Units
from srflvm.likelihoods.bernoulli import Bernoulli
from srflvm.likelihoods.binomial import Binomial
from srflvm.likelihoods.categorical import Categorical, Multinomial
from srflvm.likelihoods.custom import Custom
from srflvm.likelihoods.gaussian import Gaussian
from srflvm.likelihoods.negative_binomial import NegativeBinomial
from srflvm.likelihoods.ordinal import Ordinal
from srflvm.likelihoods.poisson import Poisson
from srflvm.likelihoods.student_t import StudentT

_KINDS = (
    Gaussian,
    Bernoulli,
    Binomial,
    NegativeBinomial,
    Poisson,
    StudentT,
    Ordinal,
    Categorical,
    Multinomial,
)

LIKELIHOODS: dict[str, type[Likelihood]] = {kind.name: kind for kind in _KINDS}


def standard_name(name: Any) -> Any:
    """Return the key of `LIKELIHOODS` that a user means: "Negative-Binomial" is "negative_binomial".

    What is no text is returned as it is.
    """
    return name.strip().lower().replace("-", "_") if isinstance(name, str) else name


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
