"""Kernel a psi - (a + b) log(1 + e^psi) of the logistic family, without cancellation.

Binomial and negative binomial are this kernel in log-odds psi: binomial with a = y successes and b = n - y
failures, negative binomial with a = y and b = r. For large a and b its two terms are huge and nearly cancel,
against each other and against log-gamma functions of a and b. So it is measured from its maximum
psi0 = log(a / b): with p = a / (a + b) and u = psi - psi0,

    kernel(psi0) - kernel(psi) = (a + b) log(1 + p (e^u - 1)) - a u.

Swapping (a, p, u) for (b, 1 - p, -u) changes nothing, so that p <= 1/2 may be taken. Then no term is much
larger than min(a, b) |u| near the maximum, and rounding costs min(a, b) |u| eps, not (a + b) log(a + b) eps.
Where a or b is zero there is no maximum, and the kernel is measured from where the zero would be 1/2.

Stirling's formula is taken out of the log-gamma functions of the probability at the maximum, which remains.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from srflvm.likelihoods.base import N_NODES, Expected, gauss_hermite

# e^60 is far beyond where log(1 + p (e^u - 1)) is linear in u for every p >= 1e-9, and float32 still holds it
_FAR = 60.0
_SERIES_FROM = 8.0


class Kernel(NamedTuple):
    """Log probability of counts with the logistic kernel, prepared for many psi; entries broadcast with psi.

    `log_peak` is the log probability at psi0 = `origin`, `share` the smaller of p and 1 - p, `sign` is -1
    where a and b were swapped for that and else 1, `near` and `other` are (a, b) so swapped, and `gap` is
    near - (a + b) share, zero at a maximum.
    """

    log_peak: Array
    origin: Array
    sign: Array
    share: Array
    near: Array
    other: Array
    gap: Array

    @classmethod
    def binomial(cls, successes: Array, failures: Array) -> Kernel:
        """Prepare the kernel of a binomial distribution."""
        return cls(_log_peak_binomial(successes, failures), *_prepared(successes, failures))

    @classmethod
    def negative_binomial(cls, count: Array, dispersion: Array) -> Kernel:
        """Prepare the kernel of a negative binomial distribution."""
        return cls(_log_peak_negative_binomial(count, dispersion), *_prepared(count, dispersion))

    def pointwise(self, psi: Array) -> Expected:
        """Return the log probability at psi, its slope and minus its curvature."""
        u = self.sign * (psi - self.origin)
        return self._assemble(u, _terms(self.share, u))

    def expectations(self, mean: Array, variance: Array, n_nodes: int = N_NODES) -> Expected:
        """Average `pointwise` over psi ~ N(mean, variance)."""
        u = self.sign * (mean - self.origin)
        return self._assemble(u, gauss_hermite(lambda at: _terms(self.share, at), u, variance, n_nodes))

    def _assemble(self, u: Array, terms: _Terms) -> Expected:
        """Combine the terms, or their averages: everything is linear in them.

        The slope in u is near - total (share + x) / (1 + x). As near = gap + total share and
        total (1 - share) = other + gap, it is gap (1 - fraction) - other fraction, where nothing cancels.
        """
        total = self.near + self.other
        value = self.near * u - total * terms.log
        slope = self.gap * (1.0 - terms.fraction) - self.other * terms.fraction
        precision = total * (1.0 - self.share) * terms.bend
        return Expected(self.log_peak + value, self.sign * slope, precision)


class _Terms(NamedTuple):
    """Functions of u that the kernel is made of, with x = share (e^u - 1).

    They are log(1 + x), x / (1 + x), and the derivative (x + share) / (1 + x)^2 of the slope of log(1 + x),
    up to the factor 1 - share.
    """

    log: Array
    fraction: Array
    bend: Array


def _terms(share: Array, u: Array) -> _Terms:
    x = share * jnp.expm1(jnp.minimum(u, _FAR))
    inverse = 1.0 / (1.0 + x)
    logarithm = jnp.log1p(x) + jnp.maximum(u - _FAR, 0.0)
    return _Terms(logarithm, x * inverse, (x + share) * inverse * inverse)


def _prepared(a: Array, b: Array) -> tuple[Array, ...]:
    """Return origin, sign, share, near, other and gap for a, b >= 0."""
    a0, b0 = _positive(a), _positive(b)
    plain = a0 < b0
    # not a minimum, whose derivative in the dispersion b would be halved at a tie
    share = jnp.where(plain, a0, b0) / (a0 + b0)
    near, other = jnp.where(plain, a, b), jnp.where(plain, b, a)
    gap = jnp.where((a > 0) & (b > 0), 0.0, near - (a + b) * share)
    sign = jnp.where(plain, 1.0, -1.0).astype(share.dtype)
    return jnp.log(a0) - jnp.log(b0), sign, share, near, other, gap


def _positive(a: Array) -> Array:
    # not max(a, 1/2): b may be a dispersion far below one half
    return jnp.where(a > 0, a, 0.5)


def _log_peak_binomial(a: Array, b: Array) -> Array:
    """Return log [(a + b)! / (a! b!)] + kernel(psi0).

    With log Gamma(x) = (x - 1/2) log x - x + log(2 pi) / 2 + S(x) everything large cancels on paper:
    -1/2 log(2 pi a b / (a + b)) + S(a + b) - S(a) - S(b). Where a or b is zero the coefficient is one, and
    the kernel is -(a + b) log(1 + e^psi0), or e^-psi0.
    """
    a0, b0 = _positive(a), _positive(b)
    logs = jnp.log(a0) + jnp.log(b0) - jnp.log(a0 + b0) + math.log(2.0 * math.pi)
    remainder = stirling_remainder(a0 + b0) - stirling_remainder(a0) - stirling_remainder(b0)
    at_zero = -(a + b) * jnp.log1p(jnp.where(a > 0, b0 / a0, a0 / b0))
    return jnp.where((a > 0) & (b > 0), remainder - 0.5 * logs, at_zero)


def _log_peak_negative_binomial(a: Array, b: Array) -> Array:
    """Return log [Gamma(a + b) / (a! Gamma(b))] + kernel(psi0), b > 0.

    As above: -1/2 log(2 pi a (a + b) / b) + S(a + b) - S(a) - S(b), or -b log(1 + 1 / (2 b)) for a = 0.
    """
    a0 = _positive(a)
    logs = jnp.log(a0) + jnp.log1p(a0 / b) + math.log(2.0 * math.pi)
    remainder = stirling_remainder(a0 + b) - stirling_remainder(a0) - stirling_remainder(b)
    return jnp.where(a > 0, remainder - 0.5 * logs, -b * jnp.log1p(0.5 / b))


def stirling_remainder(x: Array) -> Array:
    """Return S(x) = log Gamma(x) - (x - 1/2) log x + x - log(2 pi) / 2, x > 0, about 1 / (12 x).

    It is computed by its asymptotic series from 8 on, and below 8 by
    Gamma(x) = Gamma(x + 8) / (x (x + 1) ... (x + 7)): only by logarithms and fractions, so that first and
    second derivatives are as cheap and as accurate.
    """
    small = jnp.minimum(x, _SERIES_FROM)
    z = 1.0 / jnp.where(x < _SERIES_FROM, small + 8.0, x)
    z2 = z * z
    tail = 1 / 1260 - z2 * (1 / 1680 - z2 * (1 / 1188 - z2 * (691 / 360360 - z2 / 156)))
    series = z * (1 / 12 - z2 * (1 / 360 - z2 * tail))
    product = math.prod((small + i for i in range(1, 8)), start=small)
    moved = (small + 7.5) * jnp.log(small + 8.0) - (small - 0.5) * jnp.log(small) - 8.0 - jnp.log(product)
    return jnp.where(x < _SERIES_FROM, series + moved, series)
