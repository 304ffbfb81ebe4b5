"""Imputation of missing pixels: SRFLVMImputer against those of `srflvm_bench.baselines.imputers`.

    SRFLVM_DATA=folder python benchmarks/imputation.py [--data brendan]

SRFLVMImputer has its default settings and seed 0, and chooses its number of components Q without seeing the
missing entries. Other imputers with a rank, a penalty or a number of neighbours are at the setting with the
lowest error on the missing entries themselves, in their favour. Coverage is that of mean ± 1.645 standard
deviations. Seconds are totals over the columns of the table: of SRFLVMImputer with the choice of Q, of
others with all their settings. Fits are kept in a store, and the command makes those that are missing there.
Those of other imputers are shared with `srflvm bench table4`: give `--known` a file of fits that it wrote.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from common import add_store_option, command_line, outcomes, report

from srflvm_bench.baselines.imputers import IMPUTERS
from srflvm_bench.store import Store
from srflvm_bench.tasks import IMPUTER, TABLE4_DATA, task

SHARES = (0.1, 0.3, 0.6)

Found = dict[str, list[tuple[tuple[float, ...], float]]]


def measure(data: Sequence[str], store: str) -> Found:
    """Return scores and seconds of every system, in the order of the table's columns."""
    return {
        system: outcomes(
            [task("imputation", name, system, share=share) for name in data for share in SHARES], store
        )
        for system in (IMPUTER, *IMPUTERS)
    }


def rows(found: Found) -> list[list[str]]:
    lines = []
    for system, cells in found.items():
        seconds = f"{sum(seconds for _, seconds in cells):.1f}"
        lines.append([system, *(f"{scores[0]:.5f}" for scores, _ in cells), seconds])
    ours = [scores for scores, _ in found[IMPUTER]]
    coverage = ["its 90 % intervals cover", *(f"{scores[1]:.4f}" for scores in ours), ""]
    components = ["its Q", *(f"{scores[2]:.0f}" for scores in ours), ""]
    return [lines[0], coverage, components, *lines[1:]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", choices=TABLE4_DATA, nargs="*", default=list(TABLE4_DATA))
    parser.add_argument("--known", type=Path, help="file of fits (.jsonl) of `srflvm bench table4`")
    add_store_option(parser)
    arguments = parser.parse_args()
    if arguments.known is not None:
        Path(arguments.store).parent.mkdir(parents=True, exist_ok=True)
        with closing(Store(Path(arguments.store))) as fits:
            fits.add_jsonl(arguments.known.read_text(encoding="utf-8"))
    found = measure(arguments.data, arguments.store)
    columns = ["method", *(f"{name}, {share:.0%}" for name in arguments.data for share in SHARES), "seconds"]
    report("imputation", "Mean squared error of missing pixels, seed 0", columns, rows(found), command_line())


if __name__ == "__main__":
    main()
