"""How the sites of a non-Gaussian likelihood follow from it: three routes behind one function.

Given q(f) = N(mean, variance) of an entry, a route says what the entry adds to the bound, the gradient of
that in mean and variance (slope and -precision / 2), and with them the entry's next site: precision, and
shift = slope + precision * mean. At a fixed point the weights' posterior is

- "sites": the best Gaussian, with slope = E l' and precision = -E l'' (conjugate-computation inference);
- "polya_gamma": the best Gaussian together with an independent q(omega) = PG(b, c), c^2 = E psi^2;
- "polya_gamma_sampled": one of a Gibbs chain's conditionals, omega ~ PG(b, psi) for a draw of psi. By
  Fisher's identity the gradient of the complete-data density, averaged over the chain, is that of the exact
  evidence; the bound reported is that of the Gaussian at hand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from srflvm import polya_gamma
from srflvm.entries import Sites, Weights
from srflvm.likelihoods import Likelihood
from srflvm.likelihoods._base import Expected, Parameters

ROUTES = ("sites", "polya_gamma", "polya_gamma_sampled")

# How far sites move to their targets in one visit. The other routes have closed-form optima.
DAMPING = {"sites": 0.7, "polya_gamma": 1.0, "polya_gamma_sampled": 1.0}

# Likelihoods that are not log-concave have entries with negative curvature; a site may not.
_SMALLEST_PRECISION = 1e-6
LARGEST_PARAMETER_STEP = 0.5

# How much of a joint step of several parameters is made: the share that raises the bound most, or nothing.
_SHARES = (1.0, 0.3, 0.03, 0.0)


class Function(NamedTuple):
    """q(f) at the entries of a batch, (B, N): mean and variance without the known terms, the known terms
    (level of the column, offset of the row), and a draw of f without them."""

    mean: Array
    variance: Array
    known: Array
    draw: Array

    @property
    def total(self) -> Array:
        return self.mean + self.known


def local_terms(
    route: str, key: Array, likelihood: Likelihood, y: Array, function: Function, parameters: Parameters
) -> tuple[Array, Expected]:
    """What each entry adds to the bound, and the (value, slope, precision) that its gradient and site
    follow."""
    if route == "polya_gamma":
        form = likelihood.polya_gamma(y, parameters)
        c = polya_gamma.best_c(function.total, function.variance, form.shift)
        local = polya_gamma.local_bound(form, function.total, function.variance, c)
        return local.value, local
    expected = likelihood.expectations(y, function.total, function.variance, parameters)
    if route == "sites":
        return expected.value, expected
    form = likelihood.polya_gamma(y, parameters)
    omega = polya_gamma.sample(key, form.b, function.draw + function.known + form.shift)
    slope = form.kappa - omega * (function.total + form.shift)
    return expected.value, Expected(expected.value, slope, omega)


def next_sites(sites: Sites, local: Expected, mean: Array, observed: Array, damping: float) -> Sites:
    """Sites moved towards the quadratic that the local terms describe; zero where nothing is observed."""
    precision = jnp.maximum(local.precision, _SMALLEST_PRECISION).astype(mean.dtype)
    shift = (local.slope + precision * mean).astype(mean.dtype)
    target = Sites(jnp.where(observed, precision, 0.0), jnp.where(observed, shift, 0.0))
    return jax.tree.map(lambda old, new: old + damping * (new - old), sites, target)


class Slopes(NamedTuple):
    """First and second derivatives (B,) of each column's sum of E l in one parameter."""

    first: Array
    second: Array


def parameter_slopes(
    likelihood: Likelihood,
    y: Array,
    function: Function,
    observed: Array,
    learned: dict[str, Array],
    constants: Parameters,
    names: Iterable[str] | None = None,
) -> dict[str, Slopes]:
    """Differentiate the bound in each learned parameter on its own, or in those named."""
    total = _column_totals(likelihood, y, function, observed, learned, constants)
    slopes = {}
    for name in learned if names is None else names:
        value = learned[name]
        direction = jnp.ones_like(value)

        def slope(at: Array, name: str = name, direction: Array = direction) -> Array:
            return jax.jvp(lambda v: total({name: v}), (at,), (direction,))[1]

        slopes[name] = Slopes(*jax.jvp(slope, (value,), (direction,)))
    return slopes


