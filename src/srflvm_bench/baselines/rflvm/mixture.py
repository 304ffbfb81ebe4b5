"""Moves of the Dirichlet-process mixture over frequencies, with a normal-inverse-Wishart base.

    alpha ~ Gamma(a, b),   z ~ CRP(alpha),   w_l | z_l = k ~ N(mu_k, Sigma_k),
    Sigma_k ~ IW(nu, s I),   mu_k | Sigma_k ~ N(0, Sigma_k / kappa).

There are as many slots for clusters as frequencies, so that the number of clusters is not truncated. Given
its n frequencies a cluster's posterior is normal-inverse-Wishart again; with kappa_n = kappa + n and
nu_n = nu + n it is kept as its mean m, the inverse of its scale matrix Psi, and log|Psi|. Adding (s = 1) or
taking away (s = -1) a frequency w, d = w - m, is a change of rank one:

    Psi <- Psi + s kappa_n / (kappa_n + s) d d',   m <- m + s d / (kappa_n + s).
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.scipy.special import gammaln

from srflvm_bench.baselines.rflvm.gammas import draw_gamma


class Base(NamedTuple):
    """Parameters kappa, nu and s of the base measure, and shape and rate of the prior of alpha."""

    kappa: float
    nu: float
    scale: float
    shape: float
    rate: float


class Clusters(NamedTuple):
    """Sizes (K,), and given the members m (K, Q), the inverse of Psi (K, Q, Q) and log|Psi| (K,)."""

    size: Array
    mean: Array
    precision: Array
    log_determinant: Array


class Components(NamedTuple):
    """Means mu_k (K, Q) and roots S_k (K, Q, Q) with S_k S_k' = Sigma_k."""

    mean: Array
    root: Array


def empty_clusters(n_slots: int, n_components: int, base: Base) -> Clusters:
    """Return clusters without members."""
    precision = jnp.broadcast_to(jnp.eye(n_components) / base.scale, (n_slots, n_components, n_components))
    log_determinant = jnp.full(n_slots, n_components * jnp.log(base.scale))
    return Clusters(jnp.zeros(n_slots), jnp.zeros((n_slots, n_components)), precision, log_determinant)


def change_member(clusters: Clusters, slot: Array, frequency: Array, sign: float, base: Base) -> Clusters:
    """Add a frequency to a slot (sign 1), or take it out (sign -1), by the Sherman-Morrison formula.

    The formulas are in the docstring of the module.
    """
    kappa = base.kappa + clusters.size
    d, direction, form = _offsets(clusters, frequency)
    factor = sign * kappa / (kappa + sign)
    shrink = (factor / (1.0 + factor * form))[:, None, None]
    new = Clusters(
        clusters.size + sign,
        clusters.mean + sign * d / (kappa + sign)[:, None],
        clusters.precision - shrink * direction[:, :, None] * direction[:, None, :],
        clusters.log_determinant + jnp.log1p(factor * form),
    )
    is_slot = jnp.arange(len(clusters.size)) == slot
    return jax.tree.map(
        lambda after, before: jnp.where(jnp.expand_dims(is_slot, range(1, before.ndim)), after, before),
        new,
        clusters,
    )


def _offsets(clusters: Clusters, frequency: Array) -> tuple[Array, Array, Array]:
    """Compute d, Psi^-1 d and d'Psi^-1 d for every cluster."""
    d = frequency - clusters.mean
    direction = jnp.einsum("kij,kj->ki", clusters.precision, d)
    return d, direction, jnp.sum(d * direction, axis=1)


def log_predictive(clusters: Clusters, frequency: Array, base: Base) -> Array:
    """Compute log p(w | members of cluster k) for all k.

    It is a Student t density: with c = kappa_n / (kappa_n + 1),

    pi^(-Q/2) Gamma((nu_n + 1) / 2) / Gamma((nu_n + 1 - Q) / 2) c^(Q/2) |Psi|^(-1/2)
    (1 + c d'Psi^-1 d)^(-(nu_n + 1) / 2).
    """
    n_components = len(frequency)
    kappa, half = base.kappa + clusters.size, 0.5 * (base.nu + clusters.size + 1.0)
    c = kappa / (kappa + 1.0)
    form = _offsets(clusters, frequency)[2]
    constant = gammaln(half) - gammaln(half - 0.5 * n_components) + 0.5 * n_components * jnp.log(c / jnp.pi)
    return constant - 0.5 * clusters.log_determinant - half * jnp.log1p(c * form)


def gather(frequencies: Array, assignments: Array, base: Base) -> tuple[Clusters, Array]:
    """Gather the clusters of all frequencies, and log p(W | z) as the sum of their predictive densities."""

    def add(carry, member):
        clusters, total = carry
        frequency, slot = member
        total += log_predictive(clusters, frequency, base)[slot]
        return (change_member(clusters, slot, frequency, 1.0, base), total), None

    n_slots, n_components = frequencies.shape
    start = empty_clusters(n_slots, n_components, base), jnp.array(0.0, frequencies.dtype)
    return jax.lax.scan(add, start, (frequencies, assignments))[0]


