"""Dirichlet-process Gaussian mixture fitted with `srflvm.bcd`, next to that of scikit-learn.

The model, for points x_n in D dimensions and at most K clusters:

    v_k ~ Beta(1, concentration) for k < K, v_K = 1,     pi_k = v_k prod_{j<k} (1 - v_j),
    precision_k ~ Wishart(W, nu),    mean_k | precision_k ~ N(m, (beta precision_k)^-1),
    z_n ~ pi,                        x_n | z_n = k ~ N(mean_k, precision_k^-1).

The posterior is approximated by q(z) q(v) prod_k q(mean_k, precision_k). Each factor is conjugate given
the others, so each is a `ClosedFormBlock`, and the model is three small functions and its bound. To use
`srflvm.bcd` for a model of your own, write

1. the variational parameters as a dictionary, the *state* (here `initial_state`);
2. for each block a function `(key, state, data) -> the entries it replaces`;
3. the evidence lower bound `(key, state, data) -> scalar`;

and hand them to `begin` and `advance`. They are called as they are, so `jax.jit` makes them fast. `key` is
for models that sample; nothing is random here.

`sklearn.mixture.BayesianGaussianMixture` fits the same model, with one difference: it keeps a Beta factor
for the last stick also, so that its expected log weights leave some mass to clusters beyond the K-th, while
here v_K = 1 and the weights sum to one. When the last cluster is not needed the two agree closely.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.special import betaln, digamma, entr, multigammaln
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import adjusted_rand_score
from sklearn.mixture import BayesianGaussianMixture

from srflvm.bcd import ClosedFormBlock, Model, Run, Schedule, State, advance, begin
from srflvm.model.spectral import Concentration, Sticks


class NormalWishart(NamedTuple):
    """Prior of a cluster, or K factors of q with a leading axis; `inverse_scale` is W^-1."""

    mean: Array
    mean_precision: Array
    degrees_of_freedom: Array
    inverse_scale: Array


class Data(NamedTuple):
    """Data of a fit: the points (N, D) and the priors."""

    points: Array
    prior: NormalWishart
    concentration: Array


@jax.jit
def update_responsibilities(key: Array, state: State, data: Data) -> State:
    """Set q(z_n = k) proportional to exp(E log pi_k + E log p(x_n | z_n = k))."""
    log_weights = state["sticks"].expected_log_weights()
    logits = log_weights + expected_log_likelihood(data.points, state["components"])
    return {"responsibilities": jax.nn.softmax(logits, axis=1)}


@jax.jit
def update_sticks(key: Array, state: State, data: Data) -> State:
    """Set q(v_k) = Beta(1 + the points in cluster k, concentration + the points in later clusters)."""
    fixed = Concentration(data.concentration, jnp.ones_like(data.concentration))
    return {"sticks": Sticks.best(state["responsibilities"], fixed)}


@jax.jit
def update_components(key: Array, state: State, data: Data) -> State:
    """Return the posterior of each cluster given its (soft) share of the points."""
    points, prior, shares = data.points, data.prior, state["responsibilities"]
    counts = jnp.sum(shares, axis=0)
    mean_precision = prior.mean_precision + counts
    mean = (prior.mean_precision * prior.mean + shares.T @ points) / mean_precision[:, None]
    centred, shift = points[:, None] - mean, mean - prior.mean
    scatter = jnp.einsum("nk,nkd,nke->kde", shares, centred, centred)
    pull = prior.mean_precision * jnp.einsum("kd,ke->kde", shift, shift)
    freedom, inverse_scale = prior.degrees_of_freedom + counts, prior.inverse_scale + scatter + pull
    return {"components": NormalWishart(mean, mean_precision, freedom, inverse_scale)}


@jax.jit
def elbo(key: Array, state: State, data: Data) -> Array:
    """Return the exact evidence lower bound, constants and all."""
    shares, sticks, components = state["responsibilities"], state["sticks"], state["components"]
    log_joint = sticks.expected_log_weights() + expected_log_likelihood(data.points, components)
    fit = jnp.sum(shares * log_joint + entr(shares))
    prior_sticks = Sticks(jnp.ones_like(sticks.a), data.concentration)
    sticks_kl = _expected_log_beta(sticks, sticks) - _expected_log_beta(sticks, prior_sticks)
    components_kl = _expected_log_density(components, components) - _expected_log_density(
        components, data.prior
    )
    return fit - jnp.sum(sticks_kl) - jnp.sum(components_kl)


def expected_log_likelihood(points: Array, components: NormalWishart) -> Array:
    """Return E log N(x_n | mean_k, precision_k^-1), (N, K)."""
    log_det = _expected_log_det(components) - points.shape[1] * jnp.log(2.0 * jnp.pi)
    return 0.5 * (log_det - _expected_distance(points[:, None], components))


def _expected_distance(points: Array, components: NormalWishart) -> Array:
    """Return E[(x - mean_k)' precision_k (x - mean_k)] = nu_k (x - m_k)' W_k (x - m_k) + D / beta_k."""
    difference = points - components.mean
    scale = jnp.linalg.inv(components.inverse_scale)
    distance = jnp.einsum("...kd,kde,...ke->...k", difference, scale, difference)
    return components.degrees_of_freedom * distance + points.shape[-1] / components.mean_precision


def _expected_log_det(components: NormalWishart) -> Array:
    """Return E log|precision_k|."""
    size = components.mean.shape[-1]
    halves = 0.5 * (components.degrees_of_freedom[:, None] - jnp.arange(size))
    return jnp.sum(digamma(halves), axis=1) + size * jnp.log(2.0) - _log_det(components.inverse_scale)


def _expected_log_beta(sticks: Sticks, density: Sticks) -> Array:
    """Return E log Beta(v_k; density) under q(v_k)."""
    log_v, log_rest = sticks.expected_logs()
    return (density.a - 1.0) * log_v + (density.b - 1.0) * log_rest - betaln(density.a, density.b)


def _expected_log_density(components: NormalWishart, density: NormalWishart) -> Array:
    """Return E log NormalWishart(mean_k, precision_k; density) under q(mean_k, precision_k)."""
    size, freedom = density.mean.shape[-1], density.degrees_of_freedom
    log_det = _expected_log_det(components)
    distance = density.mean_precision * _expected_distance(density.mean, components)
    gaussian = 0.5 * (size * jnp.log(density.mean_precision / (2.0 * jnp.pi)) + log_det - distance)
    overlap = jnp.linalg.solve(components.inverse_scale, density.inverse_scale)
    trace = components.degrees_of_freedom * jnp.trace(overlap, axis1=-2, axis2=-1)
    volume = freedom * (size * jnp.log(2.0) - _log_det(density.inverse_scale))
    wishart = 0.5 * ((freedom - size - 1.0) * log_det - trace - volume) - multigammaln(0.5 * freedom, size)
    return gaussian + wishart


def _log_det(matrix: Array) -> Array:
    return jnp.linalg.slogdet(matrix)[1]


MIXTURE = Model(
    blocks=(
        ClosedFormBlock("responsibilities", update_responsibilities),
        ClosedFormBlock("sticks", update_sticks),
        ClosedFormBlock("components", update_components),
    ),
    elbo=elbo,
)


@jax.jit
def initial_state(responsibilities: Array, data: Data) -> State:
    """Return the state whose other factors follow from the responsibilities."""
    state, key = {"responsibilities": responsibilities}, jax.random.key(0)
    return state | update_sticks(key, state, data) | update_components(key, state, data)


def fit(responsibilities: Array, data: Data, n_sweeps: int) -> Run:
    """Make `n_sweeps` passes over the blocks; the bound after each is in `Run.history`."""
    run = begin(MIXTURE, initial_state(responsibilities, data))
    schedule = Schedule(learning_rate=1.0, n_sweeps=n_sweeps)  # for gradient blocks; there are none
    return advance(MIXTURE, run, jax.random.key(0), data, n_sweeps=n_sweeps, schedule=schedule)


def default_data(points: np.ndarray, concentration: float) -> Data:
    """Return the points with the prior that scikit-learn takes by default."""
    size = points.shape[1]
    prior = (points.mean(axis=0), 1.0, size, np.cov(points.T).reshape(size, size))
    prior = NormalWishart(*(jnp.asarray(value, float) for value in prior))
    return Data(jnp.asarray(points), prior, jnp.asarray(concentration))


def scikit_learn_mixture(data: Data, **options) -> BayesianGaussianMixture:
    """Return the same model in scikit-learn."""
    return BayesianGaussianMixture(
        weight_concentration_prior_type="dirichlet_process",
        weight_concentration_prior=float(data.concentration),
        mean_prior=np.asarray(data.prior.mean),
        mean_precision_prior=float(data.prior.mean_precision),
        degrees_of_freedom_prior=float(data.prior.degrees_of_freedom),
        covariance_prior=np.asarray(data.prior.inverse_scale),
        reg_covar=0.0,
        **options,
    )


def bounds_while_fitting(mixture: BayesianGaussianMixture, points: np.ndarray, n_sweeps: int) -> list[float]:
    """Fit a `warm_start` mixture of `max_iter=1` for `n_sweeps`, and return its bound after each."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return [mixture.fit(points).lower_bound_ for _ in range(n_sweeps)]


def k_means_responsibilities(points: np.ndarray, n_components: int, seed: int) -> Array:
    """Return the hard assignments that scikit-learn starts from."""
    labels = KMeans(n_components, random_state=seed).fit_predict(points)
    return jnp.eye(n_components)[labels]


def toy_points(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Draw four Gaussian clusters of different size and shape; also return the cluster of each point."""
    centres = np.array([[0.0, 0.0], [6.0, 1.0], [-1.0, 6.0], [7.0, 7.0]])
    factors = np.array(
        [[[1.5, 0.0], [0.8, 0.4]], [[0.6, 0.0], [0.0, 1.2]], [[0.9, 0.0], [-0.6, 0.5]], np.eye(2)]
    )
    labels = np.repeat(np.arange(4), [160, 120, 80, 40])
    noise = np.random.default_rng(seed).standard_normal((len(labels), 2))
    return centres[labels] + np.einsum("nde,ne->nd", factors[labels], noise), labels


def fit_both(points: np.ndarray, n_components: int, n_sweeps: int, seed: int):
    """Return the run of this module and scikit-learn's mixture with its bounds, from the same start."""
    data = default_data(points, concentration=0.1)
    run = fit(k_means_responsibilities(points, n_components, seed), data, n_sweeps)
    options = {"n_components": n_components, "random_state": seed, "max_iter": 1, "warm_start": True}
    other = scikit_learn_mixture(data, **options)
    return run, other, bounds_while_fitting(other, points, n_sweeps)


def rises(bounds: Sequence[float]) -> bool:
    """Tell whether no bound is below the one before, to rounding."""
    return bool(np.all(np.diff(bounds) >= -1e-9 * np.abs(bounds[-1])))


def main(n_components: int = 10, n_sweeps: int = 200, seed: int = 0) -> None:
    """Fit both and print the results."""
    points, truth = toy_points()
    with jax.enable_x64(True):
        run, other, bounds = fit_both(points, n_components, n_sweeps, seed)
        weights = np.asarray(run.state["sticks"].expected_weights())
    labels = np.argmax(np.asarray(run.state["responsibilities"]), axis=1)
    other_labels = other.predict(points)
    mean_gap = np.abs(np.asarray(run.state["components"].mean) - other.means_).max()
    weight_gap = np.abs(weights - other.weights_).max()
    print(f"bound never falls      srflvm {rises(run.history)}, scikit-learn {rises(bounds)}")
    print(f"final bound            {run.history[-1]:.3f} (scikit-learn, without constants: {bounds[-1]:.3f})")
    print(f"clusters in use        srflvm {len(set(labels))}, scikit-learn {len(set(other_labels))}")
    print(f"adjusted Rand index    to each other {adjusted_rand_score(labels, other_labels):.4f}")
    print(f"                       to the truth  {adjusted_rand_score(labels, truth):.4f}")
    print(f"largest difference     of the means {mean_gap:.1e}, of the weights {weight_gap:.1e}")


if __name__ == "__main__":
    main()
