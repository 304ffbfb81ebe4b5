"""Protocol of a likelihood: the distribution of an entry y around the function value f.

A likelihood is immutable and hashable (a frozen dataclass), so it can be part of a compiled program. It only
has to define `log_prob`; quadrature and automatic differentiation supply the rest, and a subclass overrides
whatever it has in closed form.

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

from srflvm._typing import FloatArray
from srflvm.exceptions import DataError
from srflvm.numerics.polya_gamma import PolyaGamma

N_NODES = 20


def hermite_rule(n_nodes: int) -> tuple[FloatArray, FloatArray]:
    """Return nodes and weights of the average of a function of t ~ N(0, 1)."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(n_nodes)
    return nodes, weights / np.sqrt(2.0 * np.pi)


HERMITE_NODES, HERMITE_WEIGHTS = hermite_rule(N_NODES)

_NEWTON_STEPS = 20

Parameters = Mapping[str, Any]


class Expected(NamedTuple):
    """Averages E l(f), E l'(f) and -E l''(f) over f ~ N(mean, variance), with l(f) = log p(y | f)."""

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
    """Location and scale (m,) of columns: the model sees (y - location) / scale.

    They are zeros and ones for data without units.
    """

    location: FloatArray
    scale: FloatArray


class Start(NamedTuple):
    """Starting values from moments: the level of the function (c,) and the learned parameters, each (c,)."""

    bias: FloatArray
    parameters: dict[str, FloatArray]


class Summary(NamedTuple):
    """Number, mean and variance of the observed entries of columns, each (c,); zeros for an empty column."""

    number: FloatArray
    mean: FloatArray
    variance: FloatArray

    @classmethod
    def of(cls, Y: FloatArray) -> Summary:
        """Summarise the observed entries of each column of Y (N, c)."""
        seen = ~np.isnan(Y)
        number = seen.sum(axis=0).astype(float)
        mean = np.where(seen, Y, 0.0).sum(axis=0) / np.maximum(number, 1.0)
        square = np.where(seen, Y - mean, 0.0) ** 2
        return cls(number, mean, square.sum(axis=0) / np.maximum(number, 1.0))