def _column_totals(
    likelihood: Likelihood,
    y: Array,
    function: Function,
    observed: Array,
    learned: dict[str, Array],
    constants: Parameters,
) -> Callable[[dict[str, Array]], Array]:
    """Return the sum of E l over each column (B,) as a function of some of the learned parameters."""

    def total(moved: dict[str, Array]) -> Array:
        parameters = {**constants, **_as_columns({**learned, **moved})}
        local = likelihood.expectations(y, function.total, function.variance, parameters).value
        return jnp.sum(jnp.where(observed, local, 0.0).astype(jnp.float64), axis=1)

    return total


def better_parameters(
    likelihood: Likelihood,
    y: Array,
    function: Function,
    observed: Array,
    learned: dict[str, Array],
    constants: Parameters,
) -> tuple[dict[str, Array], dict[str, Slopes]]:
    """Move the learned parameters uphill; also return the slopes of those that were moved alone.

    Several parameters of one column are coupled (the thresholds of levels are), and steps that are right for
    each alone overshoot together: they make one joint step.
    """
    own = [name for name, value in learned.items() if len(value) == len(y)]
    coupled = own if len(own) > 1 else []
    alone = [name for name in learned if name not in coupled]
    slopes = parameter_slopes(likelihood, y, function, observed, learned, constants, alone)
    better = newton_steps({name: learned[name] for name in alone}, slopes)
    if coupled:
        total = _column_totals(likelihood, y, function, observed, learned, constants)
        derivatives = likelihood.parameter_derivatives(
            tuple(coupled), y, function.total, function.variance, observed, with_constants(learned, constants)
        )
        moved = _joint_step(
            lambda values: total(dict(zip(coupled, values, strict=True))),
            derivatives,
            jnp.stack([learned[name] for name in coupled]),
        )
        better |= dict(zip(coupled, moved, strict=True))
    return {name: better[name] for name in learned}, slopes


def newton_steps(learned: dict[str, Array], slopes: dict[str, Slopes]) -> dict[str, Array]:
    """Make one Newton step in each parameter, of each column or of all if it is shared."""
    better = {}
    for name, value in learned.items():
        own = len(value) == len(slopes[name].first)
        first, second = slopes[name] if own else (jnp.sum(part, keepdims=True) for part in slopes[name])
        step = first / (jnp.abs(second) + 1e-6)
        better[name] = value + jnp.clip(step, -LARGEST_PARAMETER_STEP, LARGEST_PARAMETER_STEP)
    return better


def _joint_step(total: Callable[[Array], Array], derivatives: tuple[Array, Array], values: Array) -> Array:
    """Make a Newton step in all parameters (P, B) of each column that does not lower `total` (B,).

    The Hessian's eigenvalues count by their absolute values, so that the step leads uphill also where the
    total is not concave. Of the step's shares in `_SHARES`, each column takes the best.
    """
    slopes, hessian = derivatives
    curvatures, directions = jnp.linalg.eigh(hessian)
    along = jnp.einsum("bij,bi->bj", directions, slopes) / (jnp.abs(curvatures) + 1e-6)
    step = jnp.einsum("bij,bj->bi", directions, along)
    largest = jnp.max(jnp.abs(step), axis=1, keepdims=True)
    step = (step * jnp.minimum(1.0, LARGEST_PARAMETER_STEP / jnp.maximum(largest, 1e-30))).T
    shares = jnp.asarray(_SHARES, values.dtype)
    totals = jax.lax.map(lambda share: total(values + share * step), shares)
    return values + shares[jnp.nanargmax(totals, axis=0)] * step


def better_amplitude(weights: Weights) -> Array:
    """The logarithm of the amplitude that maximises E log p(h_m | a_m): the mean of E h^2."""
    square = jnp.sum(weights.mean**2, axis=1) + jnp.trace(weights.covariance, axis1=1, axis2=2)
    return jnp.log(square.astype(jnp.float64) / weights.mean.shape[1])


def with_constants(learned: dict[str, Array], constants: Parameters) -> Parameters:
    """All parameters of a batch as `log_prob` takes them."""
    return {**constants, **_as_columns(learned)}


def _as_columns(learned: dict[str, Array]) -> dict[str, Array]:
    return {name: value[:, None] for name, value in learned.items()}
