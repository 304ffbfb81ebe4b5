"""The systems that the paper compares with, and what people use today, behind one `fit_transform`.

`SYSTEMS` lists them by the names of the paper's tables; `make` builds one. Every system is a class with
`n_components` and `random_state` whose `fit_transform(Y)` returns an array (N, n_components). Nothing is
imported before it is made.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from types import MappingProxyType
from typing import Any, NamedTuple

__all__ = ["SYSTEMS", "System", "make"]


class System(NamedTuple):
    """Where a system is and what it takes.

    Attributes
    ----------
    path : str
        `module:Class`.
    suits : "any", "continuous", "non-negative", "counts" or "binary"
        The entries it is made for: "continuous" are columns of one scale, for systems with one noise or one
        distance for all.
    settings : mapping
        Constructor keywords that make this system of the class.
    extra : str or None
        The extra of the package that installs what it needs.
    seeded : bool
        Whether `random_state` changes the result.
    """

    path: str
    suits: str = "any"
    settings: Mapping[str, Any] = MappingProxyType({})
    extra: str | None = None
    seeded: bool = True


def _with_likelihood(path: str, likelihood: str) -> System:
    suits = {"gaussian": "continuous", "bernoulli": "binary"}.get(likelihood, "counts")
    return System(path, suits, MappingProxyType({"likelihood": likelihood}))


_PACKAGED = "srflvm.baselines.packaged"
_RFLVM = "srflvm.baselines.rflvm:RFLVM"
_SVI = "srflvm.baselines.gplvm_svi:GPLVMSVI"
_OURS = "srflvm:SRFLVM"

SYSTEMS: dict[str, System] = {
    "PCA": System(f"{_PACKAGED}:PCA", seeded=False),
    "LDA": System(f"{_PACKAGED}:LDA", "counts"),
    "Isomap": System(f"{_PACKAGED}:Isomap", seeded=False),
    "NMF": System(f"{_PACKAGED}:NMF", "non-negative"),
    "HPF": System(f"{_PACKAGED}:HPF", "counts", extra="bench"),
    "G-RFLVM": _with_likelihood(_RFLVM, "gaussian"),
    "N-RFLVM": _with_likelihood(_RFLVM, "negative_binomial"),
    "B-RFLVM": _with_likelihood(_RFLVM, "bernoulli"),
    "VAE": System("srflvm.baselines.vae:VAE", "continuous"),
    "CVQ-VAE": System("srflvm.baselines.cvq_vae:CVQVAE", "continuous"),
    "NBVAE": System("srflvm.baselines.nbvae:NBVAE", "counts"),
    "DCA": System("srflvm.baselines.dca:DCA", "counts"),
    "BGPLVM": System(f"{_PACKAGED}:BGPLVM", "continuous", extra="bench"),
    "GPLVM-SVI": _with_likelihood(_SVI, "gaussian"),
    "G-OURS": _with_likelihood(_OURS, "gaussian"),
    "N-OURS": _with_likelihood(_OURS, "negative_binomial"),
    "B-OURS": _with_likelihood(_OURS, "bernoulli"),
    "GPLVM": System(f"{_PACKAGED}:GPLVM", "continuous", extra="bench"),
    "t-SNE": System(f"{_PACKAGED}:TSNE", "continuous"),
    "UMAP": System(f"{_PACKAGED}:UMAP", "continuous", extra="bench"),
    "P-RFLVM": _with_likelihood(_RFLVM, "poisson"),
    "M-RFLVM": _with_likelihood(_RFLVM, "multinomial"),
    "N-GPLVM-SVI": _with_likelihood(_SVI, "negative_binomial"),
    "B-GPLVM-SVI": _with_likelihood(_SVI, "bernoulli"),
}


def make(name: str, **settings: Any) -> Any:
    """The system of this name, with its constructor's keywords (`n_components`, `random_state`, its own)."""
    if name not in SYSTEMS:
        raise ValueError(f"{name!r} is no system. The systems are {', '.join(SYSTEMS)}.")
    module, _, attribute = SYSTEMS[name].path.partition(":")
    return getattr(import_module(module), attribute)(**{**SYSTEMS[name].settings, **settings})
