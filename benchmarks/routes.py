"""Comparison of the routes of inference.

    SRFLVM_DATA=folder python benchmarks/routes.py [--only montreal] [--routes sites gradient]

Seed 0, two dimensions, all else at its default. Bound, accuracy and seconds are of a fit to all entries; the
log probability of held-out entries is of a second fit, without a tenth of the entries (mask seed 0). Bounds
of different routes differ in tightness as well as in the optimum. Seconds include compilation.
"""

from __future__ import annotations

import argparse

import numpy as np
from common import CONSOLE, command_line, data_folder, nearest_neighbours, report, timed
from counts import CASES
from missing_entries import hide_entries, missing_mask

from srflvm import SRFLVM
from srflvm_bench.baselines import SYSTEMS
from srflvm_bench.views import load, view

SHARE = 0.1
DATA = ("mnist-binary", "montreal", "bridges", "newsgroups-binary")
ROUTES = ("sites", "polya_gamma", "polya_gamma_sampled", "gradient")


def row(name: str, route: str) -> list[str]:
    case = CASES[name]
    data = load(case.data, str(data_folder()), 0)
    Y, labels = view(data, SYSTEMS[case.system].suits), np.asarray(data.labels)
    model = SRFLVM(likelihood=case.likelihood, inference=route, random_state=0)
    _, seconds = timed(lambda: model.fit(Y))
    bound, accuracy = model.elbo_ / Y.size, nearest_neighbours(model.embedding_, labels)
    sweeps = model.n_iter_
    seen = hide_entries(Y, SHARE)
    scores = model.fit(seen).score_entries(seen, Y)[missing_mask(Y, SHARE)]
    found = [f"{bound:.4f}", f"{np.mean(scores):.4f}", f"{accuracy:.4f}", str(sweeps), f"{seconds:.1f}"]
    line = [case.title, case.likelihood, route, *found]
    CONSOLE.print(" | ".join(line))
    return line


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=DATA, nargs="*", default=list(DATA))
    parser.add_argument("--routes", choices=ROUTES, nargs="*", default=list(ROUTES))
    arguments = parser.parse_args()
    rows = [row(name, route) for name in arguments.only for route in arguments.routes]
    columns = [
        "data",
        "likelihood",
        "route",
        "bound per entry",
        "log p held out",
        "1-NN",
        "sweeps",
        "seconds",
    ]
    report("routes", "Routes of inference, seed 0", columns, rows, command_line())


if __name__ == "__main__":
    main()
