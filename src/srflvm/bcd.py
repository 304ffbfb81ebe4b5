"""Block coordinate descent variational inference (BCD-VI), for any model.

A model is a list of blocks and an evidence lower bound. The variational parameters live in one
dictionary, the *state*; each block owns some of its entries and raises the bound in them with the
others held fixed:

- `ClosedFormBlock` where the maximiser is known (conjugate blocks): one call solves the block;
- `GradientBlock` where it is not: a few Adam steps along stochastic gradients of the bound.

One pass over the blocks is a *sweep*. `begin` starts a run, `advance` makes more sweeps, and both work on
immutable values, so a run can be stopped, kept, and continued. A step whose value
or gradient is not finite never reaches the state: it is dropped, counted, and the block goes on
more carefully until steps succeed again.

The module does not depend on the model that it is used for; it imports `numerics` and `_typing` alone.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from srflvm._typing import FloatArray
from srflvm.numerics.jit import quickly_compiled

State = dict[str, Any]
Objective = Callable[[Array, State, Any], Any]
Update = Callable[[Array, State, Any], State]

# Adam's decays of its running means, and what keeps it from dividing by zero.
_MEAN_DECAY = 0.9
_SQUARE_DECAY = 0.99
_SMALLEST_SPREAD = 1e-8

# Median of |a - (b + c) / 2| for draws from N(0, 1), and the standard errors that a bound has to fall by to
# count as fallen.
_MEDIAN_OFF = 0.826
_NOTABLE_ERRORS = 4.0

# Fewer sweeps are not enough to estimate their noise.
_FEWEST_TO_ESTIMATE_NOISE = 10


class _Outcome(NamedTuple):
    """Outcome of a sweep for a block: the mean bound of its steps, and the number of steps dropped."""

    bound: Any
    rejected: Any


@dataclass(frozen=True)
class ClosedFormBlock:
    """Block with a known maximiser: `update` returns the entries that it replaces.

    `update` is called as it is: wrap it in `jax.jit` where that pays. One of few numbers is as fast in NumPy,
    and compiles nothing.
    """

    name: str
    update: Update

    def init(self, state: State) -> tuple[()]:
        """Return the memory of a block that has not been visited: none."""
        return ()


class _Moments(NamedTuple):
    """Memory of Adam: its steps, and running means of the gradient and of its square."""

    count: Any
    mean: State
    square: State

    @classmethod
    def none(cls, own: State) -> _Moments:
        """Return the memory before the first step."""
        zeros = jax.tree.map(lambda leaf: np.zeros(np.shape(leaf), jnp.result_type(leaf)), own)
        return cls(np.zeros((), np.int32), zeros, zeros)

    def step(self, gradient: State) -> tuple[State, _Moments]:
        """Return the direction of a step of size one along a gradient, and the next memory."""
        count = self.count + 1
        mean = jax.tree.map(lambda old, g: (1.0 - _MEAN_DECAY) * g + _MEAN_DECAY * old, self.mean, gradient)
        square = jax.tree.map(
            lambda old, g: (1.0 - _SQUARE_DECAY) * g**2 + _SQUARE_DECAY * old, self.square, gradient
        )
        # the shares of the running means that gradients have filled, and not the zeros before them
        share, share_of_square = 1.0 - _MEAN_DECAY**count, 1.0 - _SQUARE_DECAY**count

        def direction(mean: Array, square: Array) -> Array:
            spread = jnp.sqrt(square / share_of_square.astype(square.dtype))
            return mean / share.astype(mean.dtype) / (spread + _SMALLEST_SPREAD)

        return jax.tree.map(direction, mean, square), _Moments(count, mean, square)


class _GradientMemory(NamedTuple):
    """Adam's moments, and the trust in the step: halved when a step fails, regained slowly."""

    adam: Any
    trust: Any