@dataclass(frozen=True)
class Likelihood:
    """Base of all likelihoods; the docstring of the module gives the shapes."""

    name: ClassVar[str] = ""
    has_polya_gamma: ClassVar[bool] = False
    # entries are real numbers with a unit, and the columns of a group share one scale
    has_units: ClassVar[bool] = False
    # `resolve` takes the codes of levels or categories from the training columns
    has_levels: ClassVar[bool] = False
    # `probabilities` gives those of the categories of each column
    has_categories: ClassVar[bool] = False
    # the columns of a group are one vector, whose entries have no scores of their own
    columns_are_one_vector: ClassVar[bool] = False
    # f is a log mean, so that the size of a row multiplies the mean through an offset of f
    takes_sizes: ClassVar[bool] = False
    # log p is quadratic in f, so that a Gaussian site stands for an entry exactly
    is_quadratic: ClassVar[bool] = False
    # change of f for a unit of the working scale
    working_gain: ClassVar[float] = 1.0
    # learned parameter of each column that moves with f: only their difference matters
    moves_with_f: ClassVar[str | None] = None

    _discrete: ClassVar[bool] = False

    @property
    def discrete(self) -> bool:
        """Tell whether y has probabilities and not densities."""
        return self._discrete

    @property
    def columns_are_channels(self) -> bool:
        """Tell whether each column is one channel, so that moments of channels are those of columns."""
        return type(self).columns_from_moments is Likelihood.columns_from_moments

    @property
    def has_numbers_by_column(self) -> bool:
        """Tell whether a parameter has one number for each column, in the order of the columns."""
        return False

    @property
    def of_channels(self) -> Likelihood:
        """Return the likelihood without what only encoding and decoding of columns need.

        Programs are compiled for it, so that tables of the same shape share them although their columns
        have other numbers.
        """
        return self

    @property
    def has_own_units(self) -> bool:
        """Tell whether each column has a unit and a noise of its own."""
        return False

    @property
    def transforms(self) -> tuple[str | None, ...]:
        """Return the names of the transforms of the columns, or nothing if all are taken as they are."""
        return ()

    @property
    def straight(self) -> Likelihood:
        """Return this likelihood with channels as columns, where columns are transformed."""
        return self

    # ---- data -------------------------------------------------------------------------------------

    def check(self, Y: FloatArray, columns: Sequence[str]) -> None:
        """Refuse raw columns (N, m) that this likelihood cannot have produced; `columns` names them."""

    def resolve(self, Y: FloatArray) -> Likelihood:
        """Return this likelihood with all that depends on the training columns filled in."""
        return self

    def arrange(self, Y: FloatArray, others: FloatArray) -> Likelihood:
        """Return this likelihood with what depends on training columns of other likelihoods too.

        Y (N, m) are its own columns, `others` (N, C) the working values of the others, NaN where missing.
        """
        return self

    def refuse_vector_entries(self) -> None:
        """Refuse to score single entries if they are parts of a vector."""
        if self.columns_are_one_vector:
            raise ValueError(
                f"Entries of {self.name!r} columns are not scored one by one: use score_samples."
            )

    def level_codes(self, n_columns: int) -> list[FloatArray]:
        """Return the codes that entries of each of the columns can have; none if they are not levels."""
        return []

    def units(self, Y: FloatArray) -> Units:
        """Return location and scale of the raw columns."""
        return Units(np.zeros(Y.shape[1]), np.ones(Y.shape[1]))

    def channels(self, Y: FloatArray) -> tuple[FloatArray, dict[str, FloatArray]]:
        """Return channels (N, c) of columns in model units (N, m), and constants (N, c) for `log_prob`."""
        return Y, {}

    def log_slopes(self, Y: FloatArray) -> FloatArray | float:
        """Return the log derivatives (n, m) of channels, in columns in model units that are transformed."""
        return 0.0

    def start(self, Y: FloatArray, constants: Parameters) -> Start:
        """Return starting values from channels (N, c)."""
        return Start(np.zeros(Y.shape[1]), {})

    def first_guess(self, Y: FloatArray, bias: FloatArray) -> FloatArray:
        """Return f (N, c), offsets included, near which the first sites are made; finite also for NaN."""
        return np.broadcast_to(bias, Y.shape)

    def working(self, Y: FloatArray) -> FloatArray:
        """Return channels on a scale on which Euclidean distances make sense; NaN stays NaN."""
        return Y

    # ---- mathematics, elementwise -----------------------------------------------------------------

    def log_prob(self, y: Array, f: Array, parameters: Parameters) -> Array:
        """Return log p(y | f), finite for every finite f."""
        raise NotImplementedError

    def pointwise(self, y: Array, f: Array, parameters: Parameters) -> Expected:
        """Return l, l' and -l'' at f."""

        def slope_of(g: Array) -> Array:
            return jax.grad(lambda h: jnp.sum(self.log_prob(y, h, parameters)))(g)

        slope, curvature = jax.jvp(slope_of, (f,), (jnp.ones_like(f),))
        return Expected(self.log_prob(y, f, parameters), slope, -curvature)

    def expectations(self, y: Array, mean: Array, variance: Array, parameters: Parameters) -> Expected:
        """Average `pointwise` over f ~ N(mean, variance)."""
        return gauss_hermite(lambda f: self.pointwise(y, f, parameters), mean, variance)

    def quick_expectations(
        self, y: Array, mean: Array, variance: Array, parameters: Parameters, n_nodes: int
    ) -> Expected:
        """Average `pointwise` over f ~ N(mean, variance) with few nodes, or in closed form if there is one.

        The steps of a fit use it where `expectations` would take most of their time.
        """
        if type(self).expectations is not Likelihood.expectations:
            return self.expectations(y, mean, variance, parameters)
        return gauss_hermite(lambda f: self.pointwise(y, f, parameters), mean, variance, n_nodes)

    def parameter_derivatives(
        self,
        names: tuple[str, ...],
        y: Array,
        mean: Array,
        variance: Array,
        observed: Array,
        parameters: Parameters,
    ) -> tuple[Array, Array]:
        """Differentiate the sum of E l over each column in the parameters `names`: (B, P) and (B, P, P).

        Only likelihoods with several learned parameters need it. The default differentiates automatically,
        with one pass for each pair of parameters.
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
        """Return log E p(y | f) for f ~ N(mean, variance).

        With f = mean + root x, the integrand p(y | f) N(x | 0, 1) may be far narrower than the spacing of
        nodes laid out for N(0, 1). They are laid out for N(peak, 1 / sharpness), its quadratic approximation:
        at x = peak + z / sqrt(sharpness) the densities have the ratio e^(z^2/2 - x^2/2) / sqrt(sharpness).
        """
        root = jnp.sqrt(variance)
        peak, sharpness = self._posterior_peak(y, mean, root, parameters)
        nodes, weights = HERMITE_NODES, HERMITE_WEIGHTS

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
        """Find the maximum over x of l(mean + root x) - x^2 / 2, by Newton steps of at most two units of f.

        Also return minus the second derivative there, at least one.
        """

        def slope_and_sharpness(x: Array) -> tuple[Array, Array]:
            _, slope, precision = self.pointwise(y, mean + root * x, parameters)
            return root * slope - x, 1.0 + root**2 * jnp.maximum(precision, 0.0)

        def newton(_, x: Array) -> Array:
            slope, sharpness = slope_and_sharpness(x)
            limit = 2.0 / jnp.maximum(root, 1e-6)
            return x + jnp.clip(slope / sharpness, -limit, limit)

        peak = jax.lax.fori_loop(0, _NEWTON_STEPS, newton, jnp.zeros_like(mean))
        return peak, slope_and_sharpness(peak)[1]

    def moments(self, f: Array, parameters: Parameters) -> Moments:
        """Return mean and variance of y given f."""
        raise NotImplementedError

    def polya_gamma(self, y: Array, parameters: Parameters) -> PolyaGamma:
        """Return the likelihood in Pólya-gamma form, if it has one."""
        raise NotImplementedError

    # ---- after the fit, NumPy ---------------------------------------------------------------------

    def transform_moments(
        self, mean: FloatArray, of_function: FloatArray, of_noise: FloatArray
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return mean and variances (..., c) of what was transformed to channels with these moments."""
        return mean, of_function, of_noise

    def natural_parameters(self, learned: Parameters, units: Units) -> dict[str, FloatArray]:
        """Return the learned parameters (m,) by names and on scales that users know, in raw units."""
        return {name: np.asarray(value, np.float64) for name, value in learned.items()}

    def sample(self, f: FloatArray, parameters: Parameters, rng: np.random.RandomState) -> FloatArray:
        """Draw the channels given f (n, c)."""
        raise NotImplementedError

    def draw_parameters(
        self,
        y: FloatArray,
        observed: np.ndarray,
        f: FloatArray,
        parameters: Parameters,
        learned: dict[str, FloatArray],
        rng: np.random.RandomState,
    ) -> dict[str, FloatArray]:
        """Draw the learned parameters given channels and f (n, c); those without a known conditional stay.

        `parameters` are the constants of the channels.
        """
        return learned

    def columns_from_moments(
        self, means: FloatArray, variances: FloatArray, constants: Parameters
    ) -> ColumnMoments:
        """Compute moments of columns (n, m) in model units, where columns are not single channels.

        `means` and `variances` (K, n, c) are those of E(y | f) of the channels, over the function f, at K
        equally likely latents of each row.
        """
        raise NotImplementedError

    def probabilities(self, means: FloatArray) -> list[FloatArray]:
        """Return for each column the probabilities (n, C) of its categories, if it has any.

        `means` (K, n, c) are those of the channels at K equally likely latents of each row.
        """
        raise NotImplementedError

    def columns_from_draws(self, draws: FloatArray, constants: Parameters) -> FloatArray:
        """Turn draws of channels (n, c) into draws of columns (n, m) in model units."""
        return draws


