"""Systems that the paper compares with, and systems in common use, behind one `fit_transform`.

`SYSTEMS` lists them by the names of the paper's tables, and `make` builds one. Every system is a class with
`n_components` and `random_state` whose `fit_transform(Y)` returns an array (N, n_components). A system is
imported when it is made.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from types import MappingProxyType
from typing import Any, NamedTuple

__all__ = ["SYSTEMS", "System", "make"]


class System(NamedTuple):
    """Entry of the table of systems.

    Attributes
    ----------
    path : str
        `module:Class`.
    suits : "any", "continuous", "non-negative", "counts" or "binary"
        Entries that it is made for. "continuous" stands for columns of one scale, as systems with one noise
        variance or one distance for all columns need.
    settings : mapping
        Constructor keywords that turn the class into this system.
    extra : str or None
        The extra of the package that installs its requirements.
    seeded : bool
        True if `random_state` changes the result.
    """

    path: str
    suits: str = "any"
    settings: Mapping[str, Any] = MappingProxyType({})
    extra: str | None = None
    seeded: bool = True


def _with_likelihood(path: str, likelihood: str) -> System:
    """Return an entry for a class that takes a likelihood."""
    suits = {"gaussian": "continuous", "bernoulli": "binary"}.get(likelihood, "counts")
    return System(path, suits, MappingProxyType({"likelihood": likelihood}))


_PACKAGED = "srflvm_bench.baselines.packaged"
_RFLVM = "srflvm_bench.baselines.rflvm:RFLVM"
_SVI = "srflvm_bench.baselines.gplvm_svi:GPLVMSVI"
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
    "VAE": System("srflvm_bench.baselines.vae:VAE", "continuous"),
    "CVQ-VAE": System("srflvm_bench.baselines.cvq_vae:CVQVAE", "continuous"),
    "NBVAE": System("srflvm_bench.baselines.nbvae:NBVAE", "counts"),
    "DCA": System("srflvm_bench.baselines.dca:DCA", "counts"),
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
    """Return the system of this name, with keywords of its constructor such as `n_components`."""
    if name not in SYSTEMS:
        raise ValueError(f"{name!r} is not a system. The systems are {', '.join(SYSTEMS)}.")
    module, _, attribute = SYSTEMS[name].path.partition(":")
    return getattr(import_module(module), attribute)(**{**SYSTEMS[name].settings, **settings})