@dataclass(frozen=True)
class GradientBlock:
    """Block that is raised by `n_steps` Adam steps in the entries that it `owns`.

    `objective` estimates the local bound of the block: the terms of the full one that depend on them.
    Neighbouring gradient blocks with the same objective share one compiled program.

    If the block `carries` entries, the objective returns the bound and their next values: statistics that
    each evaluation brings up to date in closed form, without a gradient. They are kept if all is finite.
    The program of a block that `is_heavy` is compiled to run fast, all others to be compiled fast.
    """

    name: str
    owns: tuple[str, ...]
    objective: Objective
    n_steps: int = 1
    carries: tuple[str, ...] = ()
    is_heavy: bool = False

    def init(self, state: State) -> _GradientMemory:
        """Return the memory of a block that has not made a step."""
        return _GradientMemory(_Moments.none(self.own(state)), np.ones(()))

    def own(self, state: State) -> State:
        """Return the entries of the state that the block owns."""
        return {name: state[name] for name in self.owns}

    def step(
        self, turn: Array, state: State, memory: _GradientMemory, bound: Array, gradient: State, rate: Array
    ) -> tuple[State, _GradientMemory, Array]:
        """Make one Adam step if it is the block's turn and all is finite; also tell whether it was not.

        The squares of the gradient are part of Adam's memory, so they have to be finite too. Their sum is of
        the bound's precision: where rows are spread over devices, sums of one precision travel together.
        """
        own, gradient = self.own(state), self.own(gradient)
        squares = [jnp.sum(leaf**2, dtype=bound.dtype) for leaf in jax.tree.leaves(gradient)]
        finite = jnp.isfinite(sum(squares, bound))
        direction, adam = memory.adam.step(gradient)
        size = rate * memory.trust
        proposal = jax.tree.map(lambda p, d: p + size.astype(p.dtype) * d, own, direction)
        own, adam = _select(turn & finite, (proposal, adam), (own, memory.adam))
        trust = jnp.where(finite, jnp.minimum(1.1 * memory.trust, 1.0), 0.5 * memory.trust)
        memory = _GradientMemory(adam, jnp.where(turn, trust, memory.trust))
        return {**state, **own}, memory, turn & ~finite


Block = ClosedFormBlock | GradientBlock


def _solve(
    block: ClosedFormBlock, key: Array, state: State, data: Any
) -> tuple[State, tuple[tuple[()], ...], _Outcome]:
    proposal = block.update(key, state, data)
    accepted = _is_finite(proposal)
    return {**state, **proposal} if accepted else state, ((),), _Outcome(math.nan, int(not accepted))


def _climb_steps(
    group: tuple[GradientBlock, ...], key: Array, state: State, memories: tuple, data: Any, rate: Array
) -> tuple[State, tuple[_GradientMemory, ...], _Outcome]:
    """Make the steps of several blocks with one objective, one block after the other, in one scan."""
    turns = jnp.array([index for index, block in enumerate(group) for _ in range(block.n_steps)])
    mine = {name: state[name] for block in group for name in block.owns}
    carried = {name: state[name] for name in group[0].carries}

    def step(carry, turn_and_key):
        (mine, carried, memories), (turn, step_key) = carry, turn_and_key

        def objective(entries):
            outcome = group[0].objective(step_key, {**state, **carried, **entries}, data)
            return outcome if carried else (outcome, {})

        (bound, update), gradient = jax.value_and_grad(objective, has_aux=True)(mine)
        carried = _select(jnp.isfinite(bound) & _all_finite(update), update, carried)
        rejected, new_memories = jnp.zeros((), bool), []
        for index, (block, memory) in enumerate(zip(group, memories, strict=True)):
            mine, memory, failed = block.step(turn == index, mine, memory, bound, gradient, rate)
            rejected |= failed
            new_memories.append(memory)
        return (mine, carried, tuple(new_memories)), jnp.where(rejected, jnp.nan, bound)

    keys = jax.random.split(key, len(turns))
    (mine, carried, memories), bounds = jax.lax.scan(step, (mine, carried, memories), (turns, keys))
    first = jnp.nanmean(bounds[: group[0].n_steps])
    return {**state, **mine, **carried}, memories, _Outcome(first, jnp.sum(jnp.isnan(bounds)))


_climb = quickly_compiled(_climb_steps, static_argnames=("group",))
_climb_heavy = jax.jit(_climb_steps, static_argnames=("group",))


def _all_finite(tree: Any) -> Array:
    """Tell whether every floating-point leaf of `tree` is finite throughout."""
    leaves = [leaf for leaf in jax.tree.leaves(tree) if jnp.issubdtype(leaf.dtype, jnp.inexact)]
    return jnp.all(jnp.asarray([jnp.all(jnp.isfinite(leaf)) for leaf in leaves], bool))


_all_finite_on_device = quickly_compiled(_all_finite)


def _is_finite(tree: Any) -> bool:
    """Tell whether all is finite, without a program for arrays of NumPy."""
    leaves = jax.tree.leaves(tree)
    if all(isinstance(leaf, np.ndarray | np.generic | float) for leaf in leaves):
        return all(bool(np.all(np.isfinite(leaf))) for leaf in leaves)
    return bool(_all_finite_on_device(tree))


