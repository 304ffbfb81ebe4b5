"""Sites of a group of columns: how they follow from a non-Gaussian likelihood, by one of three routes.

Given q(f) = N(mean, variance) of an entry, a route says what the entry adds to the bound, the gradient of
that in mean and variance (slope and -precision / 2), and with them the entry's next site: precision, and
shift = slope + precision * mean. At a fixed point the weights' posterior is

- "sites": the best Gaussian, with slope = E l' and precision = -E l'' (conjugate-computation inference);
- "polya_gamma": the best Gaussian together with an independent q(omega) = PG(b, c), c^2 = E psi^2;
- "polya_gamma_sampled": one of a Gibbs chain's conditionals, omega ~ PG(b, psi) for a draw of psi. By
  Fisher's identity the gradient of the complete-data density, averaged over the chain, is that of the exact
  evidence; the bound reported is that of the Gaussian at hand.

Learned parameters and amplitudes climb the same bound. Arrays are (c, N), channels first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from srflvm.data.encoding import GroupRows
from srflvm.likelihoods.base import Expected, Likelihood, Parameters
from srflvm.numerics import polya_gamma
from srflvm.numerics.site_regression import Sites, Weights

# How far sites move to their targets in one visit. The other routes have closed-form optima.
DAMPING = {"sites": 0.7, "polya_gamma": 1.0, "polya_gamma_sampled": 1.0}

# Likelihoods that are not log-concave have entries with negative curvature; a site may not.
_SMALLEST_PRECISION = 1e-6
LARGEST_PARAMETER_STEP = 0.5

# How much of a joint step of several parameters is made: the share that raises the bound most, or nothing.
_SHARES = (1.0, 0.3, 0.03, 0.0)


class GroupState(NamedTuple):
    """State of one group of columns: sites (c, N), learned parameters and log amplitudes (c,).

    A parameter that all columns of the group share is (1,).
    """

    sites: Sites
    parameters: dict[str, Any]
    log_amplitude: Any

    @classmethod
    def of_groups(cls, state: dict[str, Any]) -> list[GroupState]:
        """Return the states of all groups from the entries of a fit's state."""
        parts = zip(state["sites"], state["parameters"], state["log_amplitude"], strict=True)
        return [cls(*part) for part in parts]

    @staticmethod
    def as_entries(groups: Sequence[GroupState]) -> dict[str, Any]:
        """Return the entries of a fit's state that the states of all groups make up."""
        return {
            "sites": tuple(group.sites for group in groups),
            "parameters": tuple(group.parameters for group in groups),
            "log_amplitude": tuple(group.log_amplitude for group in groups),
        }

    def take(self, index: Any) -> GroupState:
        """Return the state of some columns."""
        return GroupState(
            sites=jax.tree.map(lambda array: array[index], self.sites),
            parameters={
                name: value if len(value) == 1 else value[index] for name, value in self.parameters.items()
            },
            log_amplitude=self.log_amplitude[index],
        )

    def put(self, index: Array, part: GroupState) -> GroupState:
        """Return the state with that of some columns replaced."""
        return GroupState(
            sites=jax.tree.map(lambda whole, new: whole.at[index].set(new), self.sites, part.sites),
            parameters={
                name: part.parameters[name] if len(whole) == 1 else whole.at[index].set(part.parameters[name])
                for name, whole in self.parameters.items()
            },
            log_amplitude=self.log_amplitude.at[index].set(part.log_amplitude),
        )

    def centred(self, likelihood: Likelihood, constants: Array) -> GroupState:
        """Return the state with the constants (c,) of f taken over by a parameter that moves with f, if any.

        f - constant at parameters less the constant has the likelihood of f, and a smaller divergence. Else
        the constant would drift along with the parameter, and raise the amplitude of all weights of a column.
        A site in f is one in f - constant with shift - precision * constant.
        """
        name = likelihood.moves_with_f
        if name is None:
            return self
        shift = self.sites.shift - self.sites.precision * constants[:, None]
        moved = self.parameters[name] - constants
        return self._replace(
            sites=Sites(self.sites.precision, shift.astype(self.sites.shift.dtype)),
            parameters={**self.parameters, name: moved.astype(self.parameters[name].dtype)},
        )

    def move_sites(self, targets: Sites, damping: float) -> Sites:
        """Return the sites moved a part of the way to their targets."""
        return jax.tree.map(lambda old, new: old + damping * (new - old), self.sites, targets)


