"""Rival imputers of `srflvm.baselines` on images with missing pixels.

    SRFLVM_DATA=folder python benchmarks/rivals.py [--only em-pca soft-impute] [--shares 0.1 0.3 0.6]

Those with a rank, a penalty or a number of neighbours are reported at the setting with the lowest error on
the missing entries themselves. Times are those of all settings together.
"""

from __future__ import annotations

import argparse
import time

from common import CONSOLE
from holes import DATA, SHARES, squared_error, with_holes

from srflvm.baselines.imputers import RIVALS


def measure(rival: str, name: str, share: float) -> tuple[float, str, float]:
    """The lowest error over the rival's settings, that setting, and the seconds of all settings."""
    Y = DATA[name]()
    holes = with_holes(Y, share)
    started = time.perf_counter()
    errors = {setting: squared_error(Y, filled, share) for setting, filled in RIVALS[rival](holes)}
    seconds = time.perf_counter() - started
    CONSOLE.print(rival, name, share, {key: round(value, 5) for key, value in errors.items()})
    best = min(errors, key=lambda setting: errors[setting])
    return errors[best], best, seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=RIVALS, nargs="*", default=list(RIVALS))
    parser.add_argument("--shares", type=float, nargs="*", default=list(SHARES))
    arguments = parser.parse_args()
    for rival in arguments.only:
        for name in DATA:
            for share in arguments.shares:
                error, setting, seconds = measure(rival, name, share)
                CONSOLE.print(f"{rival} | {name} | {share:.0%} | {error:.5f} | {setting} | {seconds:.1f} s")


if __name__ == "__main__":
    main()
