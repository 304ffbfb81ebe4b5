"""Time of a gradient step against that of the matrix products that it needs at least.

    python benchmarks/speed.py [--only 60000x784] [--times 9]

Data are random, in float32. A step is a sixth of a sweep: sampling, features, evidence, gradients, the
optimiser and the blocks in closed form, with one thread for LAPACK as in a fit. Its matrix products are
Phi'Phi, Phi'Y, Y H', Phi P, X W', and the two that take a gradient of the phases to X and to W, on whole
arrays of the same sizes. Step and products run in turns; medians. A picture is written beside the table.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from common import CONSOLE, RESULTS, command_line, report, timed

from srflvm import bcd
from srflvm.model import elbo
from srflvm.model.chunked_evidence import chunk_targets
from srflvm.model.evidence_layers import SharedData, SharedLayer
from srflvm.numerics.jit import one_blas_thread
from srflvm.numerics.shared_regression import smallest_ratio

STEPS = elbo.STEPS_PER_SWEEP + 1
N_LATENT = 2
LEAST_SECONDS = 3.0


class Case(NamedTuple):
    """Rows N, columns M, scores R that the columns are compressed to, features L; and the bar, if any."""

    n_rows: int
    n_columns: int
    n_scores: int
    n_features: int
    bar: float | None = None

    @property
    def name(self) -> str:
        return f"{self.n_rows}x{self.n_columns}"


CASES = [
    Case(1000, 784, 100, 100, 3.0),
    Case(1000, 784, 784, 100, 3.0),
    Case(1000, 784, 100, 600),
    Case(6000, 100, 100, 100),
    Case(60_000, 784, 100, 200, 1.6),
    Case(60_000, 784, 784, 200, 1.6),
    Case(60_000, 784, 100, 600),
    Case(600_000, 100, 100, 100),
]


def sweep_call(case: Case, rng: np.random.RandomState) -> Callable[[], object]:
    """Return a function that makes one further sweep."""
    latents = rng.standard_normal((case.n_rows, N_LATENT))
    start = elbo.StartingPoint("random", latents, 2.0, 0.5, 0.5)
    dtype = np.dtype(np.float32)
    state = elbo.initial_state(
        start,
        rng,
        n_frequencies=case.n_features // 2,
        n_mixture=10,
        covariance_type="full",
        latent_covariance_type="full",
        dtype=dtype,
    )
    state |= {"log_noise": np.log(start.noise), "log_ratio": np.log(start.ratio)}
    scores = np.sin(latents @ rng.standard_normal((N_LATENT, case.n_scores))) + rng.standard_normal(
        (case.n_rows, case.n_scores)
    )
    targets = chunk_targets(scores, float(np.sum(scores**2)), case.n_columns, dtype)
    data = SharedData(targets, jnp.asarray(smallest_ratio(case.n_rows, dtype)))
    model, key = elbo.build_model(elbo.Settings(SharedLayer())), jax.random.key(0, impl="rbg")
    runs = [bcd.begin(model, state)]
    schedule = bcd.Schedule(1e-3, 1000)

    def sweep() -> None:
        with one_blas_thread():
            run = bcd.advance(model, runs.pop(), key, data, n_sweeps=1, schedule=schedule)
        runs.append(jax.block_until_ready(run))

    return sweep


def products(phi, Y, H, P, X, W, d_phase):
    return phi.T @ phi, phi.T @ Y, Y @ H.T, phi @ P, X @ W.T, d_phase @ W, d_phase.T @ X


def product_arrays(case: Case) -> list[np.ndarray]:
    n, size, n_scores, waves = case.n_rows, case.n_features, case.n_scores, case.n_features // 2
    shapes = [(n, size), (n, n_scores), (size, n_scores), (size, size)]
    shapes += [(n, N_LATENT), (waves, N_LATENT), (n, waves)]
    return [np.random.default_rng(0).standard_normal(shape, dtype=np.float32) for shape in shapes]


def by_turns(calls: dict[str, Callable[[], object]], n_times: int) -> dict[str, float]:
    """Measure the median seconds of each call, after one that compiles; short calls are timed more often."""
    for call in calls.values():
        call()
    rounds = [{name: timed(call)[1] for name, call in calls.items()}]
    n_rounds = max(n_times, int(LEAST_SECONDS / sum(rounds[0].values())))
    rounds += [{name: timed(call)[1] for name, call in calls.items()} for _ in range(n_rounds - 1)]
    return {name: float(np.median([times[name] for times in rounds])) for name in calls}


def measure(case: Case, n_times: int) -> list[str]:
    sweep = sweep_call(case, np.random.RandomState(0))
    arrays = product_arrays(case)
    on_device, compiled = [jnp.asarray(array) for array in arrays], jax.jit(products)
    calls = {"sweep": sweep, "jax": lambda: jax.block_until_ready(compiled(*on_device))}
    medians = by_turns(calls, n_times)
    # Alone: the threads of NumPy's BLAS wait in a loop after a call, on the cores of what comes next.
    medians |= by_turns({"numpy": lambda: products(*arrays)}, n_times)
    step = medians["sweep"] / STEPS
    ratio = step / medians["jax"]
    CONSOLE.print(case, f"step {1e3 * step:.2f} ms, {ratio:.2f} times its products")
    return [
        *(f"{number:,}" for number in case[:4]),
        f"{1e3 * step:.2f}",
        f"{1e3 * medians['jax']:.2f}",
        f"{ratio:.2f}" + (f" (bar {case.bar:g})" if case.bar else ""),
        f"{step / medians['numpy']:.2f}",
        f"{1.0 / ratio:.0%}",
    ]


def draw(rows: list[list[str]]) -> None:
    """Draw the times of steps and their products, case by case."""
    import matplotlib.pyplot as plt

    figure, axis = plt.subplots(figsize=(7, 0.5 * len(rows) + 1.2), layout="constrained")
    places = np.arange(len(rows))
    for offset, column, label in ((-0.2, 4, "step"), (0.2, 5, "its matrix products")):
        axis.barh(places + offset, [float(row[column]) for row in rows], 0.4, label=label)
    axis.set(xscale="log", xlabel="milliseconds")
    axis.set_yticks(places, [f"N {row[0]}, M {row[1]}, R {row[2]}, L {row[3]}" for row in rows])
    axis.invert_yaxis()
    axis.legend(frameon=False)
    figure.savefig(RESULTS / "speed.png", dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", help="such as 60000x784")
    parser.add_argument("--times", type=int, default=9)
    arguments = parser.parse_args()
    with jax.enable_x64(True):
        chosen = [case for case in CASES if not arguments.only or case.name in arguments.only]
        rows = [measure(case, arguments.times) for case in chosen]
    columns = ["N", "M", "scores R", "features L", "step, ms", "its products, ms", "ratio"]
    columns += ["to NumPy's products", "share of the bound"]
    draw(rows)
    report("speed", "A gradient step against its matrix products", columns, rows, command_line(), ["speed"])


if __name__ == "__main__":
    main()
