"""The course of a fit: starts, a race between them, the sweeps, and the frozen result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from srflvm import bcd, blocks, dealing, parallel, starts
from srflvm._types import FloatArray
from srflvm.compiling import one_blas_thread
from srflvm.computing import in_float64
from srflvm.embedding import Embedding
from srflvm.evidence import smallest_ratio
from srflvm.exceptions import NumericalError
from srflvm.fit_contract import Fall, Fitted, Options
from srflvm.problems import Problem
from srflvm.progress import PILOT, Callback, Progress

# More rows than this: a neighbour start is usually made on a random subset whose model places the others.
MOST_LANDMARKS = 5000
LANDMARK_STARTS = ("auto", "neighbors")

# The share of the sweeps that a fit of all rows skips when it goes on from landmarks, and that a fit by sites
# skips when it goes on from its pilot.
_LANDMARK_SHARE = 0.8
_PILOT_SHARE = 0.4

SWEEPS_PER_HEAT = 3

# A race goes on for this many heats, or until this share of the sweeps is made: long for small data, where a
# start that begins slowly costs little to follow.
MOST_HEATS = 6
_RACE_SHARE = 0.5

# A run with more dropped steps than this share is repeated with safer settings.
_TOLERATED_REJECTIONS = 0.2


@dataclass(frozen=True)
class Entrant:
    """A start in the race, and the number of sweeps it need not make because it is nearly there."""

    name: str
    key: jax.Array
    run: bcd.Run
    n_skipped: int = 0


def fit(
    problem: Problem, options: Options, rng: np.random.RandomState, state: bcd.State | None = None
) -> Fitted:
    """Fit, from `state` if one is given. Safer settings are tried before giving up."""
    with in_float64():
        for attempt in (options, _safer(options)):
            course = _Course(problem, attempt, rng)
            entrant, bounds = course.find_start() if state is None else (course.enter_again(state), {})
            entrant = course.finish(entrant)
            if course.is_sound(entrant.run):
                fitted = course.freeze(entrant, bounds)
                if fitted.is_finite:
                    return fitted
    raise NumericalError(
        f"{entrant.run.n_rejected} steps were not finite, or what they led to was not, also in float64 with "
        "a tenth of the learning rate. Look for extreme outliers in Y, or give another `init`."
    )


def _safer(options: Options) -> Options:
    return replace(options, dtype=np.dtype(np.float64), learning_rate=0.1 * options.learning_rate)


class _Course:
    """One attempt at fitting one data set."""

    def __init__(self, problem: Problem, options: Options, rng: np.random.RandomState):
        self.problem, self.options, self.rng = problem, options, rng
        self.n_rejected = 0
        self.falls: list[Fall] = []
        self.raced_on_pilot = False
        self.settings = blocks.Settings(options.frequency_sampling, options.n_samples, problem.layer)
        self.model = blocks.build_model(self.settings)
        self.fit_data = problem.fit_data(options.dtype)

    def find_start(self) -> tuple[Entrant, dict[str, float]]:
        """The winner of the race between the starts asked for, and the bounds all of them reached."""
        if self.problem.n_rows > self.options.n_landmarks and self.options.init_name in LANDMARK_STARTS:
            return self._enter_from_landmarks()
        pilot = self.problem.pilot()
        if pilot is not None and self.options.init_name != "array":
            return self._enter_from_pilot(pilot)
        return self._race(self._start_names())

    def _start_names(self) -> list[str]:
        names = [self.options.init_name]
        if names == ["auto"]:
            names = starts.automatic_starts(self.problem.n_rows, self.options.n_components)
        return [f"{name}{again}" for again in self._repeats() for name in names]

    def _repeats(self) -> list[str]:
        return [""] + [f" {number}" for number in range(2, self.options.n_init + 1)]

    def _starting_latents(self, name: str) -> FloatArray:
        kind = name.split()[0]
        if kind == "array":
            return np.asarray(self.options.init, dtype=np.float64)
        return starts.LATENTS[kind](self.problem.working, self.options.n_components, self.rng)

    def _enter_at(self, name: str, latents: FloatArray) -> Entrant:
        options = self.options
        point = starts.starting_point(
            name,
            latents,
            self.problem.working,
            self.rng,
            n_frequencies=options.n_frequencies,
            smallest_ratio=smallest_ratio(self.problem.n_rows, options.dtype),
        )
        state = blocks.initial_state(
            point,
            self.rng,
            n_frequencies=options.n_frequencies,
            n_mixture=options.n_mixture,
            covariance_type=options.covariance_type,
            latent_covariance_type=options.latent_covariance_type,
            dtype=options.dtype,
        )
        return self.enter(name, state | self.problem.layer_state(point, self.rng, options))

    def enter(self, name: str, state: bcd.State) -> Entrant:
        key = jax.random.key(self.rng.randint(2**31 - 1), impl="rbg")
        return Entrant(name, key, self._spread(bcd.begin(self.model, state)))

    def _spread(self, run: bcd.Run) -> bcd.Run:
        return dealing.spread(run, self.problem.n_rows)

    def _collect(self, run: bcd.Run) -> bcd.Run:
        return dealing.collect(run, self.problem.n_rows)

    def enter_again(self, state: bcd.State) -> Entrant:
        """Go on from the state of an earlier fit, in this fit's precision."""
        latents = {n: jnp.asarray(state[n], self.options.dtype) for n in ("latent_mean", "latent_factor")}
        return self.enter("warm", state | latents | self.problem.renewed_state(state, self.options))

    def _race(self, names: list[str]) -> tuple[Entrant, dict[str, float]]:
        """Run all starts heat by heat; drop one when it is further behind the leader than it gains in a
        heat, for then it will hardly catch up. After the last heat the leader goes on."""
        entrants = self._first_heat(names)
        bounds = self._bounds(entrants) if len(entrants) > 1 else {}
        ended = [entrant.run for entrant in entrants if entrant.run.ended_early]
        most_heats = max(MOST_HEATS, int(_RACE_SHARE * self.options.max_iter / SWEEPS_PER_HEAT))
        for _ in range(most_heats - 1):
            entrants = _still_in_the_race(entrants)
            if len(entrants) == 1 or ended:
                break
            entrants = [self._heat(entrant) for entrant in entrants]
            ended = [entrant.run for entrant in entrants if entrant.run.ended_early]
            bounds |= self._bounds(entrants)
        winner = max(entrants, key=lambda entrant: entrant.run.best)
        return _ended_like(winner, ended), bounds

    def _first_heat(self, names: list[str]) -> list[Entrant]:
        entrants: list[Entrant] = []
        for name in names:
            entrant = self._enter_at(name, self._starting_latents(name))
            entrants.append(self._heat(entrant) if len(names) > 1 else entrant)
            if entrants[-1].run.ended_early:
                break
        return entrants

    def _heat(self, entrant: Entrant) -> Entrant:
        n_sweeps = min(SWEEPS_PER_HEAT, self.options.max_iter - entrant.run.n_sweeps)
        pilot = "pilot " if self.options.stage == PILOT else ""
        return self._advance(entrant, n_sweeps, f"{pilot}start {entrant.name}")

    def _bounds(self, entrants: list[Entrant]) -> dict[str, float]:
        return {entrant.name: self.problem.in_data_units(entrant.run.best) for entrant in entrants}

    def _enter_from_landmarks(self) -> tuple[Entrant, dict[str, float]]:
        """Fit a random subset of the rows, place all rows with its model, and go on from there."""
        index = np.sort(self.rng.permutation(self.problem.n_rows)[: self.options.n_landmarks])
        landmarks = self.problem.rows(index)
        fitted, numbers = parallel.by_first(lambda: self._fit_landmarks(landmarks))
        self.rng.set_state(numbers)
        placed = self.problem.place(fitted.posterior)
        layer = self.problem.placed_state(fitted.state, fitted.posterior, placed, self.options)
        diagonal = self.options.latent_covariance_type == "diag"
        factor = blocks.free_factor(placed.cholesky, diagonal)
        latents = {"latent_mean": placed.mean, "latent_factor": factor}
        state = fitted.state | layer | {name: self._shard(own) for name, own in latents.items()}
        self.n_rejected += fitted.n_rejected
        self.falls += fitted.falls
        n_skipped = int(_LANDMARK_SHARE * self.options.max_iter)
        entrant = replace(self.enter(f"landmarks, {fitted.start}", state), n_skipped=n_skipped)
        if fitted.interrupted or fitted.stopped:
            # one sweep over all rows, for a bound on all of them; then no more
            entrant = _ended_like(self._advance(entrant, 1, self.options.stage), [fitted])
        share = self.problem.n_rows / len(index)
        return entrant, {name: share * bound for name, bound in fitted.start_elbos.items()}

    def _fit_landmarks(self, landmarks: Problem) -> tuple[Fitted, Any]:
        """The fit of some rows, and the random numbers that come after it."""
        course = _Course(landmarks, replace(self.options, stage="landmarks"), self.rng)
        winner, bounds = course.find_start()
        return course.freeze(course.finish(winner), bounds), self.rng.get_state()

    def _shard(self, own: FloatArray) -> jax.Array:
        return dealing.shard(own.astype(self.options.dtype), self.problem.n_rows)

    def _enter_from_pilot(self, pilot: Problem) -> tuple[Entrant, dict[str, float]]:
        """Fit the working data as if they were Gaussian, which is fast, and go on from its latents."""
        n_frequencies = self.options.n_pilot_frequencies
        options = replace(self.options, stage=PILOT, n_frequencies=n_frequencies)
        course = _Course(pilot, options, self.rng)
        winner, bounds = course.find_start()
        winner = course.finish(winner)
        self.n_rejected += course.n_rejected
        self.falls += course.falls
        state = winner.run.state
        entrant = self._enter_at(winner.name, np.asarray(state["latent_mean"], np.float64))
        own = entrant.run.state | {"latent_factor": state["latent_factor"]}
        n_skipped = int(_PILOT_SHARE * self.options.max_iter)
        entrant = replace(self.enter(winner.name, own), n_skipped=n_skipped)
        if winner.run.ended_early:
            entrant = _ended_like(self._advance(entrant, 1, self.options.stage), [winner.run])
        self.raced_on_pilot = True
        share = self.problem.n_entries / pilot.n_entries
        return entrant, {name: share * (bound - max(bounds.values())) for name, bound in bounds.items()}

    def finish(self, entrant: Entrant) -> Entrant:
        """Go on to the end."""
        if entrant.run.ended_early:
            return entrant
        n_sweeps = self.options.max_iter - entrant.n_skipped - entrant.run.n_sweeps
        finished = self._advance(entrant, n_sweeps, self.options.stage, self.options.tol)
        drop = bcd.fall(finished.run.history, self._window(entrant))
        if drop > 0.0:
            self.falls.append(Fall(self.options.stage, drop / self.problem.n_entries))
        return finished

    def _advance(self, entrant: Entrant, n_sweeps: int, stage: str, tol: float = 0.0) -> Entrant:
        reporters = [self._reporter(c, stage, entrant.n_skipped) for c in self.options.callbacks]
        is_interrupted = False

        def report(run: bcd.Run) -> bool:
            """Whether any callback of any process wants to stop, or Ctrl-C was pressed in any."""
            nonlocal is_interrupted
            parallel.note(f"{stage}, sweep {run.n_sweeps}")
            with parallel.apart():
                wishes = [bool(reporter(run)) for reporter in reporters]
            wants_to_stop, is_interrupted = parallel.anywhere(any(wishes), parallel.is_interrupted())
            return wants_to_stop or is_interrupted

        def advance(run: bcd.Run, n_sweeps: int, more_callbacks: Sequence[bcd.Callback]) -> bcd.Run:
            run = bcd.advance(
                self.model,
                self._spread(run),
                entrant.key,
                self.fit_data,
                n_sweeps=n_sweeps,
                schedule=bcd.Schedule(self.options.learning_rate, self.options.max_iter, entrant.n_skipped),
                tolerance=lambda bound: tol * self.problem.information(self.problem.in_data_units(bound)),
                window=self._window(entrant),
                fewest_sweeps=int(self.options.settling_share * self.options.max_iter) - entrant.n_skipped,
                callbacks=[report, *more_callbacks],
            )
            return replace(run, interrupted=run.interrupted or is_interrupted)

        label = _label(entrant, n_sweeps, stage)
        with one_blas_thread(), parallel.jointly():
            run = self.options.journal.leg(label, entrant.run, n_sweeps, advance, self._collect)
        run = self._spread(run)
        self.n_rejected += run.n_rejected - entrant.run.n_rejected
        return replace(entrant, run=run)

    def _window(self, entrant: Entrant) -> int:
        """Sweeps whose mean is compared with that of as many before; fewer where few are left to make."""
        n_sweeps = self.options.max_iter - entrant.n_skipped
        return 5 if n_sweeps >= 20 else 3 if n_sweeps >= 10 else 2

    def _reporter(self, callback: Callback, stage: str, n_skipped: int) -> bcd.Callback:
        def report(run: bcd.Run) -> bool | None:
            elbo = self.problem.in_data_units(run.history[-1])
            n_sweeps = self.options.max_iter - n_skipped
            return callback(
                Progress(stage, run.n_sweeps, n_sweeps, elbo, self.problem.n_entries, run.seconds)
            )

        return report

    def is_sound(self, run: bcd.Run) -> bool:
        n_steps = run.n_sweeps * (blocks.STEPS_PER_SWEEP + 1)
        return run.n_rejected <= _TOLERATED_REJECTIONS * n_steps and np.isfinite(run.best)

    def freeze(self, entrant: Entrant, bounds: dict[str, float]) -> Fitted:
        run = entrant.run
        own = (dealing.own_rows(run.state[n], self.problem.n_rows) for n in ("latent_mean", "latent_factor"))
        mean, factor = (array.astype(np.float64) for array in own)
        latents = Embedding(mean, blocks.cholesky_factor(factor))
        posterior, embedding = self.problem.freeze(run.state, latents, self.settings, self.rng)
        if self.raced_on_pilot:
            # its bounds are those of other data, and tell how far each start was behind the winner
            first = next((bound for bound in run.history if np.isfinite(bound)), run.best)
            bounds = {name: self.problem.in_data_units(first) + behind for name, behind in bounds.items()}
        return Fitted(
            posterior=posterior,
            embedding=embedding,
            state=self._collect(run).state,
            elbo=self.problem.in_data_units(run.best),
            history=np.array([self.problem.in_data_units(bound) for bound in run.history]),
            n_rejected=self.n_rejected,
            converged=run.converged,
            interrupted=run.interrupted,
            stopped=run.stopped,
            start=entrant.name,
            start_elbos=bounds,
            sizes=self.problem.row_sizes,
            falls=tuple(self.falls),
        )


