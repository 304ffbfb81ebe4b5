"""Dirichlet-process mixture over frequencies, and the stationary kernel that it defines.

A frequency w_l belongs to one of K Gaussian components, w_l | z_l = k ~ N(mean_k, C_k C_k'), with
stick-breaking weights pi_k = v_k prod_{j<k} (1 - v_j), v_k ~ Beta(1, alpha) for k < K and v_K = 1 (so
that the weights sum to one), and alpha ~ Gamma(shape, rate). Variational factors: q(z_l = k) = phi_lk
(a softmax of free logits), q(v_k) = Beta(a_k, b_k) for k < K, q(alpha) = Gamma(a, b); frequencies follow
their prior given z, so marginally q(w_l) = sum_k phi_lk N(mean_k, C_k C_k').
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import scipy.special
from jax import Array
from jax.scipy.stats import norm

_CONCENTRATION_SHAPE = 1.0
_CONCENTRATION_RATE = 1.0

# The implicit gradient divides by the density at the draw, tiny between well separated components; this
# floor trades the rare huge gradients there for a small bias.
_SMALLEST_DENSITY = 1e-3


# ---- weights of the components --------------------------------------------------------------------


def _special_functions(xp: Any) -> Any:
    """Return digamma, gammaln and betaln of the library of an array."""
    return jax.scipy.special if xp is jnp else scipy.special


class Sticks(NamedTuple):
    """Factors q(v_k) = Beta(a_k, b_k), k < K. Methods give NumPy for NumPy, and the same for JAX."""

    a: Any
    b: Any

    @classmethod
    def best(cls, assignments: Any, concentration: Concentration) -> Sticks:
        """Maximise the bound over q(v): a_k = 1 + sum_l phi_lk, b_k = E[alpha] + sum_l sum_{j>k} phi_lj."""
        xp = assignments.__array_namespace__()
        counts = xp.sum(assignments, axis=0)
        beyond = xp.sum(counts) - xp.cumsum(counts)
        mean_concentration = concentration.shape / concentration.rate
        return cls(1.0 + counts[:-1], mean_concentration + xp.maximum(beyond[:-1], 0.0))

    def expected_logs(self) -> tuple[Any, Any]:
        """Return E log v_k and E log(1 - v_k), k < K."""
        xp = self.a.__array_namespace__()
        # in one call, which compiles in a third of the time of three
        a, b, total = _special_functions(xp).digamma(xp.stack([self.a, self.b, self.a + self.b]))
        return a - total, b - total

    def expected_log_weights(self) -> Any:
        """Return E log pi_k = E log v_k + sum_{j<k} E log(1 - v_j), with v_K = 1, k <= K."""
        log_v, log_rest = self.expected_logs()
        xp = log_v.__array_namespace__()
        zero = xp.zeros(1, dtype=log_v.dtype)
        return xp.concat([log_v, zero]) + xp.concat([zero, xp.cumsum(log_rest)])

    def expected_weights(self) -> Array:
        """Return E pi_k: products of independent Beta means, summing to one."""
        mean = self.a / (self.a + self.b)
        one = jnp.ones(1, mean.dtype)
        return jnp.concatenate([mean, one]) * jnp.concatenate([one, jnp.cumprod(1.0 - mean)])

    def assignment_divergence(self, logits: Array) -> Array:
        """Return E KL(q(z) || p(z | v)) over q(v): sum_l sum_k phi_lk (log phi_lk - E log pi_k)."""
        log_phi = jax.nn.log_softmax(logits, axis=-1)
        return jnp.sum(jnp.exp(log_phi) * (log_phi - self.expected_log_weights()))

    def bound(self, concentration: Concentration) -> Any:
        """Return the terms of the ELBO in v and alpha alone: minus the divergences from their priors."""
        _, log_rest = self.expected_logs()
        xp = log_rest.__array_namespace__()
        shape, rate = concentration
        log_alpha = _special_functions(xp).digamma(shape) - xp.log(rate)
        alpha = shape / rate
        prior_sticks = xp.sum(log_alpha + (alpha - 1.0) * log_rest)
        prior_alpha = (
            _CONCENTRATION_SHAPE * math.log(_CONCENTRATION_RATE)
            - math.lgamma(_CONCENTRATION_SHAPE)
            + (_CONCENTRATION_SHAPE - 1.0) * log_alpha
            - _CONCENTRATION_RATE * alpha
        )
        return prior_sticks + prior_alpha + _beta_entropy(self) + _gamma_entropy(concentration)


class Concentration(NamedTuple):
    """Factor q(alpha) = Gamma(shape, rate)."""

    shape: Any
    rate: Any

    @classmethod
    def best(cls, sticks: Sticks) -> Concentration:
        """Maximise the bound over q(alpha).

        Each of the K - 1 free sticks adds one to the shape (log alpha appears once in each log Beta(1, alpha)
        density) and -E log(1 - v_k) to the rate.
        """
        _, log_rest = sticks.expected_logs()
        xp = log_rest.__array_namespace__()
        shape = xp.asarray(_CONCENTRATION_SHAPE + sticks.a.shape[0], dtype=log_rest.dtype)
        return cls(shape, xp.asarray(_CONCENTRATION_RATE - xp.sum(log_rest)))


def _beta_entropy(sticks: Sticks) -> Any:
    a, b = sticks
    log_v, log_rest = sticks.expected_logs()
    xp = log_v.__array_namespace__()
    betaln = _special_functions(xp).betaln
    return xp.sum(betaln(a, b) - (a - 1.0) * log_v - (b - 1.0) * log_rest)


def _gamma_entropy(concentration: Concentration) -> Any:
    shape, rate = concentration
    xp = rate.__array_namespace__()
    special = _special_functions(xp)
    return shape - xp.log(rate) + special.gammaln(shape) + (1.0 - shape) * special.digamma(shape)


# ---- frequencies ----------------------------------------------------------------------------------


class Mixture(NamedTuple):
    """Component means (K, Q) and lower Cholesky factors of the covariances (K, Q, Q)."""

    means: Array
    choleskys: Array

    def sample(self, key: Array, logits: Array) -> Array:
        """Draw frequencies (L/2, Q) from q(w_l) = sum_k phi_lk N(mean_k, C_k C_k'), differentiably.

        Given z the draw is mean_z + C_z eps: the usual pathwise gradient in means and factors. The gradient
        in the logits is implicit, see `_tie_to_logits`.
        """
        component_key, noise_key = jax.random.split(key)
        uniform = jax.random.uniform(component_key, (len(logits), 1), logits.dtype)
        below = jnp.cumsum(jax.nn.softmax(jax.lax.stop_gradient(logits), axis=-1), axis=-1)
        component = jnp.sum(below[:, :-1] < uniform, axis=-1)
        # in single precision, whose generator is half as long to compile
        noise = jax.random.normal(noise_key, (len(logits), self.means.shape[1]), jnp.float32)
        draws = self.means + jnp.einsum("kqr,lr->lkq", self.choleskys, noise.astype(logits.dtype))
        draw = jnp.take_along_axis(draws, component[:, None, None], axis=1)[:, 0]
        return _tie_to_logits(draw, logits, jax.lax.stop_gradient(self))

    def kernel(self, differences: Array, weights: Array) -> Array:
        """Return the stationary kernel of unit variance at differences x - x' of shape (..., Q).

        It is the characteristic function of the symmetrised mixture:
        k(d) = sum_k weight_k exp(-d'Sigma_k d / 2) cos(mean_k'd).
        """
        spread = jnp.einsum("kqr,...q->...kr", self.choleskys, differences)
        damping = jnp.exp(-0.5 * jnp.sum(spread**2, axis=-1))
        return jnp.sum(weights * damping * jnp.cos(differences @ self.means.T), axis=-1)

    def density(self, frequencies: Array, weights: Array) -> Array:
        """Return the symmetrised density (p(w) + p(-w)) / 2 at frequencies of shape (n, Q).

        It is the Fourier transform of `kernel`, which does not change when the sign of a component does.
        """
        both = jnp.stack([frequencies, -frequencies])
        centred = both[:, :, None, :] - self.means
        u = jnp.linalg.solve(self.choleskys, centred[..., None])[..., 0]
        log_scale = jnp.sum(jnp.log(jnp.diagonal(self.choleskys, axis1=1, axis2=2)), axis=-1)
        log_density = jnp.sum(norm.logpdf(u), axis=-1) - log_scale
        return jnp.mean(jnp.sum(weights * jnp.exp(log_density), axis=-1), axis=0)


Sampler = Callable[[Array], Array]


def _mixture_sampler(mixture: Mixture, logits: Array) -> Sampler:
    return partial(mixture.sample, logits=logits)


def _moment_sampler(mixture: Mixture, logits: Array) -> Sampler:
    """Draw frequencies from the paper's Gaussian N(sum_k phi_lk mean_k, sum_k phi_lk Sigma_k).

    Its factors are found once for all draws.
    """
    phi = jax.nn.softmax(logits, axis=-1)
    covariances = jnp.einsum("kqr,ksr->kqs", mixture.choleskys, mixture.choleskys)
    cholesky = jnp.linalg.cholesky(jnp.einsum("lk,kqs->lqs", phi, covariances))
    means = phi @ mixture.means

    def sample(key: Array) -> Array:
        noise = jax.random.normal(key, means.shape, means.dtype)
        return means + jnp.einsum("lqr,lr->lq", cholesky, noise)

    return sample


SAMPLERS = {"mixture": _mixture_sampler, "moment": _moment_sampler}


@jax.custom_vjp
def _tie_to_logits(draw: Array, logits: Array, mixture: Mixture) -> Array:
    """Return the draw itself, with its derivative in the logits by implicit reparameterisation.

    Holding the conditional distribution functions F(w; phi) fixed while phi moves, the draw moves by
    dw = -(dF/dw)^-1 (dF/dphi) dphi; a cotangent g of w becomes -(dF/dphi)' (dF/dw)^-T g.
    """
    return draw


def _tie_forward(draw: Array, logits: Array, mixture: Mixture):
    return draw, (draw, logits, mixture)


def _tie_backward(residuals, cotangent: Array):
    terms = _conditional_distribution(*residuals)
    pulled = _solve_slope(terms, cotangent)
    return cotangent, -jnp.einsum("lq,lkq->lk", pulled, terms.logit_slope), None


_tie_to_logits.defvjp(_tie_forward, _tie_backward)


class _ConditionalDistribution(NamedTuple):
    """Terms of the derivatives of F_q(w_q | w_1, ..., w_{q-1}) of the mixture.

    They are C_k^-1 (K, Q, Q), and of shape (L/2, K, Q) u, the part of each component in the density, and
    dF_q / dlogit_k.
    """

    roots: Array
    u: Array
    density: Array
    logit_slope: Array


def _conditional_distribution(w: Array, logits: Array, mixture: Mixture) -> _ConditionalDistribution:
    """Compute the terms of the derivatives of the conditional distribution functions.

    With u_k = C_k^-1 (w - mean_k), component k's conditional distribution of w_q is Norm(u_kq) and its
    density norm(u_kq) / C_kqq; components are weighted by phi_k times the densities of the coordinates
    before q. The derivatives follow by the chain rule.
    """
    roots = _triangular_inverse(mixture.choleskys)
    u = jnp.einsum("kqr,lkr->lkq", roots, w[:, None, :] - mixture.means)
    log_density = norm.logpdf(u) + jnp.log(jnp.diagonal(roots, axis1=1, axis2=2))
    before = jnp.cumsum(log_density, axis=2) - log_density
    weights = jax.nn.softmax(logits[:, :, None] + before, axis=1)
    component = norm.cdf(u)
    value = jnp.sum(weights * component, axis=1)
    logit_slope = weights * (component - value[:, None, :])
    return _ConditionalDistribution(roots, u, weights * norm.pdf(u), logit_slope)


def _solve_slope(terms: _ConditionalDistribution, cotangent: Array) -> Array:
    """Return (dF/dw)^-T g by back substitution, without making dF/dw, of size L/2 x Q x Q.

    With a the density's parts, s = dF/dlogits and d before_j / dw_q = -sum_{i<j} u_i roots_iq, for q < j

        dF_j / dw_q = sum_k { a_kj roots_kjq - s_kj sum_{q<=i<j} u_ki roots_kiq },

    and on the diagonal sum_k a_kq roots_kqq. So g_q - sum_{j>q} (dF_j / dw_q) p_j needs only the sums
    S_ki = sum_{j>i} s_kj p_j and v_ki = a_ki p_i - u_ki S_ki of what is already solved.
    """
    own = jnp.diagonal(terms.roots, axis1=1, axis2=2)
    diagonal = jnp.maximum(jnp.sum(terms.density * own, axis=1), _SMALLEST_DENSITY).T
    # coordinates first, so that each step reads and writes one contiguous piece
    u, density, logit_slope = (jnp.moveaxis(part, 2, 0) for part in terms[1:])
    columns = jnp.moveaxis(terms.roots, 2, 0).swapaxes(1, 2)
    right = cotangent.T

    def step(number: int, carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        pulled, v, sums = carry
        q = len(right) - 1 - number
        later = jnp.sum(v * columns[q][:, None, :], axis=(0, 2))
        here = jnp.sum(columns[q, q] * u[q] * sums, axis=1)
        solved = (right[q] - later + here) / diagonal[q]
        v = v.at[q].set(density[q] * solved[:, None] - u[q] * sums)
        return pulled.at[q].set(solved), v, sums + logit_slope[q] * solved[:, None]

    start = jnp.zeros_like(right), jnp.zeros_like(u), jnp.zeros_like(u[0])
    return jax.lax.fori_loop(0, len(right), step, start)[0].T


def _triangular_inverse(lower: Array) -> Array:
    """Return the inverses of lower triangular matrices (K, Q, Q), row by row.

    LAPACK is not used: a batch of its calls may wait for ever for another one in the same program.
    """
    identity = jnp.eye(lower.shape[-1], dtype=lower.dtype)

    def add_row(q: int, inverse: Array) -> Array:
        rest = identity[q] - jnp.einsum("kr,krj->kj", lower[:, q], inverse)
        return inverse.at[:, q].set(rest / lower[:, q, q, None])

    return jax.lax.fori_loop(0, lower.shape[-1], add_row, jnp.zeros_like(lower))
