"""Print measures of the structure of `src/srflvm`, and fail if one of them is above its bar.

The measures are those that decide how long a stranger takes to find a way through the package: how many
entries the folder shows, how deep imports are nested, how many names are public, how many modules serve only
one other, how many files one ordinary fit passes through, and how many private names leave their package.
The files of a fit are traced, not counted by hand.
"""

from __future__ import annotations

import argparse
import ast
import functools
import graphlib
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[1] / "src"
PACKAGE = SOURCE / "srflvm"

# Run in a process of its own, with every call of a function traced. The first fit imports what is imported
# late, so that the trace of the second one shows calls only.
_TRACE = """
import sys, threading
import numpy as np
from srflvm import SRFLVM

found = set()

def note(frame, event, argument):
    found.add(frame.f_code.co_filename)

Y = np.random.default_rng(0).normal(size=(60, 5))
model = SRFLVM(n_components=2, random_state=0).fit(Y)
threading.setprofile(note)
sys.setprofile(note)
model.fit(Y)
sys.setprofile(None)
print(*sorted(found), sep="\\n")
"""


@dataclass(frozen=True)
class Measure:
    """Number, the most that it may be, and what makes it up."""

    name: str
    most: int
    details: tuple[str, ...]

    @property
    def value(self) -> int:
        return len(self.details)

    @property
    def holds(self) -> bool:
        return self.value <= self.most


@dataclass(frozen=True)
class Module:
    """Module of the package: its dotted name, its file and its parsed code."""

    name: str
    path: Path
    code: ast.Module

    @property
    def package(self) -> str:
        return self.name if self.path.name == "__init__.py" else self.name.rpartition(".")[0]

    def public_names(self) -> list[str]:
        """Return the functions and classes without a leading underscore that it defines at its top level."""
        return [
            node.name
            for node in self.code.body
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
            and not node.name.startswith("_")
        ]

    def imported_names(self, *, late: bool) -> Iterator[str]:
        """Yield the dotted names of what it imports, those inside of functions if `late`."""
        for node in ast.walk(self.code) if late else _statements(self.code):
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                source = self._source(node)
                yield from (f"{source}.{alias.name}" for alias in node.names)

    def _source(self, node: ast.ImportFrom) -> str:
        """Return the dotted name of the module that names are imported from."""
        parts = self.package.split(".")
        above = parts[: len(parts) - node.level + 1] if node.level else []
        return ".".join([*above, *([node.module] if node.module else [])])


def _statements(node: ast.AST) -> Iterator[ast.AST]:
    """Yield what runs at import: no bodies of functions, nothing for type checkers alone."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            continue
        yield child
        yield from _statements(child)


def read_modules() -> dict[str, Module]:
    """Return the modules of the package by their dotted names."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found[name] = Module(name, path, ast.parse(path.read_text("utf-8")))
    return found


def import_graph(modules: dict[str, Module]) -> dict[str, set[str]]:
    """Return the modules of the package that each module imports when it is imported itself."""

    def module_of(name: str) -> str:
        return name if name in modules else name.rpartition(".")[0]

    return {
        module.name: {module_of(name) for name in module.imported_names(late=False)}
        & set(modules) - {module.name}
        for module in modules.values()
    }


def longest_chain(graph: dict[str, set[str]]) -> tuple[str, ...]:
    """Return the longest chain of imports."""
    graphlib.TopologicalSorter(graph).prepare()  # raises an error that names a circle of imports

    @functools.cache
    def chain(name: str) -> tuple[str, ...]:
        return (name, *max((chain(other) for other in sorted(graph[name])), key=len, default=()))

    return max((chain(name) for name in sorted(graph)), key=len)


def modules_with_one_importer(modules: dict[str, Module], graph: dict[str, set[str]]) -> tuple[str, ...]:
    """Return the modules, other than packages, that exactly one other module imports."""
    importers = {name: [other for other in graph if name in graph[other]] for name in modules}
    return tuple(
        f"{name} (by {users[0]})"
        for name, users in importers.items()
        if len(users) == 1 and modules[name].path.name != "__init__.py"
    )


def private_imports(modules: dict[str, Module]) -> tuple[str, ...]:
    """Return the imports of private names from outside of the package that holds them."""
    found = []
    for module in modules.values():
        for name in module.imported_names(late=True):
            parts = name.split(".")
            private = [i for i, part in enumerate(parts) if part.startswith("_") and not part.endswith("__")]
            if parts[0] != PACKAGE.name or not private:
                continue
            owner = ".".join(parts[: private[0]])
            owner = modules[owner].package if owner in modules else owner
            if not f"{module.package}.".startswith(f"{owner}."):
                found.append(f"{name} (by {module.name})")
    return tuple(found)


def files_of_a_fit() -> tuple[str, ...]:
    """Return the files of the package whose code runs in a fit of complete Gaussian data."""
    command = [sys.executable, "-W", "ignore", "-c", _TRACE]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"The fit that is traced has failed:\n{done.stderr}")
    paths = [Path(line) for line in done.stdout.splitlines()]
    return tuple(str(path.relative_to(PACKAGE)) for path in paths if path.is_relative_to(PACKAGE))


def measures() -> list[Measure]:
    """Measure the package as it is."""
    modules = read_modules()
    graph = import_graph(modules)
    entries = tuple(sorted(path.name for path in PACKAGE.iterdir() if path.name != "__pycache__"))
    names = tuple(f"{module.name}.{name}" for module in modules.values() for name in module.public_names())
    lonely = modules_with_one_importer(modules, graph)
    return [
        Measure("entries directly in src/srflvm", 22, entries),
        Measure("depth of the longest chain of imports", 15, longest_chain(graph)),
        Measure("public functions and classes at top level", 345, names),
        Measure("modules with exactly one importer", 35, lonely),
        Measure("files that a fit of complete Gaussian data passes through", 26, files_of_a_fit()),
        Measure("imports of private names from another package", 0, private_imports(modules)),
    ]


def main() -> int:
    """Print all measures; return 1 if one is above its bar."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--details", action="store_true", help="print what makes up each measure")
    details = parser.parse_args().details
    found = measures()
    for measure in found:
        print(
            f"{'ok  ' if measure.holds else 'FAIL'} {measure.name}: {measure.value} (at most {measure.most})"
        )
        if details:
            print("".join(f"       {detail}\n" for detail in measure.details), end="")
    return int(not all(measure.holds for measure in found))


if __name__ == "__main__":
    sys.exit(main())
