"""The posterior as a page ships it: what the browser needs to decode a latent point.

At a point z with features phi (a constant feature of one comes last), the function of channel c has mean
level_c + phi'w_c and variance phi'V_c phi; Gaussian data share one V. A *link* is what
`Likelihood.moments` says of y given f, with everything learned put into plain numbers. The browser averages
it over f with the nodes that Python uses.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from srflvm import likelihoods as kinds
from srflvm import pairs
from srflvm._types import FloatArray
from srflvm.computing import in_float64
from srflvm.explore.packing import block, text_bytes
from srflvm.gaussian_posterior import GaussianPosterior
from srflvm.layers import with_constant
from srflvm.likelihoods import Likelihood, Units
from srflvm.likelihoods._base import N_NODES, hermite_nodes
from srflvm.observations import Group
from srflvm.posterior import Posterior
from srflvm.site_posterior import SitePosterior

Learned = dict[str, Any]
Link = tuple[str, dict[str, FloatArray]]

# Rounding the covariances must not move the variance of a function by more than this.
_LARGEST_VARIANCE_ERROR = 5e-5
_CHECKED_CHANNELS = 32
_CHECKED_ROWS = 64


@dataclass(frozen=True)
class Covariances:
    """Packed covariances of the weights (C, P), or (1, P) for all channels, and their type in the page."""

    packed: FloatArray
    kind: str

    @property
    def shared(self) -> bool:
        return len(self.packed) == 1

    @property
    def channel_bytes(self) -> int:
        return 0 if self.shared else self.packed.shape[1] * np.dtype(self.kind).itemsize


def covariances(posterior: Posterior, latents: FloatArray) -> Covariances:
    """Those of a posterior, as integers where that is harmless at the latents given."""
    if isinstance(posterior, GaussianPosterior):
        size = len(posterior.weight_covariance)
        whole = np.zeros((1, size + 1, size + 1))
        whole[0, :size, :size] = posterior.noise * posterior.weight_covariance
        return Covariances(np.asarray(pairs.pack_form(whole)), "float32")  # pyright: ignore
    assert isinstance(posterior, SitePosterior)
    packed = posterior.packed_covariance
    worst = np.argsort(np.max(np.abs(packed), axis=1))[-_CHECKED_CHANNELS:]
    step = _steps(packed[worst])[:, None]
    error = step * np.round(packed[worst] / step) - packed[worst]
    products = pairs.products(with_constant(posterior.features(latents[:_CHECKED_ROWS])))
    harmless = np.max(np.abs(products @ error.T)) <= _LARGEST_VARIANCE_ERROR
    return Covariances(packed, "int16" if harmless else "float32")


def channel_bytes(posterior: Posterior, found: Covariances) -> int:
    """The length of a channel in a page."""
    return text_bytes(4 * (2 * len(posterior.frequencies) + 1)) + text_bytes(found.channel_bytes) + 80


def decoder(posterior: Posterior, found: Covariances, kept: np.ndarray) -> dict[str, Any]:
    """What the page decodes with, for the columns where `kept` (M,) is true."""
    groups, channels, unsupported = [], [], []
    for group, learned in zip(posterior.layout.groups, posterior.frozen.parameters, strict=True):
        link = _link(group, learned)
        if link is None:
            unsupported.append({"likelihood": group.likelihood.name, "columns": group.columns.tolist()})
            continue
        picked = _picked(group, kept)
        start = sum(map(len, channels))
        channels.append(np.arange(group.channels.start, group.channels.stop)[picked])
        groups.append(_group_block(group, link, picked, start, kept))
    every = np.concatenate(channels) if channels else np.zeros(0, int)
    frozen, (nodes, weights) = posterior.frozen, hermite_nodes(N_NODES)
    return {
        "frequencies": block(frozen.frequencies, "float32"),
        "weights": block(np.asarray(frozen.weights).T[every], "float32"),
        "level": block(np.asarray(frozen.level)[every], "float64"),
        "nodes": block(nodes, "float64"),
        "node_weights": block(weights, "float64"),
        "covariances": _covariance_block(found, every),
        "uncertainty": block(_uncertainty(posterior, found), "float32"),
        "groups": groups,
        "unsupported": unsupported,
    }


def can_be_thinned(posterior: Posterior) -> np.ndarray:
    """Which columns (M,) are a channel of their own, so that one can be left out without the others."""
    alone = np.zeros(posterior.layout.n_columns, bool)
    for group in posterior.layout.groups:
        alone[group.columns] = _one_channel_each(group)
    return alone


def _uncertainty(posterior: Posterior, found: Covariances) -> FloatArray:
    """The packed form of the function's variance as a share of its prior variance, a mean over channels."""
    if isinstance(posterior, GaussianPosterior):
        return found.packed[0] * posterior.ratio / posterior.noise
    assert isinstance(posterior, SitePosterior)
    # the prior variance of f is the amplitude times phi'phi: one of the Fourier features, one of the constant
    return (1.0 / (2.0 * posterior.amplitude)) @ posterior.packed_covariance / len(posterior.amplitude)


