"""Imputation of everyday mixed tables: SRFLVMImputer with its defaults against other imputers.

    pip install -r benchmarks/requirements-tables.txt
    python benchmarks/tables.py [--quick] [--tables iris tips] [--systems missForest]
    python benchmarks/tables.py --large | --speed | --rubin

Twenty tables from Python packages lose entries completely at random (mcar) or by two columns that are left
as they are (mar); each imputer fills the same frames. NRMSE is the root mean squared error of hidden numbers
over the standard deviation of their column, error the share of wrong classes, both means over columns; "to
mean" and "to mode" are relative to filling in means and modes. Log loss has probabilities of 0.001 at least.
Coverage is that of 90 % intervals. Energy is the energy score of draws, per row, of standardised numbers, by
the estimate that does not depend on the number of draws. All are means over masks, then tables. Rank and wins
are over NRMSE and error of each table, worst is the largest ratio to mean or mode. Seconds are those to fill
a table, without draws unless the filled values are made of them (miceforest).

Rivals' runs are kept in benchmarks/.cache/tables.jsonl. A run of a part of the tables, shares or systems is
printed but not written to docs/results.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from common import CONSOLE, STORE, command_line, report
from rich.table import Table
from scipy.special import expit, stdtrit
from scipy.stats import rankdata
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer
from table_data import (
    KINDS,
    QUICK,
    TABLES,
    Column,
    Frame,
    class_columns,
    hide,
    load_tables,
    masks,
    number_columns,
    synthetic,
)
from table_rivals import N_DRAWS, OURS, SYSTEMS, Filled, Probabilities, impute

CACHE = STORE.with_name("tables.jsonl")
DETAIL = "mcar30"
LARGE = "synthetic"
LARGE_SYSTEMS = (OURS, "mean/mode", "BayesianRidge", "miceforest")
SMALLEST = 1e-3
COLUMNS = ["NRMSE", "to mean", "error", "to mode", "log loss", "coverage", "energy"]

Record = dict[str, Any]


def score(
    table: Frame,
    hidden: Frame,
    filled: Frame,
    probabilities: Probabilities | None = None,
    interval: tuple[Frame, Frame] | None = None,
    draws: list[Frame] | None = None,
) -> Record:
    """Score the hidden entries of a table; None for what cannot be scored.

    Also return the scores that means and modes of the entries not hidden would get, and those by column.
    """
    numbers = [column for column in number_columns(table) if hidden[column].any()]
    classes = [column for column in class_columns(table) if hidden[column].any()]
    spread = table[numbers].std(ddof=0).to_numpy(float)
    truth, where = table[numbers].to_numpy(float), hidden[numbers].to_numpy()
    means = hide(table, hidden)[numbers].mean().to_numpy(float)
    by_number = _nrmse(filled[numbers].to_numpy(float), truth, where, spread)
    by_class = {column: _error(table[column], hidden[column], filled[column]) for column in classes}
    modes = {column: table[column].mask(hidden[column]).mode()[0] for column in classes}
    by_mode = [
        _error(table[column], hidden[column], pd.Series(modes[column], table.index)) for column in classes
    ]
    found: Record = {
        "nrmse": _mean(by_number),
        "nrmse_of_mean": _mean(_nrmse(means, truth, where, spread)),
        "error": _mean(by_class.values()),
        "error_of_mode": _mean(by_mode),
        "log_loss": None,
        "coverage": None,
        "energy": None,
        "columns": dict(zip(numbers, by_number, strict=True)) | by_class,
    }
    if probabilities is not None:
        found["log_loss"] = _mean(
            _log_loss(table[column], hidden[column], probabilities[column]) for column in classes
        )
    if interval is not None and numbers:
        low, high = (side[numbers].to_numpy(float)[where] for side in interval)
        found["coverage"] = float(np.mean((low <= truth[where]) & (truth[where] <= high)))
    if draws is not None and numbers:
        samples = np.stack([draw[numbers].to_numpy(float) for draw in draws])
        found["energy"] = _energy(samples / spread, truth / spread, where)
    return found


def _mean(values: Iterable[float]) -> float | None:
    numbers = list(values)
    return float(np.mean(numbers)) if numbers else None


def _nrmse(values: np.ndarray, truth: np.ndarray, where: np.ndarray, spread: np.ndarray) -> list[float]:
    squares = np.where(where, (values - truth) ** 2, 0.0).sum(axis=0) / where.sum(axis=0)
    return list(np.sqrt(squares) / spread)


def _error(truth: Column, hidden: Column, values: Column) -> float:
    return float(np.mean(truth[hidden].astype(str) != values[hidden].astype(str)))


def _log_loss(truth: Column, hidden: Column, probabilities: Frame) -> float:
    """Compute the mean of -log p of hidden classes; each p is clipped, and their sum 1 again."""
    levels = sorted(truth.dropna().astype(str).unique())
    mass = probabilities.rename(columns=str).reindex(columns=levels, fill_value=0.0)[hidden].to_numpy(float)
    mass = np.clip(mass, SMALLEST, None)
    mass /= mass.sum(axis=1, keepdims=True)
    codes = np.searchsorted(levels, truth[hidden].astype(str).to_numpy(str))
    return float(-np.log(mass[np.arange(len(codes)), codes]).mean())


def _energy(samples: np.ndarray, truth: np.ndarray, where: np.ndarray) -> float:
    """Compute mean |X - y| - mean |X - X'| / 2 over different draws X, X' for rows with hidden entries."""
    rows = where.any(axis=1)
    inside = where[rows]

    def distance(a: np.ndarray, b: np.ndarray) -> float:
        return float(np.sqrt(np.sum(np.where(inside, a - b, 0.0) ** 2, axis=1)).mean())

    samples, truth = samples[:, rows], truth[rows]
    near = np.mean([distance(sample, truth) for sample in samples])
    pairs = [distance(samples[i], samples[j]) for i in range(len(samples)) for j in range(i)]
    return float(near - 0.5 * np.mean(pairs))


class Cache:
    """Finished runs in a file of JSON lines; a later line replaces an earlier one of the same run."""

    def __init__(self, path: Path, *, fresh: bool, keep_ours: bool):
        self.path = path
        self.records: dict[tuple[str, ...], Record] = {}
        if path.exists() and not fresh:
            for line in path.read_text().splitlines():
                record = json.loads(line)
                if keep_ours or record["system"] != OURS:
                    self.records[self._key(record)] = record

    @staticmethod
    def _key(record: Record) -> tuple[str, ...]:
        return tuple(str(record[name]) for name in ("table", "kind", "mask", "system", "frame"))

    def get(self, record: Record) -> Record | None:
        return self.records.get(self._key(record))

    def put(self, record: Record) -> None:
        self.records[self._key(record)] = record
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a") as file:
            file.write(json.dumps(record) + "\n")


def fingerprint(frame: Frame) -> str:
    """Return a short hash of the entries of a frame, to know when a kept run is of another one."""
    return hashlib.sha256(frame.to_csv(index=False).encode()).hexdigest()[:12]


def measure_one(cache: Cache, name: str, table: Frame, kind: str, mask: int, system: str) -> Record:
    """Return the record of a run, from the cache or made now."""
    hidden = masks(table, kind, mask)
    seen = hide(table, hidden)
    run = {"table": name, "kind": kind, "mask": mask, "system": system, "frame": fingerprint(seen)}
    kept = cache.get(run)
    if kept is not None:
        return kept
    found: Filled = impute(system, seen)
    scores = score(table, hidden, found.table, found.probabilities, found.interval, found.draws)
    record = run | scores | {"seconds": found.seconds}
    cache.put(record)
    parts = [f"{label} {record[label]:.4f}" for label in ("nrmse", "error") if record[label] is not None]
    CONSOLE.print(f"{name}, {kind}, mask {mask}, {system}: {', '.join(parts)}, {found.seconds:.1f} s")
    return record


def measure(
    cache: Cache, tables: dict[str, Frame], kinds: Sequence[str], n_masks: int, systems: Sequence[str]
) -> Frame:
    """Return scores of every system on every table and share, means over masks, by kind, table and system."""
    records = [
        measure_one(cache, name, table, kind, mask, system)
        for kind in kinds
        for name, table in tables.items()
        for mask in range(n_masks)
        for system in systems
    ]
    frame = pd.DataFrame(records).drop(columns=["columns", "mask", "frame"])
    labels = [column for column in frame.columns if column not in ("kind", "table", "system")]
    frame[labels] = frame[labels].astype(float)
    return frame.groupby(["kind", "table", "system"], sort=False).mean()


def summarise(found: Frame, kind: str, systems: Sequence[str]) -> list[list[str]]:
    """Return a line for each system: means over tables, rank, wins and the worst ratio."""
    cells = found.loc[kind].reset_index()
    errors = {
        label: cells.pivot(index="table", columns="system", values=label)[list(systems)].dropna()
        for label in ("nrmse", "error")
    }
    both = np.vstack([frame.to_numpy() for frame in errors.values()])
    ranks, wins = rankdata(both, axis=1).mean(axis=0), (rankdata(both, "min", axis=1) == 1).sum(axis=0)
    lines = []
    for system, rank, won in zip(systems, ranks, wins, strict=True):
        rows = cells[cells["system"] == system]
        to_mean, to_mode = rows["nrmse"] / rows["nrmse_of_mean"], rows["error"] / rows["error_of_mode"]
        values = [rows["nrmse"], to_mean, rows["error"], to_mode]
        values += [rows[label] for label in ("log_loss", "coverage", "energy")]
        means = ["" if column.isna().all() else f"{column.mean():.4f}" for column in values]
        worst = f"{np.nanmax([to_mean.max(), to_mode.max()]):.3f}"
        seconds = f"{rows['seconds'].mean():.2f}"
        lines.append([kind, system, *means, f"{rank:.2f}", str(won), worst, seconds])
    return lines


def details(found: Frame, kind: str, systems: Sequence[str]) -> list[list[str]]:
    """Return NRMSE and error of each table and system, the best of each line in bold."""
    lines = []
    for label, title in (("nrmse", "NRMSE"), ("error", "error")):
        cells = found.loc[kind][label].unstack("system")[list(systems)].dropna()
        for name, row in cells.iterrows():
            best = row.min()
            values = [f"**{value:.4f}**" if value == best else f"{value:.4f}" for value in row]
            lines.append([str(name), title, *values])
    return lines


def show(name: str, title: str, columns: list[str], rows: list[list[str]], *, write: bool) -> None:
    """Print a table, and write it if it is of a whole run."""
    if write:
        report(name, title, columns, rows, command_line())
        return
    table = Table(*columns, title=title)
    for row in rows:
        table.add_row(*row)
    CONSOLE.print(table)


def compare(arguments: argparse.Namespace, cache: Cache) -> None:
    """Compare systems on the tables of packages."""
    names, kinds, n_masks = arguments.tables, arguments.shares, arguments.masks
    if arguments.quick:
        names, kinds, n_masks = list(QUICK), [DETAIL], 1
    systems = arguments.systems
    whole = (names, kinds, systems) == (list(TABLES), list(KINDS), list(SYSTEMS))
    found = measure(cache, load_tables(names), kinds, n_masks, systems)
    lines = [line for kind in kinds for line in summarise(found, kind, systems)]
    columns = ["holes", "system", *COLUMNS, "rank", "wins", "worst", "seconds"]
    title = f"Imputation of {len(names)} mixed tables, masks for each table and share: {n_masks}"
    show("tables", title, columns, lines, write=whole)
    if DETAIL in kinds:
        title = f"Imputation of mixed tables, 30 % missing completely at random, masks for each: {n_masks}"
        lines = details(found, DETAIL, systems)
        show("tables_detail", title, ["table", "score", *systems], lines, write=whole)


def compare_large(arguments: argparse.Namespace, cache: Cache) -> None:
    """Compare systems on a large synthetic table."""
    systems = [system for system in LARGE_SYSTEMS if system in arguments.systems]
    table = synthetic(arguments.rows)
    found = measure(cache, {LARGE: table}, ["mcar20"], 1, systems)
    lines = [line[1:-4] + line[-1:] for line in summarise(found, "mcar20", systems)]
    title = f"Imputation of a synthetic mixed table of {len(table)} x {table.shape[1]}, 20 % missing"
    whole = len(systems) == len(LARGE_SYSTEMS) and arguments.rows == 100_000
    show("tables_large", title, ["system", *COLUMNS, "seconds"], lines, write=whole)


def speed_table() -> Frame:
    """Return a table of 500 x 14 with a fifth of its entries missing."""
    table = synthetic(500, n_numbers=8, n_classes=3, n_ordinal=3)
    return hide(table, masks(table, "mcar20", 0))


# Run in a fresh process, where the import must come before anything else does it.
CHILD = """
import json, sys, time
started = time.perf_counter()
from srflvm import SRFLVMImputer
seconds = [time.perf_counter() - started]
sys.path.insert(0, {folder!r})
import tables
table = tables.speed_table()
for _ in range(2):
    started = time.perf_counter()
    SRFLVMImputer(random_state=0).fit_transform(table)
    seconds.append(time.perf_counter() - started)
