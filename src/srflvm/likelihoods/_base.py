"""What every likelihood is: the distribution of an entry y around the function value f.

A likelihood is immutable and hashable (a frozen dataclass), so it can be part of a compiled program. It only
has to say `log_prob`; quadrature and automatic differentiation supply the rest, and a subclass replaces what
it knows in closed form.

Shapes. Raw columns are (N, m), one row an observation, NaN where not observed. Inside the compiled loop
everything is transposed, (m, N), so that a batch of columns is contiguous. `parameters` maps names to arrays
that broadcast against (m, N): the learned ones, on a free scale, and the constants that `channels` returns.
A *channel* is a column of the linear layer; most likelihoods have one for each raw column.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from srflvm._types import FloatArray
from srflvm.exceptions import DataError

N_NODES = 20
N_NEWTON_STEPS = 20

Parameters = Mapping[str, Any]


class Expected(NamedTuple):
    """E l(f), E l'(f) and -E l''(f) for f ~ N(mean, variance), l(f) = log p(y | f)."""

    value: Any
    slope: Any
    precision: Any


class Moments(NamedTuple):
    """Mean and variance of y given f."""

    mean: Any
    variance: Any


class ColumnMoments(NamedTuple):
    """Means of columns (n, m), and their variances by cause: the latent, the function, and the noise."""

    mean: FloatArray
    latent: FloatArray
    weight: FloatArray
    noise: FloatArray


class Units(NamedTuple):
    """The model sees (y - location) / scale: arrays (m,). Zeros and ones for data that have no units."""

    location: FloatArray
    scale: FloatArray


class Start(NamedTuple):
    """Moment-based starting values: the function's level (c,) and the learned parameters, each (c,)."""

    bias: FloatArray
    parameters: dict[str, FloatArray]


class PolyaGamma(NamedTuple):
    """log p(y | f) = constant + kappa psi - b log(2 cosh(psi / 2)) with psi = f + shift."""

    b: Any
    kappa: Any
    shift: Any
    constant: Any