def _select(condition: Array, if_true: Any, if_false: Any) -> Any:
    """Return one of two trees of the same structure."""
    return jax.tree.map(partial(jnp.where, condition), if_true, if_false)


@dataclass(frozen=True)
class Model:
    """Blocks in the order they are visited, and the bound they all raise.

    Without a gradient block `elbo` is the whole bound, evaluated once a sweep. With one, the bound is
    read off the steps of the first gradient block, at no cost, and `elbo` is what its objective leaves
    out. Models compare by value, so equal ones share compiled code.
    """

    blocks: tuple[Block, ...]
    elbo: Objective


@dataclass(frozen=True)
class Schedule:
    """Step sizes that fall from `learning_rate` along a cosine to a fiftieth of it after `n_sweeps`.

    The first `n_skipped` sweeps are left out, for a start that is near the optimum.
    """

    learning_rate: float
    n_sweeps: int
    n_skipped: int = 0

    def rate(self, sweep: int) -> float:
        """Return the step size of a sweep."""
        progress = min((sweep + self.n_skipped) / max(self.n_sweeps, 1), 1.0)
        return self.learning_rate * (0.02 + 0.98 * 0.5 * (1.0 + math.cos(math.pi * progress)))


class Carry(NamedTuple):
    """Values that a sweep takes over from the one before: the state, and the memories of the blocks."""

    state: State
    memories: tuple[Any, ...]


@dataclass(frozen=True)
class Run:
    """Run of a model, under way or ended.

    `state` is the one with the best smoothed bound so far. `stopped` tells that a callback ended the run,
    `interrupted` that Ctrl-C did.
    """

    carry: Carry
    state: State
    smoothed: float = -float("inf")
    best: float = -float("inf")
    history: tuple[float, ...] = ()
    n_rejected: int = 0
    seconds: float = 0.0
    converged: bool = False
    interrupted: bool = False
    stopped: bool = False

    @property
    def n_sweeps(self) -> int:
        """Return the number of sweeps made."""
        return len(self.history)

    @property
    def ended_early(self) -> bool:
        """Tell whether Ctrl-C or a callback ended the run."""
        return self.interrupted or self.stopped


Callback = Callable[[Run], bool | None]


def begin(model: Model, state: State) -> Run:
    """Return a run that has not made a sweep yet."""
    # a definite dtype for every entry: Python scalars would make the second sweep compile anew
    state = jax.tree.map(_with_definite_type, state)
    memories = tuple(block.init(state) for block in model.blocks)
    return Run(carry=Carry(state, memories), state=state)


def _with_definite_type(leaf: Any) -> Array:
    if isinstance(leaf, np.ndarray):
        return jax.device_put(leaf)
    return jnp.asarray(leaf, dtype=jnp.asarray(leaf).dtype)


def advance(
    model: Model,
    run: Run,
    key: Array,
    data: Any,
    *,
    n_sweeps: int,
    schedule: Schedule,
    tolerance: float | Callable[[float], float] = 0.0,
    window: int = 5,
    fewest_sweeps: int = 0,
    callbacks: Iterable[Callback] = (),
) -> Run:
    """Make up to `n_sweeps` more sweeps.

    The run stops early when the smoothed bound has stopped rising, has not fallen (`fall`)
    and the run has made `fewest_sweeps`; when a callback returns True; or on Ctrl-C after at least one sweep,
    which is swallowed and noted in `Run.interrupted`. The tolerance may be a function of the best bound so
    far. The random numbers of a sweep depend on `key` and on the number of the sweep only: stopping and
    advancing again changes nothing.
    """
    callbacks = tuple(callbacks)
    run = replace(run, interrupted=False, stopped=False)
    for _ in range(n_sweeps):
        try:
            swept = _one_sweep(model, run, key, data, schedule)
            most = tolerance(swept.best) if callable(tolerance) else tolerance
            is_flat = _has_converged(swept.history, most, window) and fall(swept.history, window) == 0.0
            run = replace(swept, converged=is_flat and swept.n_sweeps >= fewest_sweeps)
            requests = [bool(callback(run)) for callback in callbacks]
            run = replace(run, stopped=any(requests))
        except KeyboardInterrupt:
            if not run.history:
                raise
            return replace(run, interrupted=True)
        if run.converged or run.stopped:
            break
    return run


