"""Fit of all rows at once: starts, rounds in which they are compared, sweeps, and the posterior."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from srflvm import bcd
from srflvm._typing import FloatArray
from srflvm.exceptions import NumericalError
from srflvm.inference import starts
from srflvm.inference.params import LANDMARK_STARTS, Options
from srflvm.inference.problems.gaussian import Problem
from srflvm.inference.progress import PILOT, Callback, Progress
from srflvm.inference.result import Fall, FitResult
from srflvm.model.elbo import (
    STEPS_PER_SWEEP,
    Settings,
    StartingPoint,
    build_model,
    cholesky_factor,
    free_factor,
    initial_state,
)
from srflvm.numerics.jit import in_float64, one_blas_thread
from srflvm.numerics.shared_regression import smallest_ratio
from srflvm.parallel.communicator import report
from srflvm.posterior.base import Posterior
from srflvm.posterior.chunks import Embedding

SWEEPS_PER_ROUND = 3

# Starts are compared for this many rounds, or until this share of the sweeps is made: long for small data,
# where a start that begins slowly costs little to follow.
MOST_ROUNDS = 6
_COMPARED_SHARE = 0.5

# The share of the sweeps that a fit of all rows skips when it goes on from landmarks, and that a fit by sites
# skips when it goes on from its pilot.
_LANDMARK_SHARE = 0.8
_PILOT_SHARE = 0.4

# A run with more dropped steps than this share is repeated with safer settings.
_TOLERATED_REJECTIONS = 0.2


@dataclass(frozen=True)
class _Candidate:
    """Hold a run that began at one start, and how many sweeps it may skip because it began near the end."""

    name: str
    key: jax.Array
    run: bcd.Run
    n_skipped: int = 0


def fit(
    problem: Problem, options: Options, rng: np.random.RandomState, earlier: FitResult | None = None
) -> FitResult:
    """Fit a problem, from the state of an `earlier` fit if one is given; try safer settings in need."""
    if earlier is not None:
        _check_earlier(earlier.state, earlier.posterior, problem, options)
    with in_float64():
        for some_options in (options, _safer(options)):
            attempt = _Attempt(problem, some_options, rng)
            candidate, bounds = attempt.begin(earlier)
            candidate = attempt.finish(candidate)
            if attempt.is_sound(candidate.run):
                result = attempt.result(candidate, bounds)
                if result.is_finite:
                    return result
    raise NumericalError(
        f"{candidate.run.n_rejected} steps were not finite, or what they led to was not, also in float64 "
        "with a tenth of the learning rate. Look for extreme outliers in Y, or give another `init`."
    )


def _safer(options: Options) -> Options:
    return replace(options, dtype=np.dtype(np.float64), learning_rate=0.1 * options.learning_rate)


def _check_earlier(state: bcd.State, posterior: Posterior, problem: Problem, options: Options) -> None:
    """Refuse to go on from the state of an earlier fit of other shapes, likelihoods, columns or inference."""
    axes = {"full": 3, "diag": 2}
    wanted = {
        "rows and components": ((problem.n_rows, options.n_components), state["latent_mean"].shape),
        "frequencies and mixture components": (
            (options.n_frequencies, options.n_mixture),
            state["logits"].shape,
        ),
        "axes of the latent covariances": (
            axes[options.latent_covariance_type],
            state["latent_factor"].ndim,
        ),
        "axes of the mixture covariances": (axes[options.covariance_type], state["mixture_factor"].ndim),
    }
    for what, (now, before) in wanted.items():
        if now != before:
            raise ValueError(
                f"warm_start=True goes on from the last fit, which had {what} {before}, but Y and the "
                f"parameters now ask for {now}. Set warm_start=False or the parameters back."
            )
    before = None if posterior.shares_covariance else posterior.layout
    groups = [
        [(g.likelihood, g.columns.tolist(), g.channels) for g in layout.groups] if layout else []
        for layout in (before, problem.layout)
    ]
    has_other_entries = any(
        (name in state) != (name in problem.layer.owns) for name in ("weight_mean", "log_affine")
    )
    if groups[0] != groups[1] or has_other_entries:
        raise ValueError(
            "warm_start=True goes on from the last fit, but the likelihoods, the columns that have them, the "
            "affine part or the inference are not those of that fit. Set warm_start=False or set them back."
        )


class _Attempt:
    """Make one attempt at fitting one problem, with given options."""

    def __init__(self, problem: Problem, options: Options, rng: np.random.RandomState):
        self.problem, self.options, self.rng = problem, options, rng
        self.communicator = problem.communicator
        self.n_rejected = 0
        self.falls: list[Fall] = []
        self.compared_on_pilot = False
        self.settings = Settings(problem.layer, options.frequency_sampling, options.n_samples)
        self.model = build_model(self.settings)
        self.fit_data = problem.fit_data(options.dtype)

    # ---- starts -------------------------------------------------------------------------------------

    def begin(self, earlier: FitResult | None) -> tuple[_Candidate, dict[str, float]]:
        """Begin at the best start, or where an earlier fit ended."""
        return self.select_start() if earlier is None else (self.begin_again(earlier), {})

    def select_start(self) -> tuple[_Candidate, dict[str, float]]:
        """Return the best candidate among the starts asked for, and the bounds that all of them reached."""
        if self.options.has_affine:
            return self._compare(self._start_names())
        if self.problem.n_rows > self.options.n_landmarks and self.options.init_name in LANDMARK_STARTS:
            return self._begin_from_landmarks()
        pilot = self.problem.pilot()
        if pilot is not None and self.options.init_name != "array":
            return self._begin_from_pilot(pilot)
        return self._compare(self._start_names())

    def begin_again(self, earlier: FitResult) -> _Candidate:
        """Go on from the state of an earlier fit, in this fit's precision."""
        state = earlier.state
        latents = {n: jnp.asarray(state[n], self.options.dtype) for n in ("latent_mean", "latent_factor")}
        renewed = self.problem.renewed_state(state, earlier.posterior, self.options)
        return self._begin("warm", state | latents | renewed)

    def _start_names(self) -> list[str]:
        names = [self.options.init_name]
        if names == ["auto"]:
            names = starts.automatic_starts(self.problem.n_rows, self.options.n_components)
            if self.options.has_affine and self.problem.n_rows > self.options.n_landmarks:
                names = ["pca"]
        repeats = [""] + [f" {number}" for number in range(2, self.options.n_init + 1)]
        return [f"{name}{again}" for again in repeats for name in names]

    def _starting_latents(self, name: str) -> FloatArray:
        kind = name.split()[0]
        if kind == "array":
            return np.asarray(self.options.init, dtype=np.float64)
        return starts.LATENTS[kind](self.problem.working, self.options.n_components, self.rng)

    def _begin_named(self, name: str) -> _Candidate:
        """Begin at a start given by its name; with an affine part, PCA is Bayesian."""
        if name.split()[0] == "pca":
            point = self.problem.linear_start(self.options.n_components, self.rng)
            if point is not None:
                return self._begin_at_point(replace(point, name=name))
        return self._begin_at(name, self._starting_latents(name))

    def _begin_at(self, name: str, latents: FloatArray) -> _Candidate:
        options = self.options
        point = starts.starting_point(
            name,
            latents,
            self.problem.working,
            self.rng,
            n_frequencies=options.n_frequencies,
            smallest_ratio=smallest_ratio(self.problem.n_rows, options.dtype),
        )
        return self._begin_at_point(point)

    def _begin_at_point(self, point: StartingPoint) -> _Candidate:
        options = self.options
        state = initial_state(
            point,
            self.rng,
            n_frequencies=options.n_frequencies,
            n_mixture=options.n_mixture,
            covariance_type=options.covariance_type,
            latent_covariance_type=options.latent_covariance_type,
            dtype=options.dtype,
        )
        return self._begin(point.name, state | self.problem.layer_state(point, self.rng, options))

    def _begin(self, name: str, state: bcd.State) -> _Candidate:
        key = jax.random.key(self.rng.randint(2**31 - 1), impl="rbg")
        return _Candidate(name, key, self._sharded(bcd.begin(self.model, state)))

    def _begin_from_landmarks(self) -> tuple[_Candidate, dict[str, float]]:
        """Fit a random subset of the rows, embed all rows with its model, and go on from there."""
        index = np.sort(self.rng.permutation(self.problem.n_rows)[: self.options.n_landmarks])
        landmarks = self.problem.rows(index)
        result, numbers = self.communicator.by_first(lambda _: self._fit_landmarks(landmarks))
        self.rng.set_state(numbers)
        embedded = self.problem.embed(result.posterior)
        layer = self.problem.embedded_state(result.state, result.posterior, embedded, self.options)
        diagonal = self.options.latent_covariance_type == "diag"
        factor = free_factor(embedded.cholesky, diagonal)
        latents = {"latent_mean": embedded.mean, "latent_factor": factor}
        state = result.state | layer | {name: self._shard(own) for name, own in latents.items()}
        self.n_rejected += result.n_rejected
        self.falls += result.falls
        n_skipped = int(_LANDMARK_SHARE * self.options.max_iter)
        candidate = replace(self._begin(f"landmarks, {result.start}", state), n_skipped=n_skipped)
        if result.interrupted or result.stopped:
            # one sweep over all rows, for a bound on all of them; then no more
            candidate = _ended_like(self._advance(candidate, 1, self.options.stage), [result])
        share = self.problem.n_rows / len(index)
        return candidate, {name: share * bound for name, bound in result.start_elbos.items()}

    def _fit_landmarks(self, landmarks: Problem) -> tuple[FitResult, Any]:
        """Fit some rows, and return the result with the random numbers that come after it."""
        attempt = _Attempt(landmarks, replace(self.options, stage="landmarks"), self.rng)
        candidate, bounds = attempt.select_start()
        return attempt.result(attempt.finish(candidate), bounds), self.rng.get_state()

    def _begin_from_pilot(self, pilot: Problem) -> tuple[_Candidate, dict[str, float]]:
        """Fit the working data as if they were Gaussian, which is fast, and go on from its latents."""
        options = replace(self.options.pilot or self.options, stage=PILOT)
        attempt = _Attempt(pilot, options, self.rng)
        best, bounds = attempt.select_start()
        best = attempt.finish(best)
        self.n_rejected += attempt.n_rejected
        self.falls += attempt.falls
        state = best.run.state
        candidate = self._begin_at(best.name, np.asarray(state["latent_mean"], np.float64))
        own = candidate.run.state | {"latent_factor": state["latent_factor"]}
        n_skipped = int(_PILOT_SHARE * self.options.max_iter)
        candidate = replace(self._begin(best.name, own), n_skipped=n_skipped)
        if best.run.ended_early:
            candidate = _ended_like(self._advance(candidate, 1, self.options.stage), [best.run])
        self.compared_on_pilot = True
        share = self.problem.n_entries / pilot.n_entries
        behind = {name: share * (bound - max(bounds.values())) for name, bound in bounds.items()}
        return candidate, behind

    def _compare(self, names: list[str]) -> tuple[_Candidate, dict[str, float]]:
        """Run all starts round by round and return the one with the highest bound after the last.

        One that is further behind the best than it gains in a round is dropped, for it will hardly catch up.
        """
        candidates = self._first_round(names)
        bounds = self._bounds(candidates) if len(candidates) > 1 else {}
        ended = [candidate.run for candidate in candidates if candidate.run.ended_early]
        most_rounds = max(MOST_ROUNDS, int(_COMPARED_SHARE * self.options.max_iter / SWEEPS_PER_ROUND))
        for _ in range(most_rounds - 1):
            candidates = _without_hopeless(candidates)
            if len(candidates) == 1 or ended:
                break
            candidates = [self._round(candidate) for candidate in candidates]
            ended = [candidate.run for candidate in candidates if candidate.run.ended_early]
            bounds |= self._bounds(candidates)
        best = max(candidates, key=lambda candidate: candidate.run.best)
        return _ended_like(best, ended), bounds

    def _first_round(self, names: list[str]) -> list[_Candidate]:
        candidates: list[_Candidate] = []
        for name in names:
            candidate = self._begin_named(name)
            candidates.append(self._round(candidate) if len(names) > 1 else candidate)
            if candidates[-1].run.ended_early:
                break
        return candidates

    def _round(self, candidate: _Candidate) -> _Candidate:
        n_sweeps = min(SWEEPS_PER_ROUND, self.options.max_iter - candidate.run.n_sweeps)
        pilot = "pilot " if self.options.stage == PILOT else ""
        return self._advance(candidate, n_sweeps, f"{pilot}start {candidate.name}")

    def _bounds(self, candidates: list[_Candidate]) -> dict[str, float]:
        return {one.name: self.problem.in_data_units(one.run.best) for one in candidates}

    # ---- sweeps -------------------------------------------------------------------------------------

    def finish(self, candidate: _Candidate) -> _Candidate:
        """Go on to the end of the schedule."""
        if candidate.run.ended_early:
            return candidate
        n_sweeps = self.options.max_iter - candidate.n_skipped - candidate.run.n_sweeps
        finished = self._advance(candidate, n_sweeps, self.options.stage, self.options.tol)
        drop = bcd.fall(finished.run.history, self._window(candidate))
        if drop > 0.0:
            self.falls.append(Fall(self.options.stage, drop / self.problem.n_entries))
        return finished

    def _advance(self, candidate: _Candidate, n_sweeps: int, stage: str, tol: float = 0.0) -> _Candidate:
        """Make sweeps, or take them from checkpoints."""
        communicator, options = self.communicator, self.options
        reporters = [self._reporter(c, stage, candidate.n_skipped) for c in options.callbacks]
        is_interrupted = False

        def ask_to_stop(run: bcd.Run) -> bool:
            """Tell whether any callback of any process wants to stop, or Ctrl-C was pressed in any."""
            nonlocal is_interrupted
            report(f"{stage}, sweep {run.n_sweeps}")
            with communicator.apart():
                wishes = [bool(reporter(run)) for reporter in reporters]
            wants_to_stop, is_interrupted = communicator.anywhere(any(wishes), communicator.is_interrupted)
            return wants_to_stop or is_interrupted

        def advance(run: bcd.Run, n_sweeps: int, more_callbacks: Sequence[bcd.Callback]) -> bcd.Run:
            run = bcd.advance(
                self.model,
                self._sharded(run),
                candidate.key,
                self.fit_data,
                n_sweeps=n_sweeps,
                schedule=bcd.Schedule(options.learning_rate, options.max_iter, candidate.n_skipped),
                tolerance=lambda bound: tol * self.problem.information(self.problem.in_data_units(bound)),
                window=self._window(candidate),
                fewest_sweeps=int(options.fewest_share * options.max_iter) - candidate.n_skipped,
                callbacks=[ask_to_stop, *more_callbacks],
            )
            return replace(run, interrupted=run.interrupted or is_interrupted)

        with one_blas_thread(), communicator.jointly():
            if options.checkpoints is None:
                run = advance(candidate.run, n_sweeps, ())
            else:
                run = options.checkpoints.run_segment(
                    _label(candidate, n_sweeps, stage),
                    candidate.run,
                    n_sweeps,
                    advance,
                    communicator,
                    self._gathered,
                )
        run = self._sharded(run)
        self.n_rejected += run.n_rejected - candidate.run.n_rejected
        return replace(candidate, run=run)

    def _window(self, candidate: _Candidate) -> int:
        """Return of how many sweeps the mean is compared with that of as many before."""
        n_sweeps = self.options.max_iter - candidate.n_skipped
        return 5 if n_sweeps >= 20 else 3 if n_sweeps >= 10 else 2

    def _reporter(self, callback: Callback, stage: str, n_skipped: int) -> bcd.Callback:
        def tell(run: bcd.Run) -> bool | None:
            elbo = self.problem.in_data_units(run.history[-1])
            n_sweeps = self.options.max_iter - n_skipped
            return callback(
                Progress(stage, run.n_sweeps, n_sweeps, elbo, self.problem.n_entries, run.seconds)
            )

        return tell

    def is_sound(self, run: bcd.Run) -> bool:
        """Tell whether most steps of a run were finite."""
        n_steps = run.n_sweeps * (STEPS_PER_SWEEP + 1)
        return run.n_rejected <= _TOLERATED_REJECTIONS * n_steps and np.isfinite(run.best)

    # ---- the end ------------------------------------------------------------------------------------

    def result(self, candidate: _Candidate, bounds: dict[str, float]) -> FitResult:
        """Build the posterior from the best state, and collect all that is told of the fit."""
        run, n_rows = candidate.run, self.problem.n_rows
        names = ("latent_mean", "latent_factor")
        own = (self.communicator.own_rows(run.state[name], n_rows) for name in names)
        mean, factor = (array.astype(np.float64) for array in own)
        latents = Embedding(mean, cholesky_factor(factor))
        posterior, embedding = self.problem.build_posterior(run.state, latents, self.settings, self.rng)
        if self.compared_on_pilot:
            # its bounds are those of other data, and tell how far each start was behind the best
            first = next((bound for bound in run.history if np.isfinite(bound)), run.best)
            bounds = {name: self.problem.in_data_units(first) + behind for name, behind in bounds.items()}
        return FitResult(
            posterior=posterior,
            embedding=embedding,
            state=self._gathered(run).state,
            elbo=self.problem.in_data_units(run.best),
            history=np.array([self.problem.in_data_units(bound) for bound in run.history]),
            n_rejected=self.n_rejected,
            converged=run.converged,
            interrupted=run.interrupted,
            stopped=run.stopped,
            start=candidate.name,
            start_elbos=bounds,
            sizes=self.problem.row_sizes,
            falls=tuple(self.falls),
        )

    # ---- rows over processes ------------------------------------------------------------------------

    def _sharded(self, run: bcd.Run) -> bcd.Run:
        return self.communicator.shard_run(run, self.problem.n_rows)

    def _gathered(self, run: bcd.Run) -> bcd.Run:
        return self.communicator.gather_run(run, self.problem.n_rows)

    def _shard(self, own: FloatArray) -> jax.Array:
        return self.communicator.shard_rows(own.astype(self.options.dtype), self.problem.n_rows)


