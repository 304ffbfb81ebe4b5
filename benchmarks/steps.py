"""Time of a step of other likelihoods against the Gaussian step of the same shape.

    python benchmarks/steps.py [--times 9] [--rows 6000 60000 600000]

Data are random, in float32. The first table has passes over all columns, 2000 x 400 with 101 features,
without compression: the evidence and its gradient, at one draw of the latents and the frequencies. The column
"quadrature" is the share of the time that the averages over f take, measured alone. Passes of several
likelihoods run in turns; medians. The second has counts of 100 columns and more and more rows, each size in a
process of its own, with the peak of the memory beside what `predict_memory` says of a whole fit.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from common import CONSOLE, command_line, report, timed

from srflvm.data.encoding import GroupRows
from srflvm.likelihoods import Bernoulli, NegativeBinomial
from srflvm.likelihoods.base import Likelihood
from srflvm.model.chunked_evidence import chunk_targets
from srflvm.model.evidence_layers import GroupPlan, SharedData, SharedLayer
from srflvm.model.shared_basis import BOUND_NODES, DIRECTION_NODES, SharedBasisLayer, chunk_rows
from srflvm.numerics.features import chunk_shape
from srflvm.numerics.jit import in_float64, one_blas_thread
from srflvm.numerics.shared_regression import smallest_ratio

N_LATENT = 2
LIKELIHOODS: dict[str, Likelihood] = {"bernoulli": Bernoulli(), "negative binomial": NegativeBinomial()}


def gaussian_step(n_rows: int, n_columns: int, n_waves: int) -> Callable[[], Any]:
    """Return a function that computes the evidence of Gaussian data and its gradient."""
    rng, dtype = np.random.RandomState(0), np.dtype(np.float32)
    latents, frequencies = _draws(rng, n_rows, n_waves)
    Y = rng.standard_normal((n_rows, n_columns))
    targets = chunk_targets(Y, float(np.sum(Y**2)), n_columns, dtype)
    data = SharedData(targets, jnp.asarray(smallest_ratio(n_rows, dtype)))
    state = {"log_noise": jnp.zeros(()), "log_ratio": jnp.zeros(())}
    layer, key = SharedLayer(), jax.random.key(0, impl="rbg")

    def objective(entries: Any) -> Any:
        return layer.evidence(key, entries[0], entries[1], state, data)[0]

    step = jax.jit(jax.value_and_grad(objective))
    return lambda: jax.block_until_ready(step((latents, frequencies)))


def other_step(likelihood: Likelihood, n_rows: int, n_columns: int, n_waves: int) -> Callable[[], Any]:
    """Return a function that visits all columns and computes the gradient of the bound."""
    rng, dtype = np.random.RandomState(0), np.dtype(np.float32)
    latents, frequencies = _draws(rng, n_rows, n_waves)
    plan = GroupPlan(likelihood, n_columns, n_columns)
    size, parameters = 2 * n_waves + 1, likelihood.start(np.ones((1, n_columns)), {}).parameters
    state = {
        "basis": jnp.eye(size, dtype=dtype),
        "basis_mean": jnp.zeros((n_columns, size), dtype),
        "basis_precision": jnp.ones((n_columns, size), dtype),
        "basis_trust": jnp.ones(n_columns),
        "row_precision": jnp.ones(chunk_shape(n_rows), dtype),
        "drawn_frequencies": frequencies,
        "frequency_key": jnp.zeros(4, jnp.uint32),
        "parameters": ({name: jnp.asarray(value) for name, value in parameters.items()},),
        "log_amplitude": (jnp.zeros(n_columns),),
        "order": (jnp.arange(n_columns, dtype=jnp.int32),),
        # neither new frequencies nor new parameters are due
        "visit": jnp.asarray(4, jnp.int32),
    }
    data = ((jax.tree.map(jnp.asarray, _rows(rng, n_rows, n_columns)), jnp.zeros(n_columns, dtype)),)
    layer, key = SharedBasisLayer((plan,)), jax.random.key(0, impl="rbg")

    def objective(entries: Any, state: Any) -> Any:
        return layer.evidence(key, entries[0], entries[1], state, data)

    step = jax.jit(jax.value_and_grad(objective, has_aux=True))
    return lambda: jax.block_until_ready(step((latents, frequencies), state))


def quadrature(likelihood: Likelihood, n_rows: int, n_columns: int) -> Callable[[], Any]:
    """Return a function that takes the averages over f of one visit of all columns."""
    rng = np.random.RandomState(0)
    rows = jax.tree.map(lambda array: jnp.asarray(array[0]), _rows(rng, n_rows, n_columns))
    start = likelihood.start(np.ones((1, n_columns)), {}).parameters
    parameters = rows.arguments({name: jnp.asarray(value, jnp.float32) for name, value in start.items()})
    mean = jnp.asarray(rng.standard_normal((n_columns, n_rows)), jnp.float32)

    @jax.jit
    def averages(mean: Any) -> Any:
        variance = 0.1 + 0.0 * mean
        coarse = likelihood.quick_expectations(rows.y, mean, variance, parameters, DIRECTION_NODES)
        return coarse, likelihood.quick_expectations(rows.y, mean, variance, parameters, BOUND_NODES)

    return lambda: jax.block_until_ready(averages(mean))


def _draws(rng: np.random.RandomState, n_rows: int, n_waves: int) -> tuple[Any, Any]:
    shapes = (n_rows, N_LATENT), (n_waves, N_LATENT)
    latents, frequencies = (jnp.asarray(rng.standard_normal(shape), jnp.float32) for shape in shapes)
    return latents, frequencies


def _rows(rng: np.random.RandomState, n_rows: int, n_columns: int) -> GroupRows:
    y = (rng.uniform(size=(n_columns, n_rows)) < 0.3).astype(np.float32)
    rows = GroupRows(y, np.ones(y.shape, bool), {}, np.zeros((1, n_rows), np.float32))
    return chunk_rows(rows, n_rows)


def in_turns(functions: dict[str, Callable[[], Any]], n_times: int) -> dict[str, float]:
    """Return the median seconds of functions that are called in turns."""
    for function in functions.values():
        function()
    found: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(n_times):
        for name, function in functions.items():
            found[name].append(timed(function)[1])
    return {name: float(np.median(seconds)) for name, seconds in found.items()}


def pass_rows(n_times: int, shape: tuple[int, int, int] = (2000, 400, 50)) -> list[list[str]]:
    """Return the rows of the table of passes."""
    functions = {"gaussian": gaussian_step(*shape)}
    for name, likelihood in LIKELIHOODS.items():
        functions[name] = other_step(likelihood, *shape)
        functions[f"{name} quadrature"] = quadrature(likelihood, *shape[:2])
    seconds = in_turns(functions, n_times)
    rows = [["gaussian", f"{1e3 * seconds['gaussian']:.2f}", "1.0", ""]]
    for name in LIKELIHOODS:
        share = seconds[f"{name} quadrature"] / seconds[name]
        ratio = seconds[name] / seconds["gaussian"]
        rows.append([name, f"{1e3 * seconds[name]:.2f}", f"{ratio:.1f}", f"{share:.2f}"])
    return rows


def measure_rows(n_rows: int, n_times: int) -> None:
    """Print the milliseconds of a step of counts of so many rows, and the peak of the memory in MB."""
    import resource

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    step = other_step(NegativeBinomial(), n_rows, 100, 50)
    seconds = in_turns({"step": step}, n_times)["step"]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(f"{1e3 * seconds:.2f} {(peak - before) / 1024:.0f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=9)
    parser.add_argument("--rows", type=int, nargs="*", default=[6000, 60_000, 600_000])
    parser.add_argument("--measure", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    with in_float64(), one_blas_thread():
        if arguments.measure:
            measure_rows(arguments.measure, arguments.times)
            return
        rows = pass_rows(arguments.times)
    first = None
    for n_rows in arguments.rows:
        command = [sys.executable, __file__, "--measure", str(n_rows), "--times", str(arguments.times)]
        found = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
        milliseconds = float(found[0])
        first = first or milliseconds
        name = f"negative binomial, {n_rows} x 100, {found[1]} MB at the peak"
        rows.append([name, f"{milliseconds:.2f}", f"{milliseconds / first:.1f} of the first size", ""])
        CONSOLE.print(rows[-1])
    columns = ["pass over all columns", "milliseconds", "ratio", "quadrature"]
    report("steps", "Steps of other likelihoods against Gaussian ones", columns, rows, command_line())


if __name__ == "__main__":
    main()