def _has_converged(history: Sequence[float], tolerance: float, window: int) -> bool:
    """Tell whether the bound is flat.

    It is if the mean of the last `window` sweeps is above that of the `window` before by less than
    `tolerance` a sweep, and not below it by more than noise may explain.
    """
    if tolerance <= 0.0 or len(history) < 2 * window:
        return False
    recent = sum(history[-window:]) / window
    before = sum(history[-2 * window : -window]) / window
    most = tolerance * window
    return -most - 2.0 * _standard_error(history, window) < recent - before < most


def fall(history: Sequence[float], window: int) -> float:
    """Return the fall of the bound below its highest level, zero if noise may explain it.

    Levels are means of `window` sweeps.
    """
    values = np.asarray(history, float)
    values = values[np.isfinite(values)]
    if len(values) < max(2 * window, _FEWEST_TO_ESTIMATE_NOISE):
        return 0.0
    sums = np.cumsum(np.insert(values, 0, 0.0))
    levels = (sums[window:] - sums[:-window]) / window
    drop = float(np.max(levels) - levels[-1])
    return drop if drop > _NOTABLE_ERRORS * _standard_error(values, window) else 0.0


def _standard_error(history: Sequence[float] | FloatArray, window: int) -> float:
    """Return the standard error of the difference of two levels.

    The noise is estimated by how far sweeps are off the mean of their neighbours, which a trend hardly
    changes, and by the median of that, which a jump hardly changes.
    """
    values = np.asarray(history, float)
    values = values[np.isfinite(values)]
    if len(values) < 3:
        return 0.0
    off = values[1:-1] - 0.5 * (values[:-2] + values[2:])
    return float(np.median(np.abs(off))) / _MEDIAN_OFF * math.sqrt(2.0 / window)


def _one_sweep(model: Model, run: Run, key: Array, data: Any, schedule: Schedule) -> Run:
    started = time.perf_counter()
    rate = np.asarray(schedule.rate(run.n_sweeps))
    carry, value, n_rejected = _sweep(model, key, run.n_sweeps, run.carry, data, rate)
    smoothed = _smooth(run.smoothed, value)
    improved = smoothed >= run.best
    return replace(
        run,
        carry=carry,
        state=carry.state if improved else run.state,
        smoothed=smoothed,
        best=max(smoothed, run.best),
        history=(*run.history, value),
        n_rejected=run.n_rejected + n_rejected,
        seconds=run.seconds + time.perf_counter() - started,
    )


def _smooth(previous: float, value: float, weight: float = 0.5) -> float:
    if value != value:
        return previous
    return value if previous == -float("inf") else (1.0 - weight) * previous + weight * value


def _sweep(model: Model, key: Array, number: int, carry: Carry, data: Any, rate: FloatArray):
    """Visit all blocks; return the carry, the bound, and the number of steps dropped."""
    state, memories, outcomes = carry.state, [], []
    groups = _groups(model.blocks)
    sweep_key, group_keys = _keys(key, np.uint32(number), len(groups))
    for group, group_key in zip(groups, group_keys, strict=True):
        first = group[0]
        if isinstance(first, ClosedFormBlock):
            state, new, outcome = _solve(first, group_key, state, data)
        else:
            remembered = carry.memories[len(memories) : len(memories) + len(group)]
            climb = _climb_heavy if first.is_heavy else _climb
            state, new, outcome = climb(group, group_key, state, remembered, data, rate)
        memories.extend(new)
        outcomes.append((first, outcome))
    climbed = [float(outcome.bound) for block, outcome in outcomes if isinstance(block, GradientBlock)]
    bound = sum(climbed[:1], float(model.elbo(sweep_key, state, data)))
    return Carry(state, tuple(memories)), bound, sum(int(outcome.rejected) for _, outcome in outcomes)


@partial(quickly_compiled, static_argnames="n_groups")
def _keys(key: Array, number: Array, n_groups: int) -> tuple[Array, list[Array]]:
    """Return the key of a sweep, and those of its groups of blocks."""
    sweep_key = jax.random.fold_in(key, number)
    return sweep_key, [jax.random.fold_in(sweep_key, index) for index in range(n_groups)]


def _groups(blocks: tuple[Block, ...]) -> list[tuple[Any, ...]]:
    """Group neighbouring gradient blocks with one objective; every other block is alone."""

    def shared(numbered: tuple[int, Block]) -> Any:
        index, block = numbered
        return block.objective if isinstance(block, GradientBlock) else index

    grouped = itertools.groupby(enumerate(blocks), key=shared)
    return [tuple(block for _, block in group) for _, group in grouped]
