"""Write `tests/slow.txt`, the list of tests that `make test-quick` leaves out, from measured durations.

    pytest -n 2 --dist worksteal --junitxml=report.xml
    python tools/slow_tests.py report.xml

A test is slow if all its cases together take longer than `--seconds`. What tests share, such as programs to
compile and fixtures of a module, is paid by the first one, so measure the quick tests again afterwards
(`-m "not slow"`) and add what has become slow with `--add`.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from pathlib import Path
from xml.etree import ElementTree

LIST = Path(__file__).resolve().parents[1] / "tests" / "slow.txt"


def durations(reports: list[Path]) -> dict[str, float]:
    """Return the seconds of every test function, summed over its cases."""
    seconds: dict[str, float] = defaultdict(float)
    for report in reports:
        for case in ElementTree.parse(report).iter("testcase"):
            file = case.get("classname", "").removeprefix("tests.").replace(".", "/")
            function = case.get("name", "").partition("[")[0]
            seconds[f"{file}.py::{function}"] += float(case.get("time", "0"))
    return seconds


def main() -> int:
    """Write the list, and print how long the tests take that are not on it."""
    parser = argparse.ArgumentParser(description="Write tests/slow.txt from reports of pytest.")
    parser.add_argument("reports", nargs="+", type=Path, help="files of pytest --junitxml")
    parser.add_argument("--seconds", type=float, default=1.0, help="the most that a quick test takes")
    parser.add_argument("--add", action="store_true", help="keep what is on the list")
    given = parser.parse_args()
    found = durations(given.reports)
    slow = {name for name, seconds in found.items() if seconds > given.seconds}
    kept = set(LIST.read_text().split()) if given.add else set()
    LIST.write_text("".join(f"{name}\n" for name in sorted(slow | kept)))
    quick = sum(seconds for name, seconds in found.items() if name not in slow | kept)
    print(f"{len(slow | kept)} of {len(found)} tests are slow; the others took {quick:.0f} s in one process.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