def update_assignments(
    key: Array, frequencies: Array, assignments: Array, concentration: Array, base: Base
) -> tuple[Array, Clusters]:
    """Take Gibbs steps of z_1, z_2, ... with mu and Sigma integrated out (Neal, 2000, algorithm 3).

    p(z_l = k | rest) is proportional to n_k p(w_l | others in k), and alpha p(w_l) for a new cluster, which
    takes the first empty slot.
    """

    def step(carry, member):
        clusters, assignments = carry
        key, index = member
        frequency = frequencies[index]
        clusters = change_member(clusters, assignments[index], frequency, -1.0, base)
        is_used = clusters.size > 0.5
        is_first_empty = jnp.arange(len(is_used)) == jnp.argmin(is_used)
        prior = jnp.where(is_used, clusters.size, jnp.where(is_first_empty, concentration, 0.0))
        logits = jnp.log(prior) + log_predictive(clusters, frequency, base)
        slot = jax.random.categorical(key, logits).astype(assignments.dtype)
        return (change_member(clusters, slot, frequency, 1.0, base), assignments.at[index].set(slot)), None

    clusters, _ = gather(frequencies, assignments, base)
    n_frequencies = len(frequencies)
    steps = jax.random.split(key, n_frequencies), jnp.arange(n_frequencies)
    (clusters, assignments), _ = jax.lax.scan(step, (clusters, assignments), steps)
    return assignments, clusters


def draw_components(key: Array, clusters: Clusters, base: Base) -> Components:
    """Draw mu and Sigma of every slot given its members, and those of empty slots from the base.

    Sigma^-1 is Wishart with nu_n degrees of freedom and scale C C' = Psi^-1: by Bartlett it is R R', R = C A,
    with A lower triangular, standard normal below the diagonal and A_ii^2 chi-squared with nu_n - i degrees
    (i = 0, 1, ...). So S = R^-T, and mu = m + S e / sqrt(kappa_n).
    """
    n_components = clusters.mean.shape[1]
    normal_key, gamma_key, mean_key = jax.random.split(key, 3)
    degrees = base.nu + clusters.size[:, None] - jnp.arange(n_components)
    diagonal = jnp.sqrt(2.0 * draw_gamma(gamma_key, 0.5 * degrees))
    below = jnp.tril(jax.random.normal(normal_key, clusters.precision.shape), -1)
    bartlett = below + diagonal[:, :, None] * jnp.eye(n_components)
    factor = jnp.linalg.cholesky(clusters.precision) @ bartlett
    identity = jnp.broadcast_to(jnp.eye(n_components), factor.shape)
    root = jax.lax.linalg.triangular_solve(factor, identity, left_side=True, lower=True, transpose_a=True)
    noise = jax.random.normal(mean_key, clusters.mean.shape)
    spread = jnp.einsum("kij,kj->ki", root, noise) / jnp.sqrt(base.kappa + clusters.size)[:, None]
    return Components(clusters.mean + spread, root)


def update_concentration(
    key: Array, concentration: Array, n_clusters: Array, n_frequencies: int, base: Base
) -> Array:
    """Take a Gibbs step of alpha (Escobar and West, 1995).

    Given x ~ Beta(alpha + 1, n) and k clusters, alpha is Gamma(a + k, b - log x) with odds
    (a + k - 1) / (n (b - log x)), and Gamma(a + k - 1, b - log x) otherwise.
    """
    beta_key, choice_key, gamma_key = jax.random.split(key, 3)
    parts = draw_gamma(
        beta_key, jnp.stack([concentration + 1.0, jnp.full_like(concentration, n_frequencies)])
    )
    rate = base.rate + jnp.log1p(parts[1] / parts[0])
    shape = base.shape + n_clusters - 1.0
    odds = shape / (n_frequencies * rate)
    is_larger = jax.random.uniform(choice_key) * (1.0 + odds) < odds
    return draw_gamma(gamma_key, shape + is_larger) / rate


def log_partition(count: Array, concentration: Array, base: Base) -> Array:
    """Compute log p(z | alpha) + log p(alpha) up to a constant.

    Every cluster contributes alpha Gamma(n_k), and all of them Gamma(alpha) / Gamma(alpha + n).
    """
    tables = jnp.where(count > 0.5, jnp.log(concentration) + gammaln(jnp.maximum(count, 1.0)), 0.0)
    shared = gammaln(concentration) - gammaln(concentration + jnp.sum(count))
    prior = (base.shape - 1.0) * jnp.log(concentration) - base.rate * concentration
    return jnp.sum(tables) + shared + prior
