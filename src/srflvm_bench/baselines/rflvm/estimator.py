"""Estimator: chains, the rule by which they stop, and the summary of their draws."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from numbers import Integral, Real
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state, check_scalar
from sklearn.utils.validation import validate_data

from srflvm._typing import FloatArray
from srflvm.exceptions import warn_caller
from srflvm.likelihoods.columns import standard_name
from srflvm.numerics.features import fourier_features
from srflvm.numerics.jit import in_float64
from srflvm_bench.baselines.rflvm import diagnostics
from srflvm_bench.baselines.rflvm.chains import Chains
from srflvm_bench.baselines.rflvm.families import FAMILIES
from srflvm_bench.baselines.rflvm.start import gaussian_units
from srflvm_bench.baselines.rflvm.sweep import Trace

_SWEEPS_AT_ONCE = 20
_FEWEST_SWEEPS = 100
_LARGEST_RHAT = 1.05
_SMALLEST_ESS = 50.0
_N_DISTANCES = 5
_MOST_KERNELS = 20


class SweepProgress(NamedTuple):
    """Report that callbacks get after every few sweeps of a chain."""

    chain: int
    sweep: int
    n_sweeps: int
    log_joint: float
    seconds: float


class RFLVM(BaseEstimator):
    """Random feature latent variable model by Markov chain Monte Carlo.

    Every variable has a move that leaves the posterior invariant: assignments of frequencies to clusters move
    by collapsed Gibbs steps, frequencies and latents by elliptical slices, weights by Gibbs steps (with
    Pólya-gamma variables for logistic likelihoods), noise, amplitude and dispersions by their conditionals.
    The original sets latents to their best values instead of sampling them, and fixes the amplitude at one.

    A fit stops when split R-hat of the log joint density over the kept draws is below 1.05 and their
    effective sample size above 50, after `n_burn + n_samples` sweeps, or after `max_seconds`. Of s sweeps the
    first min(s / 2, n_burn) are not kept.

    Parameters
    ----------
    n_components : int, default=2
    n_frequencies : int, default=50
        The number of features is twice this.
    likelihood : {"gaussian", "negative_binomial", "bernoulli", "poisson", "multinomial"}, default="gaussian"
    n_burn, n_samples : int, default=1000
    n_chains : int, default=1
        Run in turn, 20 sweeps each; diagnostics compare them, and the embedding comes from the one whose log
        joint density is highest on average.
    max_seconds : float or None, default=None
        Limit that is checked every 20 sweeps.
    random_state : int, RandomState instance or None, default=None
    callbacks : sequence of callables, default=()
        Called with a `SweepProgress` every 20 sweeps; one that returns True ends all chains.

    Attributes
    ----------
    embedding_ : (N, n_components)
        Mean of the kept draws of the best chain, each turned or mirrored towards its most probable one.
    most_probable_draw_ : (N, n_components)
        The kept draw of the best chain at which the log joint density is highest.
    draws_, frequency_draws_ : (n_kept, N, n_components), (n_kept, n_frequencies, n_components)
        The draws of which it is the mean, and those of the frequencies, turned with them.
    log_joint_ : (n_chains, n_sweeps)
        Log joint density after every sweep, up to a constant.
    rhat_, ess_ : dict
        Split R-hat and effective sample size over the kept sweeps of all chains: of the log joint density,
        number of clusters, amplitude, and distances between a few pairs of rows.
    converged_ : bool
    n_iter_ : int
        Sweeps of each chain.
    seconds_per_sweep_ : float
        Seconds of one chain, without the first 20 sweeps, which include compilation, unless there are no
        others.
    """

    def __init__(
        self,
        n_components: int = 2,
        n_frequencies: int = 50,
        likelihood: str = "gaussian",
        n_burn: int = 1000,
        n_samples: int = 1000,
        n_chains: int = 1,
        max_seconds: float | None = None,
        random_state: Any = None,
        callbacks: Sequence[Callable[[SweepProgress], bool | None]] = (),
    ):
        self.n_components = n_components
        self.n_frequencies = n_frequencies
        self.likelihood = likelihood
        self.n_burn = n_burn
        self.n_samples = n_samples
        self.n_chains = n_chains
        self.max_seconds = max_seconds
        self.random_state = random_state
        self.callbacks = callbacks

    def fit_transform(self, Y: Any) -> FloatArray:
        """Run the chains on Y (N, M), NaN where an entry is missing, and return the embedding."""
        self._run(Y, keeps_functions=False)
        return self.embedding_

    def reconstruct(self, Y: Any) -> FloatArray:
        """Fit the entries of Gaussian data that are not NaN and return the posterior mean of all (N, M).

        It is the mean of f over the kept sweeps of the best chain, in the units of Y.
        """
        if standard_name(self.likelihood) != "gaussian":
            raise ValueError("Only likelihood='gaussian' reconstructs entries.")
        chains, best = self._run(Y, keeps_functions=True)
        location, scale = gaussian_units(np.asarray(Y, np.float64))
        return location + scale * chains.mean_functions(best, self._n_dropped(self.n_iter_))

    def kernel_matrix(self) -> FloatArray:
        """Compute the kernel between all rows (N, N), without its amplitude.

        It is the mean over kept draws, which are thinned to 20 at most.
        """
        chosen = np.unique(np.linspace(0, len(self.draws_) - 1, _MOST_KERNELS).astype(int))
        features = [fourier_features(self.draws_[i], self.frequency_draws_[i]) for i in chosen]
        return np.mean([phi @ phi.T for phi in features], axis=0)

    def _run(self, Y: Any, keeps_functions: bool) -> tuple[Chains, int]:
        """Fit, and return the chains and the number of the best one."""
        self._check_parameters()
        Y = validate_data(self, Y, dtype=np.float64, ensure_all_finite="allow-nan", ensure_min_samples=2)
        Y = np.asarray(Y)
        _check_support(Y, standard_name(self.likelihood))
        with in_float64():
            chains = self._run_chains(Y, keeps_functions)
        best = self._summarise(chains.trace())
        if not self.converged_:
            warn_caller(
                f"The chains did not converge in {self.n_iter_} sweeps (R-hat {self.rhat_['log_joint']:.3f}, "
                f"effective sample size {self.ess_['log_joint']:.0f}): increase n_burn and n_samples.",
                ConvergenceWarning,
            )
        return chains, best

    def _check_parameters(self) -> None:
        """Refuse parameters that cannot be used."""
        if standard_name(self.likelihood) not in FAMILIES:
            listed = ", ".join(map(repr, FAMILIES))
            raise ValueError(f"likelihood={self.likelihood!r} is not known. Choose one of {listed}.")
        for name in ("n_components", "n_frequencies", "n_samples", "n_chains", "n_burn"):
            check_scalar(getattr(self, name), name, Integral, min_val=int(name != "n_burn"))
        if self.max_seconds is not None:
            check_scalar(self.max_seconds, "max_seconds", Real, min_val=0.0, include_boundaries="neither")

    def _run_chains(self, Y: FloatArray, keeps_functions: bool) -> Chains:
        """Run all chains until they agree, a callback stops them, or the last sweep is made."""
        rng = check_random_state(self.random_state)
        seeds = [rng.randint(2**31 - 1) for _ in range(self.n_chains)]
        sizes = self.n_components, self.n_frequencies
        chains = Chains(Y, standard_name(self.likelihood), *sizes, seeds, keeps_functions)
        most, begun = self.n_burn + self.n_samples, time.perf_counter()
        is_stopped, compiled = False, begun
        while chains.n_sweeps < most and not is_stopped:
            chains.advance(min(_SWEEPS_AT_ONCE, most - chains.n_sweeps))
            if chains.n_sweeps <= _SWEEPS_AT_ONCE:
                compiled = time.perf_counter()
            is_late = self.max_seconds is not None and time.perf_counter() - begun > self.max_seconds
            is_stopped = self._report(chains, most, begun) or self._has_converged(chains) or is_late
        n_timed = chains.n_sweeps - min(_SWEEPS_AT_ONCE, most)
        elapsed = time.perf_counter() - (compiled if n_timed else begun)
        self.seconds_per_sweep_ = elapsed / self.n_chains / (n_timed or chains.n_sweeps)
        return chains

    def _report(self, chains: Chains, most: int, begun: float) -> bool:
        """Call the callbacks and return whether one of them stops the chains."""
        seconds, log_joint = time.perf_counter() - begun, chains.log_joint[:, -1]
        stops = [
            callback(SweepProgress(chain, chains.n_sweeps, most, float(last), seconds))
            for chain, last in enumerate(log_joint)
            for callback in self.callbacks
        ]
        return any(stop is True for stop in stops)

    def _has_converged(self, chains: Chains) -> bool:
        """Return whether the kept draws satisfy the rule by which chains stop."""
        if chains.n_sweeps < _FEWEST_SWEEPS:
            return False
        kept = chains.log_joint[:, self._n_dropped(chains.n_sweeps) :]
        is_mixed = diagnostics.split_rhat(kept) < _LARGEST_RHAT
        return is_mixed and diagnostics.effective_sample_size(kept) > _SMALLEST_ESS

    def _n_dropped(self, n_sweeps: int) -> int:
        """Return how many of the first sweeps are not kept."""
        return min(n_sweeps // 2, self.n_burn)

    def _summarise(self, trace: Trace) -> int:
        """Set fitted attributes from the trace of all chains and return the number of the best one."""
        self.log_joint_ = trace.log_joint
        self.n_iter_ = trace.log_joint.shape[1]
        kept = Trace(*(part[:, self._n_dropped(self.n_iter_) :] for part in trace))
        watched = _watched(kept)
        self.rhat_ = {name: diagnostics.split_rhat(chains) for name, chains in watched.items()}
        self.ess_ = {name: diagnostics.effective_sample_size(chains) for name, chains in watched.items()}
        is_mixed = self.rhat_["log_joint"] < _LARGEST_RHAT
        self.converged_ = bool(is_mixed and self.ess_["log_joint"] > _SMALLEST_ESS)
        best = int(np.argmax(kept.log_joint.mean(axis=1)))
        most_probable = kept.latents[best, np.argmax(kept.log_joint[best])]
        self.most_probable_draw_: FloatArray = most_probable
        turns = diagnostics.alignments(kept.latents[best], most_probable)
        self.draws_: FloatArray = kept.latents[best] @ turns
        self.frequency_draws_: FloatArray = kept.frequencies[best] @ turns
        self.embedding_: FloatArray = self.draws_.mean(axis=0)
        return best


def _watched(kept: Trace) -> dict[str, FloatArray]:
    """Return quantities (chains, sweeps) that do not change when X turns.

    Distances are those between rows spread evenly over the table.
    """
    rows = np.unique(np.linspace(0, kept.latents.shape[2] - 1, _N_DISTANCES + 1).astype(int))
    steps = np.diff(kept.latents[:, :, rows], axis=2)
    distances = np.sqrt(np.sum(steps**2, axis=-1))
    named = {f"distance_{a}_{b}": distances[:, :, i] for i, (a, b) in enumerate(pairwise(rows.tolist()))}
    scalars = {
        name: np.asarray(getattr(kept, name), float) for name in ("log_joint", "n_clusters", "amplitude")
    }
    return scalars | named


def _check_support(Y: FloatArray, likelihood: str) -> None:
    """Refuse entries that the likelihood cannot produce."""
    seen = Y[~np.isnan(Y)]
    if np.isnan(Y).all(axis=0).any():
        raise ValueError("Y has a column without any observed entry. Leave it out.")
    if likelihood == "bernoulli" and not np.isin(seen, (0.0, 1.0)).all():
        raise ValueError("likelihood='bernoulli' needs entries 0 and 1. Binarise Y first.")
    if likelihood in ("negative_binomial", "poisson", "multinomial") and (
        (seen < 0.0).any() or (seen != np.round(seen)).any()
    ):
        raise ValueError(f"likelihood={likelihood!r} needs counts, whole numbers from zero on.")
    if likelihood == "multinomial" and (np.isnan(Y).any() or Y.shape[1] < 2):
        raise ValueError("likelihood='multinomial' needs at least two columns and no missing entries.")