class Function(NamedTuple):
    """Gaussian q(f) at the entries of a batch of columns, (B, N).

    Mean and variance are without the known terms (level of the column, offset of the row), and so is `draw`,
    a draw of f.
    """

    mean: Array
    variance: Array
    known: Array
    draw: Array

    @property
    def total(self) -> Array:
        """Return the mean of f with the known terms."""
        return self.mean + self.known

    def local_terms(
        self, route: str, key: Array, likelihood: Likelihood, y: Array, parameters: Parameters
    ) -> tuple[Array, Expected]:
        """Compute what each entry adds to the bound, and what its gradient and its site follow."""
        if route == "polya_gamma":
            form = likelihood.polya_gamma(y, parameters)
            c = form.best_c(self.total, self.variance)
            local = Expected(*form.bound(self.total, self.variance, c))
            return local.value, local
        expected = likelihood.expectations(y, self.total, self.variance, parameters)
        if route == "sites":
            return expected.value, expected
        form = likelihood.polya_gamma(y, parameters)
        omega = polya_gamma.sample(key, form.b, self.draw + self.known + form.shift)
        slope = form.kappa - omega * (self.total + form.shift)
        return expected.value, Expected(expected.value, slope, omega)

    def target_sites(self, local: Expected, observed: Array) -> Sites:
        """Return the sites of the quadratic that local terms describe; zero where nothing is observed."""
        precision = jnp.maximum(local.precision, _SMALLEST_PRECISION).astype(self.mean.dtype)
        shift = (local.slope + precision * self.mean).astype(self.mean.dtype)
        return Sites(jnp.where(observed, precision, 0.0), jnp.where(observed, shift, 0.0))


class Slopes(NamedTuple):
    """First and second derivatives (B,) of each column's sum of E l in one parameter."""

    first: Array
    second: Array

    def newton_step(self, value: Array) -> Array:
        """Move the parameter by a limited Newton step, of each column or of all if they share it."""
        own = len(value) == len(self.first)
        first, second = self if own else (jnp.sum(part, keepdims=True) for part in self)
        step = first / (jnp.abs(second) + 1e-6)
        return value + jnp.clip(step, -LARGEST_PARAMETER_STEP, LARGEST_PARAMETER_STEP)


# Sums of a function of rows and of q(f) there over all rows, which may be seen some at a time.
Summed = Callable[[Callable[[GroupRows, Function], Any]], Any]


def parameter_slopes(
    likelihood: Likelihood,
    rows: GroupRows,
    function: Function,
    learned: dict[str, Array],
    names: Iterable[str] | None = None,
    n_nodes: int | None = None,
) -> dict[str, Slopes]:
    """Differentiate the bound in each learned parameter on its own, or in those named."""
    slopes = {}
    for name in learned if names is None else names:
        value = learned[name]
        direction = jnp.ones_like(value)

        def slope(at: Array, name: str = name, direction: Array = direction) -> Array:
            def total(moved: Array) -> Array:
                return _column_totals(likelihood, rows, function, {**learned, name: moved}, n_nodes)

            return jax.jvp(total, (at,), (direction,))[1]

        slopes[name] = Slopes(*jax.jvp(slope, (value,), (direction,)))
    return slopes


