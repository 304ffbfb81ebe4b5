"""Moves of a sweep that depend on the likelihood: weights, frequencies, latents and its own parameters."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array
from jax.scipy.special import gammaln

from srflvm.numerics import polya_gamma
from srflvm_bench.baselines.rflvm.frequencies import update_exact, update_shared, update_sites
from srflvm_bench.baselines.rflvm.model import (
    Data,
    Prior,
    State,
    draw_inverse_gamma,
    features,
    functions,
    log_inverse_gamma,
    update_latents,
    weight_variances,
)
from srflvm_bench.baselines.rflvm.slices import elliptical_slice
from srflvm_bench.baselines.rflvm.weights import centre, draw_shared, draw_sites, regress, slice_around

# Steps of iteratively reweighted least squares that find the ellipses of Poisson weights.
_POISSON_STEPS = 3


class Gaussian:
    """Gaussian entries, y ~ N(f, noise).

    Missing entries are drawn at the start of every sweep. Weights and noise move by Gibbs steps, and the
    moves of W and X need the data through Y H and H'H only.
    """

    def sweep(self, key: Array, state: State, data: Data, prior: Prior) -> State:
        keys = jax.random.split(key, 5)
        y = self._complete(keys[0], state, data)
        variances = weight_variances(state, prior)
        phi = features(state.latents, state.frequencies)
        state = state._replace(weights=draw_shared(keys[1], phi, y, state.noise, variances))
        square = jnp.sum((y - phi @ state.weights.T) ** 2)
        noise = draw_inverse_gamma(keys[2], prior.noise, jnp.asarray(float(y.size)), square)
        state = update_shared(keys[3], state._replace(noise=noise), y)
        gram, cross = state.weights.T @ state.weights, y @ state.weights
        return update_latents(
            keys[4], state, lambda phi: jnp.sum(phi * (cross - 0.5 * phi @ gram), axis=1) / noise
        )

    def _complete(self, key: Array, state: State, data: Data) -> Array:
        """Draw the missing entries."""
        draw = jax.random.normal(key, data.y.shape, data.y.dtype)
        filled = functions(state) + jnp.sqrt(state.noise) * draw
        return jnp.where(data.observed > 0.0, data.y, filled)

    def log_prob(self, data: Data, f: Array, state: State) -> Array:
        """Compute log p(y | f) of all entries (N, M) up to a constant."""
        return -0.5 * ((data.y - f) ** 2 / state.noise + jnp.log(state.noise))

    def log_own_prior(self, state: State, prior: Prior) -> Array:
        return log_inverse_gamma(state.noise, prior.noise)


class Logistic:
    """Binomial entries, y ~ Binomial(trials, 1 / (1 + exp(-f))): Bernoulli, and the multinomial by sticks.

    Given omega ~ PG(trials, f) the likelihood is exp((y - trials / 2) f - omega f^2 / 2). Weights and
    frequencies move given omega. Latents and dispersions move under the likelihood itself, without omega,
    which is drawn again in the next sweep.
    """

    def sweep(self, key: Array, state: State, data: Data, prior: Prior) -> State:
        keys = jax.random.split(key, 5)
        trials = data.observed * self._trials(data, state)
        # their own error is far above single precision
        number, tilt = trials.astype(jnp.float32), functions(state).astype(jnp.float32)
        omega = polya_gamma.sample(keys[0], number, tilt).astype(trials.dtype)
        shift = data.observed * data.y - 0.5 * trials
        phi = features(state.latents, state.frequencies)
        weights = draw_sites(keys[1], phi, omega, shift, weight_variances(state, prior))
        state = update_sites(keys[2], state._replace(weights=weights), omega, shift)
        state = update_latents(keys[3], state, _row_likelihood(self.log_prob, data, state))
        return self._update_own(keys[4], state, data, prior)

    def log_prob(self, data: Data, f: Array, state: State) -> Array:
        return data.y * f - self._trials(data, state) * jax.nn.softplus(f)

    def log_own_prior(self, state: State, prior: Prior) -> Array:
        return jnp.zeros(())

    def _trials(self, data: Data, state: State) -> Array:
        return jnp.broadcast_to(data.trials, data.y.shape)

    def _update_own(self, key: Array, state: State, data: Data, prior: Prior) -> State:
        return state


class NegativeBinomial(Logistic):
    """Counts with p(y) = Gamma(y + r) / (Gamma(r) y!) p^y (1 - p)^r, p = 1 / (1 + exp(-f)): y + r trials.

    The logarithm of each r_m moves by elliptical slices under its normal prior, given f, and then with the
    mean given. The mean of y is r exp(f), which many counts determine well: given f, r hardly moves, and
    given the Polya-gamma variables, f hardly does. So in the second move the bias changes against log r, at a
    fixed level log r_m + bias_m. As (log r, bias) -> (log r, level) keeps volumes, its target is the joint
    density with bias = level - log r.
    """

    def log_prob(self, data: Data, f: Array, state: State) -> Array:
        r = jnp.exp(state.log_dispersion)
        return gammaln(data.y + r) - gammaln(r) + super().log_prob(data, f, state)

    def log_own_prior(self, state: State, prior: Prior) -> Array:
        mean, std = prior.log_dispersion
        return -0.5 * jnp.sum(((state.log_dispersion - mean) / std) ** 2)

    def _trials(self, data: Data, state: State) -> Array:
        return data.y + jnp.exp(state.log_dispersion)

    def _update_own(self, key: Array, state: State, data: Data, prior: Prior) -> State:
        alone_key, level_key = jax.random.split(key)
        softplus = jnp.sum(data.observed * jax.nn.softplus(functions(state)), axis=0)

        def given_functions(log_r: Array) -> Array:
            r = jnp.exp(log_r)
            return _log_rising_factorials(data, r) - r * softplus

        log_r = _move_dispersions(alone_key, state.log_dispersion, prior, given_functions)
        return _update_at_level(level_key, state._replace(log_dispersion=log_r), data, prior)


def _update_at_level(key: Array, state: State, data: Data, prior: Prior) -> State:
    """Move dispersions and biases at a fixed log r_m + bias_m (see `NegativeBinomial`)."""
    bias = state.weights[:, -1]
    level, waves = state.log_dispersion + bias, functions(state) - bias

    def given_level(log_r: Array) -> Array:
        r, bias = jnp.exp(log_r), level - log_r
        f = waves + bias
        entries = jnp.sum(data.observed * (data.y * f - (data.y + r) * jax.nn.softplus(f)), axis=0)
        return _log_rising_factorials(data, r) + entries - 0.5 * bias**2 / prior.bias_variance

    log_r = _move_dispersions(key, state.log_dispersion, prior, given_level)
    return state._replace(log_dispersion=log_r, weights=state.weights.at[:, -1].set(level - log_r))


def _move_dispersions(
    key: Array, log_r: Array, prior: Prior, log_likelihood: Callable[[Array], Array]
) -> Array:
    """Move every log r (M,) by an elliptical slice under its prior; `log_likelihood` takes (M,) to (M,)."""
    mean, std = prior.log_dispersion
    auxiliary_key, slice_key = jax.random.split(key)
    auxiliary = std * jax.random.normal(auxiliary_key, log_r.shape)
    moved = elliptical_slice(
        slice_key,
        (log_r - mean)[:, None],
        auxiliary[:, None],
        lambda offset: log_likelihood(mean + offset[:, 0]),
    )
    return mean + moved[:, 0]


def _log_rising_factorials(data: Data, r: Array) -> Array:
    """Compute the sum over rows of log Gamma(y + r) / Gamma(r) = log r (r + 1) ... (r + y - 1), (M,).

    Each factor r + k occurs as often as counts are above k, which `data.tails` holds where it is short.
    """
    if data.tails is None:
        return jnp.sum(data.observed * (gammaln(data.y + r) - gammaln(r)), axis=0)
    factors = r[:, None] + jnp.arange(data.tails.shape[1])
    return jnp.sum(data.tails * jnp.log(factors), axis=1)


class Poisson:
    """Counts, y ~ Poisson(exp(f)), without augmentation.

    All variables move by elliptical slices under the likelihood itself. The ellipses of the weights come from
    a few steps of reweighted least squares.
    """

    def sweep(self, key: Array, state: State, data: Data, prior: Prior) -> State:
        keys = jax.random.split(key, 3)
        phi, variances = features(state.latents, state.frequencies), weight_variances(state, prior)
        weights = slice_around(
            keys[0],
            state.weights,
            phi,
            self._sites(phi, data, variances),
            variances,
            lambda f: jnp.sum(data.observed * self.log_prob(data, f, state), axis=0),
        )
        state = state._replace(weights=weights)
        state = update_exact(keys[1], state, lambda f: jnp.sum(data.observed * self.log_prob(data, f, state)))
        return update_latents(keys[2], state, _row_likelihood(self.log_prob, data, state))

    def _sites(self, phi: Array, data: Data, variances: Array) -> tuple[Array, Array]:
        """Approximate the likelihood by a quadratic, first at log(y + 1/2), then at the best fit before.

        The precision is exp(f) and the shift y - exp(f) + exp(f) f. They depend on the data and the features
        alone.
        """

        def approximate(f: Array, _: None) -> tuple[Array, None]:
            precision, shift = sites(f)
            regression = regress(phi, precision, shift, variances)
            return phi @ centre(regression).T, None

        def sites(f: Array) -> tuple[Array, Array]:
            mean = data.observed * jnp.exp(jnp.clip(f, -20.0, 20.0))
            return mean, data.observed * data.y - mean + mean * f

        f, _ = jax.lax.scan(approximate, jnp.log(data.y + 0.5), None, length=_POISSON_STEPS)
        return sites(f)

    def log_prob(self, data: Data, f: Array, state: State) -> Array:
        return data.y * f - jnp.exp(f)

    def log_own_prior(self, state: State, prior: Prior) -> Array:
        return jnp.zeros(())


def _row_likelihood(
    log_prob: Callable[[Data, Array, State], Array], data: Data, state: State
) -> Callable[[Array], Array]:
    """Return the function from features (N, L) to the log likelihood of the rows (N,)."""
    return lambda phi: jnp.sum(data.observed * log_prob(data, phi @ state.weights.T, state), axis=1)


FAMILIES = {
    "gaussian": Gaussian(),
    "bernoulli": Logistic(),
    "multinomial": Logistic(),
    "negative_binomial": NegativeBinomial(),
    "poisson": Poisson(),
}
