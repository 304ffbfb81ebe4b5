"""Structure of the package and of its tests, as far as no linter holds it."""

import ast
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
SOURCE = TESTS.parent / "src" / "srflvm"

# Modules without a test file of their name, and the files that test them: packages that define something
# themselves, commands, which are tried through the application, and steps that only whole fits show.
TESTED_ELSEWHERE = {
    "__init__.py": "test_package.py",
    "cli/__init__.py": "cli/test_app.py, cli/test_startup.py",
    "cli/columns.py": "cli/test_commands.py, integration/test_kinds_of_data.py",
    "cli/demo.py": "cli/test_app.py",
    "cli/explore.py": "cli/test_commands.py",
    "cli/fit.py": "cli/test_commands.py, cli/test_errors.py, cli/test_worker.py",
    "cli/impute.py": "cli/test_commands.py",
    "cli/inspect.py": "cli/test_commands.py",
    "cli/model_table.py": "cli/test_commands.py, cli/test_errors.py",
    "cli/options.py": "cli/test_errors.py",
    "cli/output.py": "cli/test_outputs.py",
    "cli/plot.py": "cli/test_commands.py",
    "cli/progress_bar.py": "cli/test_app.py",
    "cli/sample.py": "cli/test_commands.py",
    "cli/score.py": "cli/test_commands.py",
    "cli/transform.py": "cli/test_commands.py",
    "data/schema/entries.py": "data/schema/test_schema.py",
    "data/schema/libraries.py": "data/schema/test_schema.py, cli/test_tables.py",
    "data/tables/fields.py": "data/tables/test_text.py, cli/test_tables.py",
    "data/tables/frame.py": "data/schema/test_schema.py, cli/test_tables.py",
    "data/tables/h5ad.py": "test_anndata.py",
    "data/tables/parquet.py": "data/test_files.py, data/tables/test_round_trips.py",
    "data/tables/table.py": "data/tables/test_formats.py, data/tables/test_labels.py",
    "data/tables/zarr.py": "data/test_files.py, data/tables/test_round_trips.py",
    "explore/__init__.py": "explore/test_page.py, browser/test_explore.py",
    "inference/facts.py": "inference/test_plan.py, inference/test_minibatch.py",
    "inference/full_batch.py": "test_estimator.py, integration/test_awkward_shapes.py",
    "inference/params.py": "test_estimator.py, test_sklearn_contract.py",
    "inference/progress.py": "test_estimator.py, cli/test_app.py",
    "inference/result.py": "test_estimator.py, inference/test_falling_bounds.py",
    "parallel/__init__.py": "parallel/test_communicator.py",
    "storage/model_file/__init__.py": "storage/model_file/test_file.py",
}


def modules():
    """Return the files of the package, relative to it, without those that only import or describe."""
    paths = [path.relative_to(SOURCE) for path in sorted(SOURCE.rglob("*.py"))]
    return [path.as_posix() for path in paths if defines_something(SOURCE / path)]


def defines_something(path):
    kinds = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    return any(isinstance(node, kinds) for node in ast.parse(path.read_text("utf-8")).body)


def mirrored_tests(module):
    """Return the mirrored test file of a module; that of a package is named after its folder."""
    path = Path(module)
    name = path.parent.name if path.stem == "__init__" else path.stem.lstrip("_")
    return TESTS / path.parent / f"test_{name}.py"


@pytest.mark.parametrize("module", modules())
def test_every_module_has_tests_of_its_name_or_is_listed(module):
    if module in TESTED_ELSEWHERE:
        assert not mirrored_tests(module).exists(), f"{module} has its own tests now: take it off the list"
        assert all((TESTS / file).exists() for file in TESTED_ELSEWHERE[module].split(", "))
    else:
        assert mirrored_tests(module).exists(), f"{module} has no tests: write {mirrored_tests(module)}"


def test_no_module_is_listed_that_does_not_exist():
    assert set(TESTED_ELSEWHERE) <= set(modules())


def test_only_the_package_for_processes_knows_the_runtime_of_jax():
    named = [path for path in SOURCE.rglob("*.py") if "jax.distributed" in path.read_text("utf-8")]
    assert named
    assert {path.parent.name for path in named} == {"parallel"}


def slow_tests():
    return (TESTS / "slow.txt").read_text().split()


def functions_of(file):
    """Return the names of the test functions in a file."""
    found = ast.walk(ast.parse((TESTS / file).read_text("utf-8")))
    return {
        node.name for node in found if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }


def test_every_slow_test_exists():
    for name in slow_tests():
        file, _, function = name.partition("::")
        assert (TESTS / file).exists(), f"{name}: take it off tests/slow.txt"
        assert function in functions_of(file), f"{name}: take it off tests/slow.txt"


@pytest.mark.parametrize(
    "folder", sorted(path.name for path in SOURCE.iterdir() if (path / "__init__.py").exists())
)
def test_quick_tests_touch_every_package(folder):
    files = [path.relative_to(TESTS).as_posix() for path in (TESTS / folder).rglob("test_*.py")]
    every = {f"{file}::{function}" for file in files for function in functions_of(file)}
    assert every - set(slow_tests())