print(json.dumps(seconds))
"""


def compare_speed() -> None:
    """Compare seconds of SRFLVMImputer in a fresh process with those of missForest."""
    script = CHILD.format(folder=str(Path(__file__).resolve().parent))
    child = subprocess.run([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, check=True)
    loading, first, second = json.loads(child.stdout.splitlines()[-1])
    forest = impute("missForest", speed_table()).seconds
    cases = {f"{OURS}, first call": first, f"{OURS}, second call": second, "missForest": forest}
    lines = [[name, f"{seconds:.2f}", f"{seconds / forest:.2f}"] for name, seconds in cases.items()]
    lines.append(["import of srflvm, not counted above", f"{loading:.2f}", f"{loading / forest:.2f}"])
    title = "Seconds to fill a mixed table of 500 x 14, 20 % missing"
    show("tables_speed", title, ["what", "seconds", "to missForest"], lines, write=True)


TRUTH = np.array([1.0, 0.5, -0.5])


def regression_data(seed: int) -> tuple[Frame, Frame]:
    """Draw y = 1 + x1 / 2 - x2 / 2 + e of 200 rows, whole and with 30 % of x1 missing by y and x2."""
    rng = np.random.default_rng(seed)
    inputs = rng.multivariate_normal([0.0, 0.0], [[1.0, 0.5], [0.5, 1.0]], 200)
    y = TRUTH[0] + inputs @ TRUTH[1:] + rng.standard_normal(200)
    whole = pd.DataFrame({"x1": inputs[:, 0], "x2": inputs[:, 1], "y": y})
    return whole, whole.assign(x1=whole["x1"].mask(rng.random(200) < _missing_chance(whole)))


def _missing_chance(whole: Frame) -> np.ndarray:
    return expit(-1.12 + whole["y"] - 1.0 + whole["x2"]).to_numpy()


def least_squares(table: Frame) -> tuple[np.ndarray, np.ndarray]:
    """Return the coefficients of 1, x1 and x2 and their variances."""
    design = np.column_stack([np.ones(len(table)), table["x1"], table["x2"]])
    inverse = np.linalg.inv(design.T @ design)
    coefficients = inverse @ design.T @ table["y"].to_numpy()
    residual = table["y"].to_numpy() - design @ coefficients
    return coefficients, np.diag(inverse) * (residual @ residual) / (len(table) - 3)


def compare_rubin(n_repetitions: int) -> None:
    """Measure how often intervals of a slope, pooled over draws by Rubin's rules, cover the truth."""
    from srflvm import SRFLVMImputer
    from srflvm.imputation import pool

    def pooled(draws: list[Frame]) -> tuple[float, float, float]:
        fits = [least_squares(draw) for draw in draws]
        found = pool(np.array([fit[0] for fit in fits]), np.array([fit[1] for fit in fits]))
        low, high = found.interval(0.95)
        return found.estimate[1], low[1], high[1]

    def by_ridge(holes: Frame, seed: int) -> list[Frame]:
        imputers = [
            IterativeImputer(sample_posterior=True, skip_complete=True, random_state=1000 * seed + k)
            for k in range(N_DRAWS)
        ]
        return [pd.DataFrame(imputer.fit_transform(holes), columns=holes.columns) for imputer in imputers]

    def by_ours(holes: Frame, seed: int) -> list[Frame]:
        imputer: Any = SRFLVMImputer(random_state=0).fit(holes)
        return imputer.draw(holes, n_draws=N_DRAWS, random_state=seed)

    def plain(table: Frame) -> tuple[float, float, float]:
        estimate, variance = least_squares(table)
        width = stdtrit(len(table) - 3, 0.975) * np.sqrt(variance[1])
        return estimate[1], estimate[1] - width, estimate[1] + width

    found: dict[str, list[tuple[float, float, float]]] = {}
    for seed in range(n_repetitions):
        whole, holes = regression_data(seed)
        results = {
            OURS: pooled(by_ours(holes, seed)),
            "BayesianRidge": pooled(by_ridge(holes, seed)),
            "rows without holes": plain(holes.dropna()),
            "whole table": plain(whole),
        }
        for system, result in results.items():
            found.setdefault(system, []).append(result)
    lines = []
    for system, results in found.items():
        estimate, low, high = np.array(results).T
        covered = np.mean((low <= TRUTH[1]) & (TRUTH[1] <= high))
        numbers = [covered, np.mean(estimate) - TRUTH[1], np.std(estimate), np.mean(high - low)]
        lines.append([system, *(f"{number:.4f}" for number in numbers)])
    title = f"95 % intervals of a slope after imputation, {n_repetitions} repetitions"
    columns = ["system", "coverage", "bias", "standard deviation", "width"]
    show("tables_rubin", title, columns, lines, write=n_repetitions >= 200)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tables", choices=TABLES, nargs="+", default=list(TABLES), metavar="NAME")
    parser.add_argument("--shares", choices=KINDS, nargs="+", default=list(KINDS))
    parser.add_argument("--masks", type=int, default=3, help="masks of each table and share (%(default)s)")
    parser.add_argument("--systems", choices=SYSTEMS, nargs="+", default=list(SYSTEMS))
    parser.add_argument("--quick", action="store_true", help="four tables, 30 %%, one mask")
    parser.add_argument("--large", action="store_true", help="a synthetic table of 100 000 rows instead")
    parser.add_argument("--rows", type=int, default=100_000, help="rows of --large (%(default)s)")
    parser.add_argument("--speed", action="store_true", help="seconds of a table of 500 x 14 instead")
    parser.add_argument("--rubin", action="store_true", help="intervals pooled over draws instead")
    parser.add_argument("--repetitions", type=int, default=200, help="of --rubin (%(default)s)")
    parser.add_argument("--fresh", action="store_true", help="make runs again that are in the cache")
    parser.add_argument("--keep-ours", action="store_true", help=f"take runs of {OURS} from the cache too")
    arguments = parser.parse_args()
    cache = Cache(CACHE, fresh=arguments.fresh, keep_ours=arguments.keep_ours)
    if arguments.speed:
        compare_speed()
    elif arguments.rubin:
        compare_rubin(arguments.repetitions)
    elif arguments.large:
        compare_large(arguments, cache)
    else:
        compare(arguments, cache)


if __name__ == "__main__":
    main()