def gauss_hermite(function: Any, mean: Array, variance: Array, n_nodes: int = N_NODES) -> Any:
    """Return E function(f) for f ~ N(mean, variance), for a function that returns a tree of arrays."""
    root = jnp.sqrt(variance)
    nodes, weights = hermite_rule(n_nodes)

    def add(total, node_and_weight):
        node, weight = node_and_weight
        term = function(mean + root * node)
        return jax.tree.map(lambda t, value: t + weight * value, total, term), None

    rule = tuple(jnp.asarray(part, mean.dtype) for part in (nodes, weights))
    zeros = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), jax.eval_shape(function, mean))
    return jax.lax.scan(add, zeros, rule)[0]


def check_counts(Y: FloatArray, columns: Sequence[str], likelihood: str) -> None:
    """Refuse entries that are not whole numbers of zero or more."""
    seen = ~np.isnan(Y)
    remedy = f"The {likelihood} likelihood describes raw counts: "
    refuse(
        seen & ((Y < 0.0) | np.isinf(Y)),
        Y,
        columns,
        "a count is finite and not negative",
        remedy + "use NaN for what was not observed, and likelihood='gaussian' for real numbers.",
    )
    refuse(
        seen & (np.floor(Y) != Y),
        Y,
        columns,
        "a count is a whole number",
        remedy + "undo normalisation or logarithms, or use likelihood='gaussian'.",
    )


def refuse(bad: np.ndarray, Y: FloatArray, columns: Sequence[str], problem: str, remedy: str) -> None:
    """Raise a DataError that names the first place where `bad` (N, m) holds and how many there are."""
    if not bad.any():
        return
    row, column = (int(i) for i in np.argwhere(bad)[0])
    raise DataError(
        f"Y has {Y[row, column]:g} at row {row}, {columns[column]}: {problem} "
        f"({int(bad.sum())} such entries). {remedy}"
    )
