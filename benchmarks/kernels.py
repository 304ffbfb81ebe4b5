"""Cost of a precision for every entry: against plain matrix products, and against the Gaussian fit.

    SRFLVM_DATA=folder python benchmarks/kernels.py [--only evidence fits]

"evidence" times the evidence of all columns and its gradient in the features, in float32, and the two matrix
products that it needs at least, in turns, with one thread for LAPACK as in a fit; medians, and the median of
the ratios within a turn. NumPy's products come afterwards, since its threads stay on the cores for a while
after their work. "fits" times fits of MNIST-1000, seed 0, otherwise at their defaults: the first with all
caches of compiled programs empty or off, then further ones, the median.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from common import CONSOLE, command_line, mnist_subset, report, timed

from srflvm import SRFLVM
from srflvm.numerics.jit import one_blas_thread
from srflvm.numerics.site_regression import Sites, solve

N_ROWS, N_COLUMNS, N_FEATURES = 2000, 400, 101
N_TIMES, N_REFITS = 40, 3
PRODUCTS_BAR, FITS_BAR = 2.5, 6.0


def log_evidence(features: jax.Array, sites: Sites, amplitude: jax.Array) -> jax.Array:
    """Compute sum_m log Z_m, as the bound at the optimal q(h): the sites' expectation less KL(q(h) || p(h)).

    The weights are held fixed, which does not change the gradient in the features at the optimum.
    """
    weights = solve(jax.lax.stop_gradient(features), sites, amplitude)
    mean, variance = weights.function_moments(features)
    entries = sites.shift * mean - 0.5 * sites.precision * (mean**2 + variance)
    return jnp.sum(entries, dtype=jnp.float64) - jnp.sum(weights.divergence(amplitude))


def evidence_call(rng: np.random.RandomState) -> Callable[[], object]:
    phi = rng.standard_normal((N_ROWS, N_FEATURES)) / np.sqrt(N_FEATURES)
    phi[:, -1] = 1.0
    features = jnp.asarray(phi, jnp.float32)
    precision = jnp.asarray(rng.uniform(0.05, 0.25, (N_COLUMNS, N_ROWS)), jnp.float32)
    shift = jnp.asarray(rng.standard_normal((N_COLUMNS, N_ROWS)), jnp.float32)
    sites, amplitude = Sites(precision, shift), jnp.ones(N_COLUMNS)
    function = jax.jit(jax.value_and_grad(log_evidence))
    return lambda: jax.block_until_ready(function(features, sites, amplitude))


def product_arrays(rng: np.random.RandomState) -> list[np.ndarray]:
    n_pairs = N_FEATURES * (N_FEATURES + 1) // 2
    shapes = [(N_COLUMNS, N_ROWS), (N_ROWS, n_pairs), (N_ROWS, N_COLUMNS), (N_COLUMNS, n_pairs)]
    return [rng.standard_normal(shape).astype(np.float32) for shape in shapes]


def products_call(rng: np.random.RandomState) -> Callable[[], object]:
    arrays = [jnp.asarray(array) for array in product_arrays(rng)]
    function = jax.jit(lambda a, b, c, d: (a @ b, c @ d))
    return lambda: jax.block_until_ready(function(*arrays))


def numpy_products_call(rng: np.random.RandomState) -> Callable[[], object]:
    a, b, c, d = product_arrays(rng)
    return lambda: (a @ b, c @ d)


def by_turns(*calls: Callable[[], object]) -> np.ndarray:
    """Measure the seconds (N_TIMES, calls) of calls that take turns, after one of each that compiles."""
    for call in calls:
        call()
    return np.array([[timed(call)[1] for call in calls] for _ in range(N_TIMES)])


def evidence_rows() -> list[list[str]]:
    rng = np.random.RandomState(0)
    with jax.enable_x64(True):
        with one_blas_thread():
            own, plain = by_turns(evidence_call(rng), products_call(rng)).T
        (in_numpy,) = by_turns(numpy_products_call(rng)).T
    CONSOLE.print("within a turn, quarter points", np.quantile(own / plain, [0.25, 0.75]))
    rows = {
        "evidence and gradient": (own, ""),
        "two matrix products in JAX": (plain, f"{np.median(own / plain):.2f} (bar {PRODUCTS_BAR})"),
        "two matrix products in NumPy": (in_numpy, f"{np.median(own) / np.median(in_numpy):.2f}"),
    }
    what = f"{N_ROWS} rows, {N_COLUMNS} columns, {N_FEATURES} features: "
    return [
        [what + name, "", f"{np.median(seconds):.4f}", "", ratio, ""]
        for name, (seconds, ratio) in rows.items()
    ]


def fit_seconds(Y: np.ndarray, likelihood: str) -> tuple[float, float, int]:
    """Measure the seconds of the first fit and of a later one, and its sweeps."""
    jax.clear_caches()
    model = SRFLVM(likelihood=likelihood, random_state=0)
    first = timed(lambda: model.fit(Y))[1]
    later = [timed(lambda: model.fit(Y))[1] for _ in range(N_REFITS)]
    CONSOLE.print(likelihood, "first", first, "later", later, "sweeps", model.n_iter_)
    return first, float(np.median(later)), model.n_iter_


def fit_rows() -> list[list[str]]:
    jax.config.update("jax_enable_compilation_cache", False)
    grey, _ = mnist_subset(0)
    binary = (grey > 0.5).astype(np.float32)
    own = fit_seconds(binary, "bernoulli")
    rows = [["Bernoulli, above 0.5", f"{own[0]:.2f}", f"{own[1]:.2f}", "", "", str(own[2])]]
    for called, Y in {"Gaussian, grey": grey, "Gaussian, above 0.5": binary}.items():
        first, later, sweeps = fit_seconds(Y, "gaussian")
        ratios = [f"{own[0] / first:.2f} (bar {FITS_BAR:g})", f"{own[1] / later:.2f} (bar {FITS_BAR:g})"]
        rows.append([called, f"{first:.2f}", f"{later:.2f}", *ratios, str(sweeps)])
    return [[f"MNIST-1000, {row[0]}", *row[1:]] for row in rows]


PARTS = {"evidence": evidence_rows, "fits": fit_rows}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=PARTS, nargs="*", default=list(PARTS))
    rows = [row for part in parser.parse_args().only for row in PARTS[part]()]
    columns = ["what", "first, seconds", "compiled, seconds", "first row is times this, first"]
    columns += ["compiled", "sweeps"]
    report("kernels", "Cost of a precision for every entry, seed 0", columns, rows, command_line())


if __name__ == "__main__":
    main()