def _without_hopeless(candidates: list[_Candidate]) -> list[_Candidate]:
    """Return the candidates that may still overtake the best, and the best itself."""
    best = max(candidates, key=lambda candidate: candidate.run.best)
    return [one for one in candidates if one is best or best.run.best - one.run.best <= _gain_in_a_round(one)]


def _gain_in_a_round(candidate: _Candidate) -> float:
    """Return by how much the bound rises in a round, at the pace of the last; a first one has a rise less."""
    bounds = [bound for bound in candidate.run.history[-SWEEPS_PER_ROUND - 1 :] if np.isfinite(bound)]
    return SWEEPS_PER_ROUND * (bounds[-1] - bounds[0]) / (len(bounds) - 1) if len(bounds) > 1 else 0.0


def _label(candidate: _Candidate, n_sweeps: int, stage: str) -> str:
    """Return a text that tells one run of sweeps from all others of a fit."""
    first, key = candidate.run.n_sweeps, jax.random.key_data(candidate.key).tolist()
    skipped = f"{candidate.n_skipped} skipped"
    return f"{stage}, {candidate.name}: {n_sweeps} sweeps after {first}, {skipped}, key {key}"


def _ended_like(candidate: _Candidate, runs: Sequence[bcd.Run | FitResult]) -> _Candidate:
    """Return the candidate, marked as ended early by what ended any of the runs."""
    interrupted = candidate.run.interrupted or any(run.interrupted for run in runs)
    stopped = candidate.run.stopped or any(run.stopped for run in runs)
    return replace(candidate, run=replace(candidate.run, interrupted=interrupted, stopped=stopped))