def _still_in_the_race(entrants: list[Entrant]) -> list[Entrant]:
    lead = max(entrants, key=lambda entrant: entrant.run.best)
    return [one for one in entrants if one is lead or lead.run.best - one.run.best <= _gain_in_a_heat(one)]


def _gain_in_a_heat(entrant: Entrant) -> float:
    """What the bound rises by in a heat, at the pace of the last one; a first heat has one rise less."""
    bounds = [bound for bound in entrant.run.history[-SWEEPS_PER_HEAT - 1 :] if np.isfinite(bound)]
    return SWEEPS_PER_HEAT * (bounds[-1] - bounds[0]) / (len(bounds) - 1) if len(bounds) > 1 else 0.0


def _label(entrant: Entrant, n_sweeps: int, stage: str) -> str:
    """What tells one run of sweeps from all others of a fit."""
    first, key = entrant.run.n_sweeps, jax.random.key_data(entrant.key).tolist()
    return f"{stage}, {entrant.name}: {n_sweeps} sweeps after {first}, {entrant.n_skipped} skipped, key {key}"


def _ended_like(entrant: Entrant, runs: Sequence[bcd.Run | Fitted]) -> Entrant:
    """The entrant, marked as ended early by what ended any of the runs."""
    interrupted = entrant.run.interrupted or any(run.interrupted for run in runs)
    stopped = entrant.run.stopped or any(run.stopped for run in runs)
    return replace(entrant, run=replace(entrant.run, interrupted=interrupted, stopped=stopped))