@dataclass(frozen=True)
class Likelihood:
    """Base of all likelihoods; see the module's docstring for shapes."""

    name: ClassVar[str] = ""
    has_polya_gamma: ClassVar[bool] = False
    # whether f is a log mean, so that a row's size multiplies the mean through an offset of f
    takes_sizes: ClassVar[bool] = False
    # how far f moves for a unit of the working scale
    working_gain: ClassVar[float] = 1.0

    _discrete: ClassVar[bool] = False

    @property
    def discrete(self) -> bool:
        """Whether y has probabilities, not densities."""
        return self._discrete

    # ---- data -------------------------------------------------------------------------------------

    def check(self, Y: FloatArray, columns: Sequence[str]) -> None:
        """Refuse raw columns (N, m) that this likelihood cannot have produced; `columns` describe them."""

    def resolve(self, Y: FloatArray) -> Likelihood:
        """This likelihood with everything that depends on the training columns filled in."""
        return self

    def units(self, Y: FloatArray) -> Units:
        """Location and scale of the raw columns."""
        return Units(np.zeros(Y.shape[1]), np.ones(Y.shape[1]))

    def channels(self, Y: FloatArray) -> tuple[FloatArray, dict[str, FloatArray]]:
        """Columns in model units (N, m) to channels (N, c), with constants (N, c) that `log_prob` needs."""
        return Y, {}

    def start(self, Y: FloatArray, constants: Parameters) -> Start:
        """Starting values from channels (N, c)."""
        return Start(np.zeros(Y.shape[1]), {})

    def first_guess(self, Y: FloatArray, bias: FloatArray) -> FloatArray:
        """Values of f (N, c) near which the first sites are made, offsets included, finite also for NaN."""
        return np.broadcast_to(bias, Y.shape)

    def working(self, Y: FloatArray) -> FloatArray:
        """Channels on a scale on which Euclidean distances mean something; NaN stays NaN."""
        return Y

    # ---- mathematics, elementwise -----------------------------------------------------------------

    def log_prob(self, y: Array, f: Array, parameters: Parameters) -> Array:
        """log p(y | f), finite for every finite f."""
        raise NotImplementedError

    def pointwise(self, y: Array, f: Array, parameters: Parameters) -> Expected:
        """l, l' and -l'' at f."""

        def slope_of(g: Array) -> Array:
            return jax.grad(lambda h: jnp.sum(self.log_prob(y, h, parameters)))(g)

        slope, curvature = jax.jvp(slope_of, (f,), (jnp.ones_like(f),))
        return Expected(self.log_prob(y, f, parameters), slope, -curvature)

    def expectations(self, y: Array, mean: Array, variance: Array, parameters: Parameters) -> Expected:
        """`pointwise` averaged over f ~ N(mean, variance)."""
        return gauss_hermite(lambda f: self.pointwise(y, f, parameters), mean, variance)

    def parameter_derivatives(
        self,
        names: tuple[str, ...],
        y: Array,
        mean: Array,
        variance: Array,
        observed: Array,
        parameters: Parameters,
    ) -> tuple[Array, Array]:
        """Differentiate the sum of E l over each column in the learned parameters named: (B, P), (B, P, P).

        Only likelihoods with several learned parameters need it. By automatic differentiation, with one pass
        for each pair of parameters.
        """
        at = jnp.stack([parameters[name][:, 0] for name in names])

        def total(values: Array) -> Array:
            moved = {name: value[:, None] for name, value in zip(names, values, strict=True)}
            local = self.expectations(y, mean, variance, {**parameters, **moved}).value
            return jnp.sum(jnp.where(observed, local, 0.0).astype(jnp.float64), axis=1)

        def along(function: Any, direction: Array) -> Any:
            tangent = jnp.broadcast_to(direction[:, None], at.shape)
            return lambda values: jax.jvp(function, (values,), (tangent,))[1]

        unit = jnp.eye(len(names), dtype=at.dtype)
        slopes = jax.lax.map(lambda direction: along(total, direction)(at), unit).T
        rows, columns = np.tril_indices(len(names))
        pairs = unit[rows], unit[columns]
        bends = jax.lax.map(lambda pair: along(along(total, pair[0]), pair[1])(at), pairs).T
        hessian = jnp.zeros((*slopes.shape, len(names)), bends.dtype)
        return slopes, hessian.at[:, rows, columns].set(bends).at[:, columns, rows].set(bends)

    def log_predictive(self, y: Array, mean: Array, variance: Array, parameters: Parameters) -> Array:
        """log E p(y | f) for f ~ N(mean, variance).

        With f = mean + root x, the integrand p(y | f) N(x | 0, 1) may be far narrower than the spacing of
        nodes laid out for N(0, 1). They are laid out for N(peak, 1 / sharpness), its quadratic approximation:
        at x = peak + z / sqrt(sharpness) the densities have the ratio e^(z^2/2 - x^2/2) / sqrt(sharpness).
        """
        root = jnp.sqrt(variance)
        peak, sharpness = self._posterior_peak(y, mean, root, parameters)
        nodes, weights = hermite_nodes(N_NODES)

        def add(total: Array, node_and_log_weight: tuple[Array, Array]) -> tuple[Array, None]:
            node, log_weight = node_and_log_weight
            x = peak + node / jnp.sqrt(sharpness)
            value = self.log_prob(y, mean + root * x, parameters)
            return jnp.logaddexp(total, value - 0.5 * x**2 + log_weight), None

        log_weights = jnp.asarray(np.log(weights) + 0.5 * nodes**2, mean.dtype)
        rule = (jnp.asarray(nodes, mean.dtype), log_weights)
        none = jnp.full_like(sharpness, -jnp.inf)
        return jax.lax.scan(add, none, rule)[0] - 0.5 * jnp.log(sharpness)

    def _posterior_peak(
        self, y: Array, mean: Array, root: Array, parameters: Parameters
    ) -> tuple[Array, Array]:
        """argmax over x of l(mean + root x) - x^2 / 2, by Newton steps of at most two units of f, and minus
        the second derivative there, at least one."""

        def slope_and_sharpness(x: Array) -> tuple[Array, Array]:
            _, slope, precision = self.pointwise(y, mean + root * x, parameters)
            return root * slope - x, 1.0 + root**2 * jnp.maximum(precision, 0.0)

        def newton(_, x: Array) -> Array:
            slope, sharpness = slope_and_sharpness(x)
            limit = 2.0 / jnp.maximum(root, 1e-6)
            return x + jnp.clip(slope / sharpness, -limit, limit)

        peak = jax.lax.fori_loop(0, N_NEWTON_STEPS, newton, jnp.zeros_like(mean))
        return peak, slope_and_sharpness(peak)[1]

    def moments(self, f: Array, parameters: Parameters) -> Moments:
        """Mean and variance of y given f."""
        raise NotImplementedError

    def polya_gamma(self, y: Array, parameters: Parameters) -> PolyaGamma:
        """The likelihood in Pólya-gamma form, if it has one."""
        raise NotImplementedError

    # ---- after the fit, NumPy ---------------------------------------------------------------------

    def natural_parameters(self, learned: Parameters, units: Units) -> dict[str, FloatArray]:
        """What was learned, under names and on scales that users know, (m,) each, in raw units."""
        return {name: np.asarray(value, np.float64) for name, value in learned.items()}

    def sample(self, f: FloatArray, parameters: Parameters, rng: np.random.RandomState) -> FloatArray:
        """Draws of the channels given f (n, c)."""
        raise NotImplementedError

    def columns_from_moments(
        self, means: FloatArray, variances: FloatArray, constants: Parameters
    ) -> ColumnMoments:
        """Turn what channels are at K equally likely latents of each row into moments of columns (n, m) in
        model units; for likelihoods whose columns are not single channels.

        `means` and `variances` (K, n, c) are those of E(y | f) of a channel, over the function f.
        """
        raise NotImplementedError

    def columns_from_draws(self, draws: FloatArray, constants: Parameters) -> FloatArray:
        """Draws of channels (n, c) to draws of columns (n, m) in model units."""
        return draws


