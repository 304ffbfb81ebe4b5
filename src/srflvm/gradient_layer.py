"""The linear layer with weights climbed by gradients: the ablation of the paper.

q(h_m) = N(mean_m, diag(std_m^2)) does not depend on the features, in contrast to `layers.SiteLayer`, where it
is solved for at every draw of them. It is kept to show what the conditional is worth.
"""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax import Array

from srflvm.layers import FeatureLayer, GroupData, GroupPlan, linear_terms, with_constant
from srflvm.sites import Function, better_parameters, with_constants


@dataclass(frozen=True)
class GradientLayer(FeatureLayer):
    """Any likelihoods; all columns are visited at every step."""

    groups: tuple[GroupPlan, ...]

    owns = ("weight_mean", "weight_log_std")
    carries = ("parameters", "log_amplitude")

    def at_features(self, key, features, state, data: tuple[GroupData, ...]):
        features = with_constant(features)
        value, parameters, amplitudes = jnp.zeros(()), [], []
        parts = zip(
            self.groups, data, state["weight_mean"], state["weight_log_std"], state["parameters"], strict=True
        )
        for (group, mine, mean, log_std, learned), log_amplitude in zip(
            parts, state["log_amplitude"], strict=True
        ):
            variance = jnp.exp(2.0 * log_std)
            known = mine.level[:, None] + mine.offset
            f_mean, f_variance = mean @ features.T, variance @ (features**2).T
            here = Function(f_mean, f_variance, known, f_mean)
            terms, better = _group_terms(group, mine, here, learned)
            square = jnp.mean(mean**2 + variance, axis=1, dtype=jnp.float64)
            value += terms - _divergence(square, log_std, log_amplitude)
            parameters.append(better)
            amplitudes.append(jnp.log(jax.lax.stop_gradient(square)))
        return value, {"parameters": tuple(parameters), "log_amplitude": tuple(amplitudes)}


def _group_terms(group: GroupPlan, data: GroupData, here: Function, learned):
    """The expected log likelihood with its gradient in mean and variance of f, and better parameters."""
    held = jax.tree.map(jax.lax.stop_gradient, here)
    parameters = with_constants(learned, data.constants)
    local = group.likelihood.expectations(data.y, held.total, held.variance, parameters)
    value = jnp.sum(jnp.where(data.observed, local.value, 0.0), dtype=jnp.float64)
    surrogate = linear_terms(local, here, data.observed)
    better, _ = better_parameters(group.likelihood, data.y, held, data.observed, learned, data.constants)
    return value + surrogate - jax.lax.stop_gradient(surrogate), better


def _divergence(square: Array, log_std: Array, log_amplitude: Array) -> Array:
    """sum_m KL(q(h_m) || N(0, a_m I)), from the mean of E h^2 over the weights of each column."""
    size = log_std.shape[1]
    log_determinant = 2.0 * jnp.sum(log_std, axis=1, dtype=jnp.float64)
    per_column = size * (square * jnp.exp(-log_amplitude) - 1.0 + log_amplitude) - log_determinant
    return 0.5 * jnp.sum(per_column)
