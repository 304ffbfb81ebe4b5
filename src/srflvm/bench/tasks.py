"""What is measured: one fit of one system to one data set, and the plan of every table."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

from srflvm.baselines import SYSTEMS
from srflvm.baselines.imputers import RIVALS

TABLE1_DATA = ("bridges", "cifar-10", "mnist", "montreal", "newsgroups", "yale")
TABLE3_DATA = ("cifar-10-32", "cifar-10-full", "mnist-full")
TABLE4_DATA = ("cifar-10", "brendan")
QUICK_DATA = ("digits", "synthetic-counts")
SHARES = (0.0, 0.1, 0.3, 0.6)

_NOT_IN_TABLE1 = ("P-RFLVM", "M-RFLVM", "N-GPLVM-SVI", "B-GPLVM-SVI")
TABLE1_SYSTEMS = tuple(name for name in SYSTEMS if name not in _NOT_IN_TABLE1)
TABLE3_SYSTEMS = ("VAE", "G-OURS", "BGPLVM", "Isomap", "NBVAE", "CVQ-VAE", "t-SNE", "UMAP")
TABLE4_SYSTEMS = ("VAE", "BGPLVM", "G-RFLVM", "G-OURS", *RIVALS)

# Fewer steps, so that a look at everything takes minutes.
QUICK_SETTINGS: dict[str, dict[str, Any]] = {
    "G-OURS": {"max_iter": 8},
    "N-OURS": {"max_iter": 8},
    "B-OURS": {"max_iter": 8},
    "GPLVM": {"max_iter": 30},
    "BGPLVM": {"max_iter": 30, "n_inducing": 15},
    "t-SNE": {"max_iter": 300},
}


@dataclass(frozen=True)
class Task:
    """One fit. `kind` says what is measured of it: "embedding", "neighbours" or "imputation"."""

    kind: str
    data: str
    system: str
    seed: int = 0
    share: float = 0.0
    quick: bool = False
    path: str = ""
    suits: str = "any"
    settings: dict[str, Any] = field(default_factory=dict)
    folder: str | None = None

    @property
    def key(self) -> str:
        """What tells one measurement from another; the place of the files does not."""
        own = {name: value for name, value in asdict(self).items() if name != "folder"}
        return json.dumps(own, sort_keys=True)


def task(kind: str, data: str, system: str, *, quick: bool = False, **rest: Any) -> Task:
    """A fit of a system of `srflvm.baselines`."""
    if system in RIVALS:
        return Task(kind, data, system, quick=quick, **rest)
    known = SYSTEMS[system]
    settings = {**known.settings, **(QUICK_SETTINGS.get(system, {}) if quick else {})}
    return Task(
        kind, data, system, quick=quick, path=known.path, suits=known.suits, settings=settings, **rest
    )


def plan(
    table: str, *, seeds: int, quick: bool = False, only: Iterable[str] = (), folder: str | None = None
) -> list[Task]:
    """All fits of a table. `only` names systems or data sets, or both."""
    if table == "table4":
        kind, data, systems, shares = "imputation", TABLE4_DATA, TABLE4_SYSTEMS, SHARES
    elif table == "table3":
        kind, data, systems, shares = "neighbours", TABLE3_DATA, TABLE3_SYSTEMS, (0.0,)
    else:
        kind, data, systems, shares = "embedding", TABLE1_DATA, TABLE1_SYSTEMS, (0.0,)
    if quick:
        data = QUICK_DATA[:1] if table in ("table3", "table4") else QUICK_DATA
        seeds = 1
    chosen_data, chosen_systems = _chosen(tuple(only), data, systems)
    return [
        task(kind, name, system, quick=quick, seed=seed, share=share, folder=folder)
        for name in chosen_data
        for system in chosen_systems
        for share in shares
        if not (system in RIVALS and share == 0.0)
        for seed in range(seeds if table in ("table1", "table2") else 1)
    ]


def _chosen(
    only: tuple[str, ...], data: tuple[str, ...], systems: tuple[str, ...]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    unknown = [name for name in only if name not in (*data, *systems)]
    if unknown:
        raise ValueError(
            f"{unknown[0]!r} is neither data ({', '.join(data)}) nor system ({', '.join(systems)})."
        )
    return (
        tuple(name for name in data if name in only) or data,
        tuple(name for name in systems if name in only) or systems,
    )
