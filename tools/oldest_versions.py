"""Print the lower bounds of the dependencies in pyproject.toml as constraints for pip."""

import re
import tomllib
from pathlib import Path


def main() -> None:
    """Print one line `name==version` for each dependency, and refuse one without a lower bound."""
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))[
        "project"
    ]
    for requirement in project["dependencies"]:
        found = re.fullmatch(r"([\w-]+)>=([\d.]+)(?:,.*)?", requirement)
        if found is None:
            raise SystemExit(f"{requirement} has no lower bound. Give it one in pyproject.toml.")
        print(f"{found[1]}=={found[2]}")


if __name__ == "__main__":
    main()