def better_parameters(
    likelihood: Likelihood,
    n_channels: int,
    learned: dict[str, Array],
    summed: Summed,
    n_nodes: int | None = None,
) -> tuple[dict[str, Array], dict[str, Slopes]]:
    """Move the learned parameters uphill; also return the slopes of those that were moved alone.

    Several parameters of one column are coupled (the thresholds of levels are), and steps that are right for
    each alone overshoot together: they make one joint step. Averages over q(f) take `n_nodes` nodes, or as
    many as the likelihood has if None.
    """
    own = [name for name, value in learned.items() if len(value) == n_channels]
    coupled = own if len(own) > 1 else []
    alone = [name for name in learned if name not in coupled]
    slopes = summed(partial(_slopes_of, likelihood, learned, alone, n_nodes)) if alone else {}
    better = {name: slopes[name].newton_step(learned[name]) for name in alone}
    if coupled:

        def derivatives(rows: GroupRows, function: Function) -> tuple[Array, Array]:
            return likelihood.parameter_derivatives(
                tuple(coupled),
                rows.y,
                function.total,
                function.variance,
                rows.observed,
                rows.arguments(learned),
            )

        values = jnp.stack([learned[name] for name in coupled])
        step = _joint_step(*summed(derivatives))
        shares = jnp.asarray(_SHARES, values.dtype)

        def totals(rows: GroupRows, function: Function) -> Array:
            def at(share: Array) -> Array:
                moved = dict(zip(coupled, values + share * step, strict=True))
                return _column_totals(likelihood, rows, function, {**learned, **moved}, n_nodes)

            return jax.lax.map(at, shares)

        best = shares[jnp.nanargmax(summed(totals), axis=0)]
        better |= dict(zip(coupled, values + best * step, strict=True))
    return {name: better[name] for name in learned}, slopes


def at_once(rows: GroupRows, function: Function) -> Summed:
    """Return the sums over rows that are all at hand."""
    return lambda summand: summand(rows, function)


def better_amplitude(weights: Weights) -> Array:
    """Return the logarithm of the amplitude that maximises E log p(h_m | a_m): the mean of E h^2."""
    square = jnp.sum(weights.mean**2, axis=1) + jnp.trace(weights.covariance, axis1=1, axis2=2)
    return jnp.log(square.astype(jnp.float64) / weights.mean.shape[1])


def _slopes_of(
    likelihood: Likelihood,
    learned: dict[str, Array],
    names: Sequence[str],
    n_nodes: int | None,
    rows: GroupRows,
    function: Function,
) -> dict[str, Slopes]:
    return parameter_slopes(likelihood, rows, function, learned, names, n_nodes)


def _column_totals(
    likelihood: Likelihood,
    rows: GroupRows,
    function: Function,
    learned: dict[str, Array],
    n_nodes: int | None,
) -> Array:
    """Return the sum of E l over each column (B,) at given parameters."""
    arguments = rows.y, function.total, function.variance, rows.arguments(learned)
    if n_nodes is None:
        local = likelihood.expectations(*arguments).value
    else:
        local = likelihood.quick_expectations(*arguments, n_nodes).value
    return jnp.sum(jnp.where(rows.observed, local, 0.0).astype(jnp.float64), axis=1)


def _joint_step(slopes: Array, hessian: Array) -> Array:
    """Return a limited Newton step (P, B) in all parameters of each column.

    The Hessian's eigenvalues count by their absolute values, so that the step leads uphill also where the
    total is not concave. Of the step's shares in `_SHARES`, each column takes the best.
    """
    curvatures, directions = jnp.linalg.eigh(hessian)
    along = jnp.einsum("bij,bi->bj", directions, slopes) / (jnp.abs(curvatures) + 1e-6)
    step = jnp.einsum("bij,bj->bi", directions, along)
    largest = jnp.max(jnp.abs(step), axis=1, keepdims=True)
    return (step * jnp.minimum(1.0, LARGEST_PARAMETER_STEP / jnp.maximum(largest, 1e-30))).T
