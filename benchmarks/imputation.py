"""Missing pixels filled in: SRFLVMImputer against the rivals of `srflvm.baselines.imputers`.

    SRFLVM_DATA=folder python benchmarks/imputation.py [--only srflvm em-pca] [--data Brendan] [--shares 0.1]

SRFLVMImputer has its default settings and seed 0, and chooses its number of components Q without seeing the
missing entries. Rivals marked * are at the setting with the lowest error on the missing entries themselves.
Coverage is that of mean ± 1.645 standard deviations. Seconds are totals over the columns of the table: of
SRFLVMImputer with the choice of Q, of rivals with all their settings.

Every measurement is kept in benchmarks/.cache/imputation.json. Without options the command measures what is
not there yet; what options name is measured again. The table shows all there is.
"""

from __future__ import annotations

import argparse
import datetime
import json
from pathlib import Path
from typing import Any

import numpy as np
import rivals
from common import CONSOLE, command_line, report, timed
from holes import DATA, SHARES, missing, squared_error, with_holes

from srflvm import SRFLVMImputer

CACHE = Path(__file__).resolve().parent / ".cache" / "imputation.json"
METHODS = ["srflvm", *rivals.RIVALS]
ORACLES = ("em-pca", "soft-impute", "neighbours")
NORMAL_QUANTILE = 1.645  # of 95 %

Cells = dict[str, dict[str, Any]]


def key(method: str, name: str, share: float) -> str:
    return f"{method} | {name} | {share:g}"


def measure_own(name: str, share: float) -> dict[str, Any]:
    """Error, coverage of 90 % intervals, chosen number of components and seconds of SRFLVMImputer."""
    Y = DATA[name]()
    holes, hidden = with_holes(Y, share), missing(Y, share)
    imputer = SRFLVMImputer(n_components="auto", random_state=0)
    filled, seconds = timed(lambda: imputer.fit_transform(holes))
    CONSOLE.print(str(imputer.selection_))
    mean, std = imputer.estimator_.impute(holes, return_std=True)
    inside = np.abs(Y - mean)[hidden] <= NORMAL_QUANTILE * std[hidden]
    return {
        "error": squared_error(Y, filled, share),
        "setting": f"Q {imputer.n_components_}",
        "coverage": float(np.mean(inside)),
        "seconds": seconds,
    }


def measure(method: str, name: str, share: float) -> dict[str, Any]:
    if method == "srflvm":
        cell = measure_own(name, share)
    else:
        error, setting, seconds = rivals.measure(method, name, share)
        mark = "*" if method in ORACLES else ""
        cell = {"error": error, "setting": setting + mark, "seconds": seconds}
    cell["date"] = str(datetime.date.today())
    CONSOLE.print(key(method, name, share), cell)
    return cell


def read_cells() -> Cells:
    return json.loads(CACHE.read_text()) if CACHE.exists() else {}


def keep(name: str, cell: dict[str, Any]) -> None:
    """Add a cell to the file, which another run may have changed since it was read."""
    CACHE.parent.mkdir(exist_ok=True)
    CACHE.write_text(json.dumps({**read_cells(), name: cell}, indent=1, ensure_ascii=False))


def row(method: str, cells: Cells) -> list[str]:
    """A method's errors, one for each data and share, and its seconds together."""
    found = [cells.get(key(method, name, share)) for name in DATA for share in SHARES]
    texts = [f"{cell['error']:.5f} {cell['setting']}".strip() if cell else "-" for cell in found]
    called = "SRFLVMImputer" if method == "srflvm" else method
    return [called, *texts, f"{sum(cell['seconds'] for cell in found if cell):.1f}"]


def coverage_row(cells: Cells) -> list[str]:
    found = [cells.get(key("srflvm", name, share)) for name in DATA for share in SHARES]
    return ["its 90 % intervals cover", *(f"{cell['coverage']:.4f}" if cell else "-" for cell in found), ""]


def write(cells: Cells) -> None:
    table = [row(METHODS[0], cells), coverage_row(cells), *(row(method, cells) for method in METHODS[1:])]
    columns = ["method", *(f"{name}, {share:.0%}" for name in DATA for share in SHARES), "seconds"]
    dates = sorted({cell["date"] for cell in cells.values()})
    title = (
        "Mean squared error of missing pixels, seed 0 (* setting chosen on the missing entries), measured "
    )
    report("imputation", title + " and ".join(dates), columns, table, command_line())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=METHODS, nargs="*")
    parser.add_argument("--data", choices=DATA, nargs="*")
    parser.add_argument("--shares", type=float, choices=SHARES, nargs="*")
    arguments = parser.parse_args()
    again = bool(arguments.only or arguments.data or arguments.shares)
    for method in arguments.only or METHODS:
        for name in arguments.data or DATA:
            for share in arguments.shares or SHARES:
                cell = key(method, name, share)
                if again or cell not in read_cells():
                    keep(cell, measure(method, name, share))
    write(read_cells())


if __name__ == "__main__":
    main()
