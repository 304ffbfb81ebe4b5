"""Tasks, each one fit of one system to one data set, and the plan of every experiment."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from types import MappingProxyType
from typing import Any

from srflvm_bench.baselines import SYSTEMS
from srflvm_bench.baselines.imputers import IMPUTERS

TABLE1_DATA = ("bridges", "cifar-10", "mnist", "montreal", "newsgroups", "yale")
TABLE3_DATA = ("cifar-10-32", "cifar-10-five", "mnist-full")
TABLE4_DATA = ("cifar-10", "brendan")
QUICK_DATA = ("digits",)
RECONSTRUCTED_DATA = ("mnist", "brendan")
RECONSTRUCTED_SHARE = 0.6
SHARES = (0.0, 0.1, 0.3, 0.6)

_NOT_IN_TABLE1 = ("P-RFLVM", "M-RFLVM", "N-GPLVM-SVI", "B-GPLVM-SVI", "GPLVM")
TABLE1_SYSTEMS = tuple(name for name in SYSTEMS if name not in _NOT_IN_TABLE1)
TABLE3_SYSTEMS = ("VAE", "G-OURS", "BGPLVM", "Isomap", "NBVAE", "CVQ-VAE", "UMAP")
IN_THE_PLANE = "G-OURS, 2 components"
SAME_SIZE = "G-OURS, 50 frequencies"  # as many as RFLVM has
MANY_SWEEPS = "G-OURS, 200 sweeps"
LONG_CHAIN = "G-RFLVM, 4000 sweeps"
IMPUTER = "SRFLVMImputer"  # at its defaults: its tasks have no settings
_PAPERS_MODEL = {"affine": False}  # which the imputer does not have by default
_VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    IN_THE_PLANE: ("G-OURS", {"n_components": 2} | _PAPERS_MODEL),
    SAME_SIZE: ("G-OURS", {"n_frequencies": 50}),
    MANY_SWEEPS: ("G-OURS", {"max_iter": 200}),
    LONG_CHAIN: ("G-RFLVM", {"n_burn": 2000, "n_samples": 2000}),
}
TABLE4_SYSTEMS = ("VAE", "BGPLVM", "G-RFLVM", IN_THE_PLANE, "G-OURS", *IMPUTERS)
MANIFOLD_SYSTEMS = {
    "gaussian": ("BGPLVM", "GPLVM-SVI", "G-RFLVM", "G-OURS", MANY_SWEEPS),
    "negative_binomial": ("N-GPLVM-SVI", "N-RFLVM", "N-OURS"),
    "bernoulli": ("B-GPLVM-SVI", "B-RFLVM", "B-OURS"),
}
MOST_CURVES = 3  # seeds of the S-curve: of another seed it is another curve
TIMED_SYSTEMS = ("G-RFLVM", "G-OURS")
TIMED_ROWS, TIMED_COLUMNS = (125, 250, 500, 1000), (25, 50, 100, 200)
ROUTES = {
    "gaussian": ("auto", "gradient"),
    "bernoulli": ("sites", "polya_gamma", "polya_gamma_sampled", "gradient"),
}

# Settings that keep a fit of a table within minutes. Chains for counts and binary data sample a variable for
# every entry in every sweep, GPy computes a covariance for every column with missing entries, and an epoch of
# all images has hundreds of steps.
_LIMITED_CHAIN = {"max_seconds": 180.0}
_TABLE_SETTINGS: dict[str, dict[str, dict[str, Any]]] = {
    "embedding": {"N-RFLVM": _LIMITED_CHAIN, "B-RFLVM": _LIMITED_CHAIN},
    "neighbours": {
        **{name: {"n_epochs": 20} for name in ("VAE", "NBVAE", "CVQ-VAE")},
        "BGPLVM": {"max_iter": 50},
    },
    "imputation": {
        "G-OURS": _PAPERS_MODEL,
        "G-RFLVM": {"max_seconds": 40.0},
        "BGPLVM": {"n_inducing": 20, "max_iter": 20},
    },
}

# Part of the key of a task, as a store may hold scores of other versions. Raise the number when the measure
# or the defaults of a system change: our fits by sites once had other defaults, chains were scored at the
# mean of their draws only, and chains for counts did not move dispersions with biases.
_MEANING, _MEANING_BY_SITES, _MEANING_OF_CHAINS, _MEANING_OF_COUNT_CHAINS = 4, 5, 6, 7

# Fewer steps, so that a quick run of everything takes minutes.
_FEW_SWEEPS = {"max_iter": 8, "n_components": 2}
_SHORT_CHAIN = {"n_frequencies": 10, "n_burn": 20, "n_samples": 20}
_FEW_EPOCHS = {"n_epochs": 30}
_QUICK_SETTINGS: dict[str, dict[str, Any]] = {
    **dict.fromkeys(("G-OURS", "N-OURS", "B-OURS"), _FEW_SWEEPS),
    **dict.fromkeys(("G-RFLVM", "N-RFLVM", "B-RFLVM", "P-RFLVM", "M-RFLVM"), _SHORT_CHAIN),
    **dict.fromkeys(("VAE", "NBVAE", "CVQ-VAE", "DCA"), _FEW_EPOCHS),
    **{name: _FEW_EPOCHS | {"n_inducing": 10} for name in ("GPLVM-SVI", "N-GPLVM-SVI", "B-GPLVM-SVI")},
    "GPLVM": {"max_iter": 30},
    "BGPLVM": {"max_iter": 30, "n_inducing": 15},
    "t-SNE": {"max_iter": 300},
}


# Systems by the paths that earlier versions wrote, and where they are now.
_EARLIER_PATH, _CURRENT_PATH = '"path": "srflvm.baselines.', '"path": "srflvm_bench.baselines.'


def current_key(key: str) -> str:
    """Return the key that a task has now, given the key under which any version has stored it."""
    return key.replace(_EARLIER_PATH, _CURRENT_PATH)


@dataclass(frozen=True)
class Task:
    """One fit. `kind` names its measure: "embedding", "neighbours", "imputation" or "manifold"."""

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
        """Text that identifies a measurement. The folder of the data files is no part of it."""
        own = {name: value for name, value in asdict(self).items() if name != "folder"}
        return json.dumps({**own, "meaning": self._meaning}, sort_keys=True)

    @property
    def _meaning(self) -> int:
        if self._is_ours_by_sites:
            return _MEANING_BY_SITES
        if self.path != SYSTEMS["G-RFLVM"].path or self.kind == "imputation":
            return _MEANING
        is_for_counts = self.settings.get("likelihood") == "negative_binomial"
        return _MEANING_OF_COUNT_CHAINS if is_for_counts else _MEANING_OF_CHAINS

    @property
    def _is_ours_by_sites(self) -> bool:
        plain = {"likelihood": "gaussian", "inference": "auto"}
        is_plain = all(self.settings.get(name, usual) == usual for name, usual in plain.items())
        return self.path == SYSTEMS["G-OURS"].path and not is_plain


def task(
    kind: str,
    data: str,
    system: str,
    *,
    quick: bool = False,
    settings: Mapping[str, Any] = MappingProxyType({}),
    **rest: Any,
) -> Task:
    """Return a fit of a system of `srflvm_bench.baselines`, with settings beyond its own."""
    if system in IMPUTERS:
        return Task(kind, data, system, quick=quick, **rest)
    if system == IMPUTER:
        return Task(kind, data, system, quick=quick, path=SYSTEMS["G-OURS"].path, **rest)
    base, varied = _VARIANTS.get(system, (system, {}))
    own, few = SYSTEMS[base], _QUICK_SETTINGS.get(base, {}) if quick else {}
    settings = {**own.settings, **varied, **settings, **few}
    return Task(kind, data, system, quick=quick, path=own.path, suits=own.suits, settings=settings, **rest)


def plan(
    experiment: str, *, seeds: int, quick: bool = False, only: Iterable[str] = (), folder: str | None = None
) -> list[Task]:
    """Return all fits of an experiment. `only` names systems or data sets, or both."""
    if experiment == "manifold":
        tasks = _manifold_plan(quick, 1 if quick else min(seeds, MOST_CURVES))
    elif experiment == "weights":
        tasks = _weights_plan(quick)
    else:
        tasks = _table_plan(experiment, seeds, quick, folder)
    data = tuple(dict.fromkeys(task.data for task in tasks))
    systems = tuple(dict.fromkeys(task.system for task in tasks))
    only = tuple(only)
    chosen_data, chosen_systems = _choose(only, data, systems)
    chosen = [task for task in tasks if task.data in chosen_data and task.system in chosen_systems]
    if not chosen:
        raise ValueError(f"{experiment} has no fit of {' and '.join(only)}: name other systems or data.")
    return chosen


def _table_plan(experiment: str, seeds: int, quick: bool, folder: str | None) -> list[Task]:
    """Plan a table: every system on every data set."""
    kind, data, systems, shares = {
        "table2": ("embedding", TABLE1_DATA, (*TABLE1_SYSTEMS, SAME_SIZE, LONG_CHAIN), (0.0,)),
        "table3": ("neighbours", TABLE3_DATA, TABLE3_SYSTEMS, (0.0,)),
        "table4": ("imputation", TABLE4_DATA, TABLE4_SYSTEMS, SHARES),
        "reconstructions": ("imputation", RECONSTRUCTED_DATA, ("G-OURS",), (RECONSTRUCTED_SHARE,)),
    }.get(experiment, ("embedding", TABLE1_DATA, TABLE1_SYSTEMS, (0.0,)))
    if quick:
        data, seeds = QUICK_DATA, 1
    return [
        task(
            kind,
            name,
            system,
            quick=quick,
            settings=_TABLE_SETTINGS[kind].get(system, {}),
            seed=seed,
            share=share,
            folder=folder,
        )
        for name in data
        for system in systems
        for share in shares
        if not (system in IMPUTERS and share == 0.0)
        and not (system in (SAME_SIZE, LONG_CHAIN) and name not in ("mnist", *QUICK_DATA))
        for seed in range(seeds if kind == "embedding" else 1)
    ]


def curve(likelihood: str, n_rows: int, n_columns: int) -> str:
    """Return the name of an S-curve as a data set."""
    return f"s-curve {likelihood} {n_rows}x{n_columns}"


def _manifold_plan(quick: bool, seeds: int) -> list[Task]:
    """Plan all systems of every likelihood at one size, and some of them at other sizes for their seconds."""
    default = (60, 12) if quick else (500, 100)
    tasks = [
        task("manifold", curve(likelihood, *default), system, quick=quick, seed=seed)
        for likelihood, systems in MANIFOLD_SYSTEMS.items()
        for system in systems
        for seed in range(seeds)
    ]
    rows, columns = ((30,), (6,)) if quick else (TIMED_ROWS, TIMED_COLUMNS)
    sizes = [*((n, default[1]) for n in rows), *((default[0], m) for m in columns)]
    return tasks + [
        task("manifold", curve("gaussian", *size), system, quick=quick)
        for system in TIMED_SYSTEMS
        for size in sizes
        if size != default
    ]


def _weights_plan(quick: bool) -> list[Task]:
    """Plan our system with every treatment of the weights, on the default S-curve."""
    size = (60, 12) if quick else (500, 100)
    ours = {"gaussian": "G-OURS", "bernoulli": "B-OURS"}
    return [
        task(
            "manifold",
            curve(likelihood, *size),
            ours[likelihood],
            quick=quick,
            settings={"inference": route},
        )
        for likelihood, routes in ROUTES.items()
        for route in routes
    ]


def _choose(
    only: tuple[str, ...], data: tuple[str, ...], systems: tuple[str, ...]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the data and the systems that `only` names, all of a kind of which it names none."""
    unknown = [name for name in only if name not in (*data, *systems)]
    if unknown:
        raise ValueError(
            f"{unknown[0]!r} is neither data ({'; '.join(data)}) nor system ({'; '.join(systems)})."
        )
    return (
        tuple(name for name in data if name in only) or data,
        tuple(name for name in systems if name in only) or systems,
    )