def hermite_nodes(n_nodes: int) -> tuple[FloatArray, FloatArray]:
    """Nodes and weights of E g(t), t ~ N(0, 1)."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(n_nodes)
    return nodes, weights / np.sqrt(2.0 * np.pi)


def gauss_hermite(function: Any, mean: Array, variance: Array, n_nodes: int = N_NODES) -> Any:
    """E function(f) for f ~ N(mean, variance), for a function that returns a tree of arrays."""
    root = jnp.sqrt(variance)
    rule = tuple(jnp.asarray(part, mean.dtype) for part in hermite_nodes(n_nodes))

    def add(total, node_and_weight):
        node, weight = node_and_weight
        term = function(mean + root * node)
        return jax.tree.map(lambda t, value: t + weight * value, total, term), None

    zeros = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), jax.eval_shape(function, mean))
    return jax.lax.scan(add, zeros, rule)[0]


def whole_numbers(name: str, value: Any) -> Any:
    """A parameter that is a whole number or several, as an int or a tuple of them: likelihoods are keys of
    compiled programs."""
    if isinstance(value, int):
        return value
    numbers = np.asarray(value)
    if numbers.ndim > 1 or numbers.dtype.kind not in "iuf" or np.any(numbers != np.round(numbers)):
        raise ValueError(f"{name}={value!r}: give a whole number, or a tuple with one for each column.")
    return int(numbers) if numbers.ndim == 0 else tuple(int(number) for number in numbers)


def refuse(bad: np.ndarray, Y: FloatArray, columns: Sequence[str], problem: str, remedy: str) -> None:
    """Raise a DataError that names the first place where `bad` (N, m) holds and how many there are."""
    if not bad.any():
        return
    row, column = (int(i) for i in np.argwhere(bad)[0])
    raise DataError(
        f"Y has {Y[row, column]:g} at row {row}, {columns[column]}: {problem} "
        f"({int(bad.sum())} such entries). {remedy}"
    )
