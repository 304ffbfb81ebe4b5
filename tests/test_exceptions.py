"""Warnings are told at the line of the caller."""

import inspect
from functools import partial
from pathlib import Path

import pytest

import srflvm
from srflvm.exceptions import warn_caller


def in_module(name, function):
    """Make a function that calls another, in a module of this name."""
    names = {"__name__": name, "function": function}
    exec(compile("def call(): function()", f"{name}.py", "exec"), names)
    return names["call"]


LOOK = in_module("srflvm", partial(warn_caller, "Look.", FutureWarning))


def next_line():
    return inspect.currentframe().f_back.f_lineno + 1


@pytest.mark.parametrize(
    "outer", ["srflvm", "srflvm.explore", "sklearn.pipeline", "sklearn.utils._set_output"]
)
def test_warnings_are_told_at_the_line_of_the_caller(outer):
    method = in_module(outer, in_module("srflvm.inner", LOOK))
    line = next_line() + 1
    with pytest.warns(FutureWarning, match="Look") as told:
        method()
    assert [(warning.filename, warning.lineno) for warning in told] == [(__file__, line)]


def test_code_whose_name_begins_alike_is_the_callers():
    with pytest.warns(FutureWarning) as told:
        in_module("srflvm_extras", LOOK)()
    assert told[0].filename == "srflvm_extras.py"


def test_no_other_module_counts_frames():
    modules = Path(srflvm.__file__).parent.rglob("*.py")
    found = [path.name for path in modules if "stacklevel" in path.read_text("utf-8")]
    assert found == ["exceptions.py"]
