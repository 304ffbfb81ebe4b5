"""Gaussian process latent variable model by stochastic variational inference.

It is that of Lalchand, Ravuri and Lawrence (2022), for data of several kinds.

Columns are functions of latents, f_d = bias_d + GP(0, k), x_n ~ N(0, I), with the kernel
k(x, x') = amplitude exp(-1/2 sum_q (x_q - x'_q)^2 / length_q^2). Function values u_d at m inducing points Z
are written u_d = C v_d with K_ZZ = C C', so that v_d ~ N(0, I), and have q(v_d) = N(mean_d, R_d R_d'). With
a_n = C^-1 k(Z, x_n), a function value then is Gaussian with

    mean bias_d + a_n' mean_d   and   variance amplitude - |a_n|^2 + |R_d' a_n|^2,

and with q(x_n) = N(location_n, diag(e^(2 log_std_n))) the bound is

    sum_n { E_q(x_n) sum_d E log p(y_nd | f_nd) - KL(q(x_n) || N(0, I)) } - sum_d KL(q(v_d) || N(0, I)).

It is a sum over rows but for the last term. A batch of B rows, multiplied by N / B, and one draw of each
q(x_n) therefore estimate it without bias. The expectation over f is exact for Gaussian and Poisson data, and
by Gauss-Hermite quadrature for others.

With Gaussian data of one noise variance the best R_d is the same for all columns, for in the bound it meets
only a_n and the noise. One R is kept then.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.linalg import solve_triangular
from scipy.spatial.distance import cdist
from sklearn.base import BaseEstimator
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA
from sklearn.utils import check_random_state

from srflvm._typing import FloatArray
from srflvm.likelihoods.base import Likelihood
from srflvm.likelihoods.columns import LIKELIHOODS, standard_name
from srflvm.numerics.jit import in_float64
from srflvm_bench.baselines.networks import Training, check_rows, random_key, train

KINDS = ("gaussian", "bernoulli", "poisson", "negative_binomial")

# Added to the diagonal of K_ZZ, in units of the amplitude. It only weakens what the inducing points explain,
# so that the bound stays one.
JITTER = 1e-6

_START_LOG_STD = -2.0


class Kernel(NamedTuple):
    """Logarithms of the amplitude, (), and of the lengths, (Q,)."""

    log_amplitude: Array
    log_length: Array

    def __call__(self, x: Array, z: Array) -> Array:
        scale = jnp.exp(-self.log_length)
        difference = (x * scale)[:, None, :] - z * scale
        return jnp.exp(self.log_amplitude - 0.5 * jnp.sum(difference**2, axis=-1))


class Parameters(NamedTuple):
    """Parameters that are optimised.

    They are location and log_std (N, Q) of q(X), the inducing points (m, Q), the kernel, mean (m, D) and root
    (D or 1, m, m) of q(V), with the logarithm of the root's diagonal, biases (D, 1), and the parameters of
    the likelihood (D or 1, 1).
    """

    location: Array
    log_std: Array
    inducing: Array
    kernel: Kernel
    mean: Array
    root: Array
    bias: Array
    learned: dict[str, Array]


def triangular(root: Array) -> Array:
    """Return R from its parameters: the lower triangle, with the exponential of the diagonal."""
    diagonal = jnp.exp(jnp.diagonal(root, axis1=-2, axis2=-1))
    return jnp.tril(root, -1) + diagonal[..., None] * jnp.eye(root.shape[-1], dtype=root.dtype)


def function_moments(parameters: Parameters, latents: Array) -> tuple[Array, Array]:
    """Compute mean (D, B) and variance (D or 1, B) of the functions at latents (B, Q)."""
    kernel, inducing = parameters.kernel, parameters.inducing
    amplitude = jnp.exp(kernel.log_amplitude)
    gram = kernel(inducing, inducing) + JITTER * amplitude * jnp.eye(len(inducing), dtype=inducing.dtype)
    a = solve_triangular(jnp.linalg.cholesky(gram), kernel(inducing, latents), lower=True)
    spread = jnp.einsum("ib,dij->djb", a, triangular(parameters.root))
    variance = amplitude - jnp.sum(a**2, axis=0) + jnp.sum(spread**2, axis=1)
    return parameters.bias + parameters.mean.T @ a, variance


def divergence_of_functions(parameters: Parameters) -> Array:
    """Compute sum_d KL(q(v_d) || N(0, I)).

    |R|^2 - 2 log det R - m counts once for each of the D columns.
    """
    n_inducing, n_columns = parameters.mean.shape
    log_det = jnp.sum(jnp.diagonal(parameters.root, axis1=-2, axis2=-1), axis=-1)
    covariances = jnp.sum(triangular(parameters.root) ** 2, axis=(1, 2)) - 2.0 * log_det - n_inducing
    return 0.5 * (jnp.sum(parameters.mean**2) + n_columns * jnp.mean(covariances))


def divergence_of_latents(location: Array, log_std: Array) -> Array:
    """Compute sum_n KL(q(x_n) || N(0, I)) over the given rows."""
    return 0.5 * jnp.sum(location**2 + jnp.exp(2.0 * log_std) - 2.0 * log_std - 1.0)


@dataclass(frozen=True)
class SparseProcess:
    """Model of the training loop. A batch holds row numbers (B,) and those rows (B, D)."""

    likelihood: Likelihood
    n_rows: int

    def expected_log_likelihood(self, parameters: Parameters, latents: Array, y: Array) -> Array:
        """Compute the sum over rows y (B, D) and columns of E log p(y_nd | f_nd), given latents."""
        mean, variance = function_moments(parameters, latents)
        variance = jnp.broadcast_to(variance, mean.shape)
        return jnp.sum(self.likelihood.expectations(y.T, mean, variance, parameters.learned).value)

    def bound(self, parameters: Parameters, noise: Array, rows: Array, y: Array) -> Array:
        """Estimate the bound from some rows and x = location + std noise."""
        location, log_std = parameters.location[rows], parameters.log_std[rows]
        latents = location + jnp.exp(log_std) * noise
        of_rows = self.expected_log_likelihood(parameters, latents, y)
        of_rows -= divergence_of_latents(location, log_std)
        return self.n_rows / len(rows) * of_rows - divergence_of_functions(parameters)

    def loss(self, parameters: Parameters, state: Any, key: Array, batch: Any) -> tuple[Array, Any]:
        rows, y = batch
        noise = jax.random.normal(key, (len(rows), parameters.location.shape[1]), y.dtype)
        return -self.bound(parameters, noise, rows, y) / y.shape[1] / self.n_rows, state

    def adjust(self, parameters: Parameters, state: Any) -> Parameters:
        return parameters


class GPLVMSVI(BaseEstimator):
    """Gaussian process latent variable model by stochastic variational inference.

    Latents start at the leading principal components, of log(1 + y) for counts, and inducing points at the
    centres of clusters of them.

    Parameters
    ----------
    n_components : int
        Number of latent dimensions.
    likelihood : {"gaussian", "bernoulli", "poisson", "negative_binomial"}
        Gaussian columns are centred and divided by one common number, and share a noise variance.
    n_inducing : int
        Number of inducing points.
    n_epochs, batch_size, learning_rate
        Greatest number of epochs, and the steps of Adam.
    random_state : int, RandomState or None
        Source of randomness.

    Attributes
    ----------
    embedding_, embedding_std_ : ndarray (N, n_components)
        Means and standard deviations of q(x_n).
    length_scales_ : ndarray (n_components,)
        Lengths of the kernel.
    bound_history_ : ndarray
        The bound per entry in every epoch.

    References
    ----------
    Lalchand, Ravuri and Lawrence (2022), Generalised GPLVM with stochastic variational inference.
    """

    def __init__(
        self,
        n_components: int = 2,
        *,
        likelihood: str = "gaussian",
        n_inducing: int = 32,
        n_epochs: int = 500,
        batch_size: int = 128,
        learning_rate: float = 0.01,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.likelihood = likelihood
        self.n_inducing = n_inducing
        self.n_epochs = n_epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.random_state = random_state

    def fit_transform(self, Y: Any) -> FloatArray:
        """Fit Y (N, D) and return the embedding (N, n_components)."""
        name = standard_name(self.likelihood)
        if name not in KINDS:
            raise ValueError(f"likelihood={self.likelihood!r} is not known. Use one of {KINDS}.")
        Y, likelihood = check_rows(Y), LIKELIHOODS[name]()
        likelihood.check(Y, [f"column {column}" for column in range(Y.shape[1])])
        location, scale = likelihood.units(Y)
        Y = (Y - location) / scale
        rng = check_random_state(self.random_state)
        with in_float64():
            start = starting_point(Y, likelihood, self.n_components, self.n_inducing, rng)
            training = Training(self.n_epochs, self.batch_size, self.learning_rate)
            data = jnp.arange(len(Y)), jnp.asarray(Y)
            fit = train(SparseProcess(likelihood, len(Y)), start, data, training, random_key(rng))
            self.embedding_ = np.array(fit.parameters.location)
            self.embedding_std_ = np.exp(np.array(fit.parameters.log_std))
            self.length_scales_ = np.exp(np.array(fit.parameters.kernel.log_length))
        self.bound_history_ = -np.array(fit.losses)
        return self.embedding_

    def kernel_matrix(self) -> FloatArray:
        """Compute the kernel between all rows (N, N), without its amplitude."""
        scaled = self.embedding_ / self.length_scales_
        return np.exp(-0.5 * cdist(scaled, scaled, "sqeuclidean"))


def starting_point(
    Y: FloatArray, likelihood: Likelihood, n_components: int, n_inducing: int, rng: np.random.RandomState
) -> Parameters:
    """Return the first parameters.

    Latents are principal components of unit variance, inducing points centres of clusters of them, and
    functions constant.
    """
    n_rows, n_columns = Y.shape
    latents = principal_components(likelihood.working(Y), n_components, rng)
    n_inducing = min(n_inducing, n_rows)
    centres = KMeans(n_inducing, n_init="auto", random_state=rng).fit(latents).cluster_centers_
    bias, learned = likelihood.start(Y, {})
    return Parameters(
        location=jnp.asarray(latents),
        log_std=jnp.full(latents.shape, _START_LOG_STD),
        inducing=jnp.asarray(centres),
        kernel=Kernel(jnp.zeros(()), jnp.zeros(n_components)),
        mean=jnp.asarray(0.01 * rng.standard_normal((n_inducing, n_columns))),
        root=jnp.zeros((1 if likelihood.name == "gaussian" else n_columns, n_inducing, n_inducing)),
        bias=jnp.asarray(bias)[:, None],
        learned={name: jnp.asarray(value)[:, None] for name, value in learned.items()},
    )


def principal_components(Y: FloatArray, n_components: int, rng: np.random.RandomState) -> FloatArray:
    """Compute scores of unit variance, with small noise in directions that the data lack."""
    latents = 0.1 * rng.standard_normal((len(Y), n_components))
    scores = PCA(min(n_components, *Y.shape), random_state=rng).fit_transform(Y)
    spread = scores.std(axis=0)
    present = spread > 1e-9 * spread.max(initial=0.0)
    latents[:, : scores.shape[1]][:, present] = scores[:, present] / spread[present]
    return latents
