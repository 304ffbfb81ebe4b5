"""Programs that the first fit of small tables compiles, and the processor seconds that they cost.

Three tables: 344 x 4 Gaussian numbers, 324 x 8 counts, and a frame of 500 x 14 columns of several kinds with
holes, filled by `SRFLVMImputer`. Each is fitted twice in a process without a cache, and then in two processes
with one, of which the second finds what the first has compiled. Seconds are those of the processor; those of
single programs are elapsed ones, from JAX, and mean little on a busy machine.
"""

from __future__ import annotations

import argparse
import collections
import json
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from common import command_line, report

_STAGES = {
    "jaxpr_trace_duration": "traced",
    "jaxpr_to_mlir_module_duration": "lowered",
    "backend_compile_duration": "compiled",
}


def _smooth_function(n_rows: int, n_columns: int) -> tuple[np.random.RandomState, np.ndarray]:
    """Return random numbers and a smooth function of two latents (N, M)."""
    random = np.random.RandomState(0)
    return random, np.sin(random.standard_normal((n_rows, 2)) @ random.standard_normal((2, n_columns)))


def _fit_numbers() -> Callable[[], Any]:
    from srflvm import SRFLVM

    random, f = _smooth_function(344, 4)
    Y = f + 0.3 * random.standard_normal(f.shape)
    return lambda: SRFLVM(n_components=2, random_state=0).fit(Y)


def _fit_counts() -> Callable[[], Any]:
    from srflvm import SRFLVM

    random, f = _smooth_function(324, 8)
    Y = random.poisson(random.gamma(3.0, np.exp(3.0 + f) / 3.0)).astype(float)
    return lambda: SRFLVM(n_components=2, likelihood="negative-binomial", random_state=0).fit(Y)


def _fill_a_frame() -> Callable[[], Any]:
    import pandas as pd

    from srflvm import SRFLVMImputer

    random, f = _smooth_function(500, 14)
    f += 0.4 * random.standard_normal(f.shape)
    columns: dict[str, Any] = {f"number {m}": pd.Series(f[:, m]) for m in range(6)}
    columns |= {
        f"count {m}": pd.Series(random.poisson(np.exp(1.5 + f[:, m]))).astype("Int64") for m in (6, 7)
    }
    columns |= {f"truth {m}": pd.Series(f[:, m] > 0.0).astype("boolean") for m in (8, 9, 10)}
    names = np.array(["a", "b", "c", "d"])
    columns |= {f"text {m}": pd.Series(names[np.digitize(f[:, m], [-0.5, 0.0, 0.5])]) for m in (11, 12, 13)}
    frame = pd.DataFrame(columns)
    holes = pd.DataFrame(random.uniform(size=frame.shape) < 0.15, columns=frame.columns)
    frame = frame.mask(holes)
    return lambda: SRFLVMImputer(random_state=0).fit_transform(frame)


_TABLES = {
    "344 x 4 Gaussian": _fit_numbers,
    "324 x 8 negative binomial": _fit_counts,
    "500 x 14 mixed with holes": _fill_a_frame,
}


def _measure(name: str, cache: str | None) -> dict[str, Any]:
    """Fit a table twice in this process; return processor seconds, and the programs of the first fit."""
    import jax

    import srflvm

    if cache is not None:
        srflvm.use_compilation_cache(cache)
    programs: dict[str, Any] = collections.defaultdict(lambda: collections.defaultdict(list))

    def note(event: str, duration_secs: float, **facts: Any) -> None:
        stage = _STAGES.get(event.rpartition("/")[2])
        if stage is not None:
            name = str(facts.get("fun_name", "?"))
            programs[name.removeprefix("jit(").removesuffix(")")][stage].append(duration_secs)

    jax.monitoring.register_event_duration_secs_listener(note)
    fit = _TABLES[name]()
    seconds, kept = [], {}
    for number in range(2):
        started = time.process_time()
        fit()
        seconds.append(time.process_time() - started)
        if number == 0:
            kept = {name: dict(stages) for name, stages in programs.items() if "compiled" in stages}
    return {"seconds": seconds, "programs": kept}


def _measure_apart(name: str, cache: str | None) -> dict[str, Any]:
    """Do as `_measure` does, in a process of its own."""
    command = [sys.executable, __file__, "--measure", name, *(["--cache", cache] if cache else [])]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def _rows(name: str, n_programs: int) -> list[list[str]]:
    """Return the rows of one table: its totals, and its slowest programs."""
    cold = _measure_apart(name, None)
    with tempfile.TemporaryDirectory() as cache:
        _measure_apart(name, cache)
        warm = _measure_apart(name, cache)
    first, second = cold["seconds"]
    rows = [
        [name, "first fit, processor", "", *[""] * 3, f"{first:.1f}"],
        ["", "second fit, processor", "", *[""] * 3, f"{second:.1f}"],
        ["", "first above second, without a cache", "", *[""] * 3, f"{first - second:.1f}"],
        ["", "first above second, programs kept", "", *[""] * 3, f"{warm['seconds'][0] - second:.1f}"],
    ]
    programs = [
        (f"`{program}`", len(stages["compiled"]), *(sum(stages.get(stage, [])) for stage in _STAGES.values()))
        for program, stages in cold["programs"].items()
    ]
    programs.sort(key=lambda program: -sum(program[2:]))
    shown, others = programs[:n_programs], programs[n_programs:]
    rest = ("all others", *(sum(column) for column in list(zip(*others, strict=True))[1:]))
    for program, count, *stages in [*shown, *([rest] if others else [])]:
        texts = [f"{seconds:.2f}" for seconds in stages]
        rows.append(
            [
                "",
                program,
                str(count),
                *texts,
                f"{sum(stages):.2f}",
            ]
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--only", choices=list(_TABLES), help="one of the tables")
    parser.add_argument("--programs", type=int, default=10, help="programs shown of each (%(default)s)")
    parser.add_argument("--measure", choices=list(_TABLES), help=argparse.SUPPRESS)
    parser.add_argument("--cache", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure is not None:
        warnings.simplefilter("ignore")
        print(json.dumps(_measure(arguments.measure, arguments.cache)))
        return
    names = list(_TABLES) if arguments.only is None else [arguments.only]
    rows = [row for name in names for row in _rows(name, arguments.programs)]
    columns = ["table", "program", "times", *(f"{stage} (s)" for stage in _STAGES.values()), "seconds"]
    report("compilation", "Programs of a first fit", columns, rows, command_line())


if __name__ == "__main__":
    main()