def _covariance_block(found: Covariances, channels: np.ndarray) -> dict[str, Any]:
    packed = found.packed if found.shared else found.packed[channels]
    if found.kind == "float32":
        return {"shared": found.shared, "values": block(packed, "float32"), "steps": None}
    steps = _steps(packed)
    return {
        "shared": False,
        "values": block(np.round(packed / steps[:, None]), "int16"),
        "steps": block(steps, "float64"),
    }


def _steps(packed: FloatArray) -> FloatArray:
    largest = np.max(np.abs(packed), axis=1).astype(np.float64)
    return np.where(largest > 0.0, largest, 1.0) / 32767.0


def _one_channel_each(group: Group) -> bool:
    return type(group.likelihood) not in (kinds.Categorical, kinds.Multinomial)


def _picked(group: Group, kept: np.ndarray) -> np.ndarray:
    """Which channels of a group are shipped."""
    n_channels = group.channels.stop - group.channels.start
    return kept[group.columns] if _one_channel_each(group) else np.ones(n_channels, bool)


def _group_block(
    group: Group, link: Link, picked: np.ndarray, start: int, kept: np.ndarray
) -> dict[str, Any]:
    kind, parameters = link
    inside = kept[group.columns] if _one_channel_each(group) else np.ones(len(group.columns), bool)
    shipped = {name: block(values[..., picked], "float64") for name, values in parameters.items()}
    sizes = getattr(group.likelihood, "n_categories", None)
    return {
        "kind": kind,
        "likelihood": group.likelihood.name,
        "columns": group.columns[inside].tolist(),
        "start": start,
        "channels": int(picked.sum()),
        "location": block(group.units.location[inside], "float64"),
        "scale": block(group.units.scale[inside], "float64"),
        "parameters": shipped,
        "sizes": None if sizes is None else [n - 1 for n in sizes],
    }


def _link(group: Group, learned: Learned) -> Link | None:
    """The link of a group and its numbers for each channel (..., c), or None if the page has none for it."""
    make = _LINKS.get(type(group.likelihood))
    if make is None:
        return None
    n_channels = group.channels.stop - group.channels.start
    with in_float64():
        kind, parameters = make(group.likelihood, learned, n_channels)
    whole = {name: np.asarray(values, np.float64) for name, values in parameters.items()}
    return kind, {
        name: np.broadcast_to(values, (*values.shape[:-1], n_channels)) for name, values in whole.items()
    }


def _identity(likelihood: Any, learned: Learned, n_channels: int) -> Link:
    return "identity", {"noise": likelihood.moments(np.zeros(n_channels), learned).variance}


def _logistic(likelihood: Any, learned: Learned, n_channels: int) -> Link:
    constants = likelihood.channels(np.zeros((1, n_channels)))[1]
    return "logistic", {"trials": constants.get("n_trials", np.ones((1, 1)))[0]}


def _log(likelihood: Any, learned: Learned, n_channels: int) -> Link:
    if not learned:
        return "log", {"excess": np.zeros(1)}
    units = Units(np.zeros(n_channels), np.ones(n_channels))
    return "log", {"excess": 1.0 / likelihood.natural_parameters(learned, units)["dispersion"]}


def _ordinal(likelihood: Any, learned: Learned, n_channels: int) -> Link:
    thresholds = np.stack([np.asarray(t) for t in likelihood.thresholds(learned)])
    return "ordinal", {"thresholds": thresholds, "levels": likelihood.level_values(n_channels)}


def _categorical(likelihood: Any, learned: Learned, n_channels: int) -> Link:
    return "categorical", {"trials": np.ones(1)}


def _shares(likelihood: Any, learned: Learned, n_channels: int) -> Link:
    return "shares", {}


_LINKS: dict[type[Likelihood], Callable[[Any, Learned, int], Link]] = {
    kinds.Gaussian: _identity,
    kinds.StudentT: _identity,
    kinds.Bernoulli: _logistic,
    kinds.Binomial: _logistic,
    kinds.Poisson: _log,
    kinds.NegativeBinomial: _log,
    kinds.Ordinal: _ordinal,
    kinds.Categorical: _categorical,
    kinds.Multinomial: _shares,
}
