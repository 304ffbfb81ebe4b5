"""Decoder of a page: the posterior as blocks of numbers from which the browser decodes a latent point.

At a point z with features phi (waves, the scaled z of an affine part, a constant of one), the function of
channel c has mean level_c + phi'w_c and variance phi'V_c phi; Gaussian data share one V. A variance is an
inner product of the channel's coefficients with products of the features (see `weight_covariances`). The page
shows it as a share of the prior's: `relative_variance_form` takes phi'phi to be 2, as it is without an affine
part, and the page divides by phi'phi / 2.

A *link* describes `Likelihood.moments`, the mean and variance of y given f, with everything learned put into
plain numbers. The browser averages it over f with the nodes that Python uses.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from srflvm._typing import FloatArray
from srflvm.data.encoding import Group
from srflvm.explore.packing import base64_length, pack_array
from srflvm.likelihoods import counts, gaussian, ordinal, student_t, trials
from srflvm.likelihoods.base import HERMITE_NODES, HERMITE_WEIGHTS, Likelihood, Units
from srflvm.likelihoods.transforms import PART_NODES, PART_WEIGHTS
from srflvm.numerics.jit import in_float64
from srflvm.numerics.weight_covariances import WeightCovariances
from srflvm.posterior.base import Posterior

_Learned = dict[str, Any]
_Link = tuple[str, dict[str, FloatArray]]

# Rounding the covariances must not move the variance of a function by more than this.
_LARGEST_VARIANCE_ERROR = 5e-5
_CHECKED_CHANNELS = 32
_CHECKED_ROWS = 64

# Names of parts of a channel, and punctuation.
_TEXT_OF_A_CHANNEL = 80


@dataclass(frozen=True)
class Decoder:
    """Posterior, the covariances of its weights, of each channel or one for all, and their type."""

    posterior: Posterior
    covariances: WeightCovariances
    kind: str

    @classmethod
    def of(cls, posterior: Posterior, latents: FloatArray) -> Decoder:
        """Choose the type of the covariances: integers where that is harmless at the latents given."""
        covariances = posterior.covariances
        rounded = not posterior.shares_covariance and _may_be_rounded(
            posterior, covariances, latents[:_CHECKED_ROWS]
        )
        return cls(posterior, covariances, "int16" if rounded else "float32")

    @property
    def channel_bytes(self) -> int:
        """Return the length of a channel in a page."""
        n_features, n_own = len(self.posterior.function.weights), self.covariances.coefficients.shape[1]
        own = 0 if self.posterior.shares_covariance else n_own * np.dtype(self.kind).itemsize
        return base64_length(4 * n_features) + base64_length(own) + _TEXT_OF_A_CHANNEL

    @property
    def common_bytes(self) -> int:
        """Return the length of the covariances that belong to no channel alone."""
        n_features, basis = len(self.posterior.function.weights), self.covariances.basis
        n_pairs = n_features * (n_features + 1) // 2
        shared = n_pairs if self.posterior.shares_covariance else 0 if basis is None else basis.size
        return base64_length(4 * n_pairs) + base64_length(4 * shared)

    @property
    def separable(self) -> np.ndarray:
        """Return which columns (M,) are a channel of their own, so that one can be left out by itself."""
        alone = np.zeros(self.posterior.layout.n_columns, bool)
        for group in self.posterior.layout.groups:
            alone[group.columns] = group.likelihood.columns_are_channels
        return alone

    def payload(self, kept: np.ndarray) -> dict[str, Any]:
        """Return the blocks for the columns where `kept` (M,) is true, and the columns without a decoder."""
        groups, channels, unsupported = [], [], []
        function = self.posterior.function
        for group, learned in zip(self.posterior.layout.groups, function.parameters, strict=True):
            link = _link(group, learned)
            if link is None:
                unsupported.append({"likelihood": group.likelihood.name, "columns": group.columns.tolist()})
                continue
            picked = _picked(group, kept)
            start = sum(map(len, channels))
            channels.append(np.arange(group.channels.start, group.channels.stop)[picked])
            groups.append(_group_block(group, link, picked, start, kept))
        every = np.concatenate(channels) if channels else np.zeros(0, int)
        return {
            "frequencies": pack_array(function.frequencies, "float32"),
            "affine": pack_array(function.affine, "float64"),
            "weights": pack_array(np.asarray(function.weights).T[every], "float32"),
            "level": pack_array(np.asarray(function.level)[every], "float64"),
            "nodes": pack_array(HERMITE_NODES, "float64"),
            "node_weights": pack_array(HERMITE_WEIGHTS, "float64"),
            "part_nodes": pack_array(PART_NODES, "float64"),
            "part_weights": pack_array(PART_WEIGHTS, "float64"),
            "covariances": self._covariance_block(every),
            "uncertainty": pack_array(self.posterior.relative_variance_form(), "float32"),
            "groups": groups,
            "unsupported": unsupported,
        }

    def _covariance_block(self, channels: np.ndarray) -> dict[str, Any]:
        shared, basis = self.posterior.shares_covariance, self.covariances.basis
        values = (self.covariances if shared else self.covariances.take(channels)).coefficients
        block = {"shared": shared, "basis": None if basis is None else pack_array(basis, "float32")}
        if self.kind == "float32":
            return block | {"values": pack_array(values, "float32"), "steps": None}
        steps = _steps(values)
        rounded = np.round(values / steps[:, None])
        return block | {"values": pack_array(rounded, "int16"), "steps": pack_array(steps, "float64")}


def _may_be_rounded(posterior: Posterior, covariances: WeightCovariances, latents: FloatArray) -> bool:
    """Return whether rounding the largest covariances moves the variance of f little.

    It is compared at the latents, and twice as far out, where the features of an affine part are larger.
    """
    largest = np.max(np.abs(covariances.coefficients), axis=1)
    worst = covariances.coefficients[np.argsort(largest)[-_CHECKED_CHANNELS:]]
    step = _steps(worst)[:, None]
    error = step * np.round(worst / step) - worst
    features = posterior.function.features(np.concatenate([latents, 2.0 * latents]))
    moved = covariances.products(features) @ error.T
    return bool(np.max(np.abs(moved)) <= _LARGEST_VARIANCE_ERROR)


def _steps(coefficients: FloatArray) -> FloatArray:
    largest = np.max(np.abs(coefficients), axis=1).astype(np.float64)
    return np.where(largest > 0.0, largest, 1.0) / 32767.0


def _picked(group: Group, kept: np.ndarray) -> np.ndarray:
    """Return which channels of a group are shipped."""
    n_channels = group.channels.stop - group.channels.start
    return kept[group.columns] if group.likelihood.columns_are_channels else np.ones(n_channels, bool)


def _group_block(
    group: Group, link: _Link, picked: np.ndarray, start: int, kept: np.ndarray
) -> dict[str, Any]:
    kind, parameters = link
    alone = group.likelihood.columns_are_channels
    inside = kept[group.columns] if alone else np.ones(len(group.columns), bool)
    shipped = {name: pack_array(values[..., picked], "float64") for name, values in parameters.items()}
    sizes = getattr(group.likelihood, "n_categories", None)
    order = getattr(group.likelihood, "stick_order", None)
    return {
        "kind": kind,
        "likelihood": group.likelihood.name,
        "columns": group.columns[inside].tolist(),
        "start": start,
        "channels": int(picked.sum()),
        "location": pack_array(group.units.location[inside], "float64"),
        "scale": pack_array(group.units.scale[inside], "float64"),
        "parameters": shipped,
        "sizes": None if sizes is None else [n - 1 for n in sizes],
        "order": None if order is None else list(order),
    }


def _link(group: Group, learned: _Learned) -> _Link | None:
    """Return the link of a group and its numbers for each channel (..., c), or None if the page has none."""
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


def _identity(likelihood: Any, learned: _Learned, n_channels: int) -> _Link:
    return "identity", {"noise": _noise(likelihood, learned, n_channels)}


def _gaussian(likelihood: gaussian.Gaussian, learned: _Learned, n_channels: int) -> _Link:
    noise = {"noise": _noise(likelihood.straight, learned, n_channels)}
    curves = likelihood.known_curves
    return ("identity", noise) if curves is None else ("transformed", noise | asdict(curves))


def _noise(likelihood: Any, learned: _Learned, n_channels: int) -> Any:
    constants = likelihood.channels(np.zeros((1, n_channels)))[1]
    known = {name: values[0] for name, values in constants.items()}
    return likelihood.moments(np.zeros(n_channels), {**known, **learned}).variance


def _logistic(likelihood: Any, learned: _Learned, n_channels: int) -> _Link:
    constants = likelihood.channels(np.zeros((1, n_channels)))[1]
    return "logistic", {"trials": constants.get("n_trials", np.ones((1, 1)))[0]}


def _log(likelihood: Any, learned: _Learned, n_channels: int) -> _Link:
    if not learned:
        return "log", {"excess": np.zeros(1)}
    units = Units(np.zeros(n_channels), np.ones(n_channels))
    return "log", {"excess": 1.0 / likelihood.natural_parameters(learned, units)["dispersion"]}


def _ordinal(likelihood: Any, learned: _Learned, n_channels: int) -> _Link:
    thresholds = np.stack([np.asarray(t) for t in likelihood.thresholds(learned)])
    return "ordinal", {"thresholds": thresholds, "levels": likelihood.level_values(n_channels)}


def _categorical(likelihood: Any, learned: _Learned, n_channels: int) -> _Link:
    return "categorical", {"trials": np.ones(1)}


def _shares(likelihood: Any, learned: _Learned, n_channels: int) -> _Link:
    return "shares", {}


_LINKS: dict[type[Likelihood], Callable[[Any, _Learned, int], _Link]] = {
    gaussian.Gaussian: _gaussian,
    student_t.StudentT: _identity,
    trials.Bernoulli: _logistic,
    trials.Binomial: _logistic,
    counts.Poisson: _log,
    counts.NegativeBinomial: _log,
    ordinal.Ordinal: _ordinal,
    trials.Categorical: _categorical,
    trials.Multinomial: _shares,
}
