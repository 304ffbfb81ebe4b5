"""Chains that advance in turn, a few sweeps at a time."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import numpy as np

from srflvm._typing import FloatArray
from srflvm.numerics.jit import one_blas_thread, quickly_compiled
from srflvm_bench.baselines.rflvm.start import first_state, make_data, make_prior
from srflvm_bench.baselines.rflvm.sweep import Trace, run

_run = quickly_compiled(run, static_argnames=("prior", "likelihood", "n_sweeps"))


class Chains:
    """States of the chains, one for each seed, and their traces.

    `keeps_functions` also keeps the mean of f over the sweeps of every advance, (N, M) in float32.
    """

    def __init__(
        self,
        Y: FloatArray,
        likelihood: str,
        n_components: int,
        n_frequencies: int,
        seeds: Sequence[int],
        keeps_functions: bool,
    ) -> None:
        data = make_data(Y, likelihood)
        self._states = [first_state(Y, data, likelihood, n_components, n_frequencies, seed) for seed in seeds]
        self._keys = [jax.random.key(seed) for seed in seeds]
        self._arguments = data, make_prior(n_components, likelihood), likelihood
        self._pieces: list[list[Trace]] = [[] for _ in seeds]
        self._functions: list[list[FloatArray]] = [[] for _ in seeds]
        self._keeps_functions = keeps_functions
        self.n_sweeps = 0

    def advance(self, n_sweeps: int) -> None:
        """Run some sweeps of every chain."""
        for chain, state in enumerate(self._states):
            key = jax.random.fold_in(self._keys[chain], self.n_sweeps)
            with one_blas_thread():
                self._states[chain], piece, functions = _run(key, state, *self._arguments, n_sweeps=n_sweeps)
            self._pieces[chain].append(jax.tree.map(np.asarray, piece))
            if self._keeps_functions:
                self._functions[chain].append(np.asarray(functions, np.float32))
        self.n_sweeps += n_sweeps

    @property
    def log_joint(self) -> FloatArray:
        """Log joint densities (chains, sweeps)."""
        return np.stack([np.concatenate([piece.log_joint for piece in parts]) for parts in self._pieces])

    def trace(self) -> Trace:
        """Return the trace of all chains, in arrays (chains, sweeps, ...)."""
        chains = [
            Trace(*(np.concatenate(parts) for parts in zip(*pieces, strict=True))) for pieces in self._pieces
        ]
        return Trace(*(np.stack(parts) for parts in zip(*chains, strict=True)))

    def mean_functions(self, chain: int, n_dropped: int) -> FloatArray:
        """Compute the mean of f over the sweeps of a chain.

        Advances that began before `n_dropped` do not count, except the last.
        """
        lengths = np.array([len(piece.log_joint) for piece in self._pieces[chain]])
        begins = np.cumsum(lengths) - lengths
        is_kept = (begins >= n_dropped) | (begins == begins[-1])
        kept = [part for part, keep in zip(self._functions[chain], is_kept, strict=True) if keep]
        return np.average(np.asarray(kept, np.float64), axis=0, weights=lengths[is_kept])
