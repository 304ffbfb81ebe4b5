"""The Dirichlet-process mixture over frequencies and the stationary kernel it defines.

A frequency w_l belongs to one of K Gaussian components, w_l | z_l = k ~ N(mean_k, C_k C_k'), with
stick-breaking weights pi_k = v_k prod_{j<k} (1 - v_j), v_k ~ Beta(1, alpha) for k < K and v_K = 1 (so
that the weights sum to one), and alpha ~ Gamma(shape, rate). Variational factors: q(z_l = k) = phi_lk
(a softmax of free logits), q(v_k) = Beta(a_k, b_k) for k < K, q(alpha) = Gamma(a, b); frequencies follow
their prior given z, so marginally q(w_l) = sum_k phi_lk N(mean_k, C_k C_k').
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.scipy.special import betaln, digamma, gammaln
from jax.scipy.stats import norm

CONCENTRATION_SHAPE = 1.0
CONCENTRATION_RATE = 1.0

# The implicit gradient divides by the density at the draw, tiny between well separated components; this
# floor trades the rare huge gradients there for a small bias.
_SMALLEST_DENSITY = 1e-3


class Mixture(NamedTuple):
    """Component means (K, Q) and lower Cholesky factors of the covariances (K, Q, Q)."""

    means: Array
    choleskys: Array


class Sticks(NamedTuple):
    """q(v_k) = Beta(a_k, b_k), k < K."""

    a: Any
    b: Any


class Concentration(NamedTuple):
    """q(alpha) = Gamma(shape, rate)."""

    shape: Any
    rate: Any


def expected_log_sticks(sticks: Sticks) -> tuple[Array, Array]:
    """E log v_k and E log(1 - v_k), k < K."""
    total = digamma(sticks.a + sticks.b)
    return digamma(sticks.a) - total, digamma(sticks.b) - total


def expected_log_weights(sticks: Sticks) -> Array:
    """E log pi_k = E log v_k + sum_{j<k} E log(1 - v_j), with v_K = 1, k <= K."""
    log_v, log_rest = expected_log_sticks(sticks)
    zero = jnp.zeros(1, log_v.dtype)
    return jnp.concatenate([log_v, zero]) + jnp.concatenate([zero, jnp.cumsum(log_rest)])


def expected_weights(sticks: Sticks) -> Array:
    """E pi_k: a product of independent Beta means, summing to one."""
    mean = sticks.a / (sticks.a + sticks.b)
    one = jnp.ones(1, mean.dtype)
    return jnp.concatenate([mean, one]) * jnp.concatenate([one, jnp.cumprod(1.0 - mean)])


@jax.jit
def update_sticks(assignments: Array, concentration: Concentration) -> Sticks:
    """argmax over q(v): a_k = 1 + sum_l phi_lk, b_k = E[alpha] + sum_l sum_{j>k} phi_lj."""
    counts = jnp.sum(assignments, axis=0)
    beyond = jnp.sum(counts) - jnp.cumsum(counts)
    mean_concentration = concentration.shape / concentration.rate
    return Sticks(1.0 + counts[:-1], mean_concentration + jnp.maximum(beyond[:-1], 0.0))


@jax.jit
def update_concentration(sticks: Sticks) -> Concentration:
    """argmax over q(alpha): each of the K - 1 free sticks adds one to the shape (log alpha appears once
    in each log Beta(1, alpha) density) and -E log(1 - v_k) to the rate."""
    _, log_rest = expected_log_sticks(sticks)
    shape = jnp.asarray(CONCENTRATION_SHAPE + sticks.a.shape[0], log_rest.dtype)
    return Concentration(shape, CONCENTRATION_RATE - jnp.sum(log_rest))


def assignment_divergence(logits: Array, sticks: Sticks) -> Array:
    """KL(q(z) || p(z | v)) in expectation over q(v): sum_l sum_k phi_lk (log phi_lk - E log pi_k)."""
    log_phi = jax.nn.log_softmax(logits, axis=-1)
    return jnp.sum(jnp.exp(log_phi) * (log_phi - expected_log_weights(sticks)))


def mixture_bound(logits: Array, sticks: Sticks, concentration: Concentration) -> Array:
    """The terms of the ELBO in z, v and alpha: minus the KL divergences to their priors."""
    return stick_bound(sticks, concentration) - assignment_divergence(logits, sticks)


@jax.jit
def stick_bound(sticks: Sticks, concentration: Concentration) -> Array:
    """The terms of the ELBO in v and alpha alone."""
    _, log_rest = expected_log_sticks(sticks)
    shape, rate = concentration
    log_alpha, alpha = digamma(shape) - jnp.log(rate), shape / rate
    prior_sticks = jnp.sum(log_alpha + (alpha - 1.0) * log_rest)
    prior_alpha = (
        CONCENTRATION_SHAPE * jnp.log(CONCENTRATION_RATE)
        - gammaln(CONCENTRATION_SHAPE)
        + (CONCENTRATION_SHAPE - 1.0) * log_alpha
        - CONCENTRATION_RATE * alpha
    )
    return prior_sticks + prior_alpha + _beta_entropy(sticks) + _gamma_entropy(concentration)


def _beta_entropy(sticks: Sticks) -> Array:
    a, b = sticks
    log_v, log_rest = expected_log_sticks(sticks)
    return jnp.sum(betaln(a, b) - (a - 1.0) * log_v - (b - 1.0) * log_rest)


def _gamma_entropy(concentration: Concentration) -> Array:
    shape, rate = concentration
    return shape - jnp.log(rate) + gammaln(shape) + (1.0 - shape) * digamma(shape)


def sample_mixture(key: Array, mixture: Mixture, logits: Array) -> Array:
    """Frequencies (L/2, Q) from q(w_l) = sum_k phi_lk N(mean_k, C_k C_k'), differentiable in everything.

    Given z the draw is mean_z + C_z eps: the usual pathwise gradient in means and factors. The gradient
    in the logits is implicit, see `_tie_to_logits`.
    """
    shape = (logits.shape[0], mixture.means.shape[1] + 1)
    # uniforms in the open interval: the first column picks the component, the others become normals
    uniform = jax.random.uniform(key, shape, logits.dtype, minval=1e-12, maxval=1.0 - 1e-12)
    below = jnp.cumsum(jax.nn.softmax(jax.lax.stop_gradient(logits), axis=-1), axis=-1)
    component = jnp.sum(below[:, :-1] < uniform[:, :1], axis=-1)
    noise = norm.ppf(uniform[:, 1:])
    draw = mixture.means[component] + jnp.einsum("lqr,lr->lq", mixture.choleskys[component], noise)
    return _tie_to_logits(draw, logits, jax.lax.stop_gradient(mixture))


@jax.custom_vjp
def _tie_to_logits(draw: Array, logits: Array, mixture: Mixture) -> Array:
    """The draw itself, with its derivative in the logits by implicit reparameterisation.

    Holding the conditional distribution functions F(w; phi) fixed while phi moves, the draw moves by
    dw = -(dF/dw)^-1 (dF/dphi) dphi; a cotangent g of w becomes -(dF/dphi)' (dF/dw)^-T g.
    """
    return draw


def _tie_forward(draw: Array, logits: Array, mixture: Mixture):
    return draw, (draw, logits, mixture)


def _tie_backward(residuals, cotangent: Array):
    values = _conditional_distribution(*residuals)
    # `slope` is lower triangular, with the conditional densities on its diagonal
    density = jnp.maximum(jnp.diagonal(values.slope, axis1=1, axis2=2), _SMALLEST_DENSITY)
    slope = jnp.tril(values.slope, -1) + density[:, :, None] * jnp.eye(density.shape[1])
    pulled = jax.scipy.linalg.solve_triangular(slope, cotangent[..., None], lower=True, trans=1)[..., 0]
    return cotangent, -jnp.einsum("lq,lkq->lk", pulled, values.logit_slope), None


_tie_to_logits.defvjp(_tie_forward, _tie_backward)


class ConditionalDistribution(NamedTuple):
    """F_q(w_q | w_1, ..., w_{q-1}) of the mixture (L/2, Q), its derivatives in w (L/2, Q, Q) and in the
    logits (L/2, K, Q)."""

    value: Array
    slope: Array
    logit_slope: Array


def _conditional_distribution(w: Array, logits: Array, mixture: Mixture) -> ConditionalDistribution:
    """With u_k = C_k^-1 (w - mean_k), component k's conditional distribution of w_q is Norm(u_kq) and its
    density norm(u_kq) / C_kqq; components are weighted by phi_k times the densities of the coordinates
    before q. The derivatives follow by the chain rule."""
    roots = jnp.linalg.inv(mixture.choleskys)
    u = jnp.einsum("kqr,lkr->lkq", roots, w[:, None, :] - mixture.means)
    log_density = norm.logpdf(u) + jnp.log(jnp.diagonal(roots, axis1=1, axis2=2))
    before = jnp.cumsum(log_density, axis=2) - log_density
    weights = jax.nn.softmax(logits[:, :, None] + before, axis=1)
    component = norm.cdf(u)
    value = jnp.sum(weights * component, axis=1)
    logit_slope = weights * (component - value[:, None, :])
    # d before_q / dw_j = -sum_{i<q} u_i roots_ij
    pull = u[..., None] * roots
    before_slope = -(jnp.cumsum(pull, axis=2) - pull)
    slope = jnp.einsum("lkq,kqj->lqj", weights * norm.pdf(u), roots)
    slope += jnp.einsum("lkq,lkqj->lqj", logit_slope, before_slope)
    return ConditionalDistribution(value, slope, logit_slope)


def sample_moment_matched(key: Array, mixture: Mixture, logits: Array) -> Array:
    """Frequencies from the paper's Gaussian N(sum_k phi_lk mean_k, sum_k phi_lk Sigma_k)."""
    phi = jax.nn.softmax(logits, axis=-1)
    covariances = jnp.einsum("kqr,ksr->kqs", mixture.choleskys, mixture.choleskys)
    cholesky = jnp.linalg.cholesky(jnp.einsum("lk,kqs->lqs", phi, covariances))
    means = phi @ mixture.means
    noise = jax.random.normal(key, means.shape, means.dtype)
    return means + jnp.einsum("lqr,lr->lq", cholesky, noise)


SAMPLERS = {"mixture": sample_mixture, "moment": sample_moment_matched}


def kernel(differences: Array, weights: Array, mixture: Mixture) -> Array:
    """The stationary kernel of unit variance at differences x - x' of shape (..., Q).

    The characteristic function of the symmetrised mixture:
    k(d) = sum_k weight_k exp(-d'Sigma_k d / 2) cos(mean_k'd).
    """
    spread = jnp.einsum("kqr,...q->...kr", mixture.choleskys, differences)
    damping = jnp.exp(-0.5 * jnp.sum(spread**2, axis=-1))
    return jnp.sum(weights * damping * jnp.cos(differences @ mixture.means.T), axis=-1)


def spectral_density(frequencies: Array, weights: Array, mixture: Mixture) -> Array:
    """The symmetrised mixture density (p(w) + p(-w)) / 2 at frequencies of shape (n, Q): the Fourier
    transform of `kernel`, which does not change when a component's sign does."""
    both = jnp.stack([frequencies, -frequencies])
    centred = both[:, :, None, :] - mixture.means
    u = jnp.linalg.solve(mixture.choleskys, centred[..., None])[..., 0]
    log_scale = jnp.sum(jnp.log(jnp.diagonal(mixture.choleskys, axis1=1, axis2=2)), axis=-1)
    log_density = jnp.sum(norm.logpdf(u), axis=-1) - log_scale
    return jnp.mean(jnp.sum(weights * jnp.exp(log_density), axis=-1), axis=0)
