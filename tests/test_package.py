"""Import of the package: what it loads, and the names that it shows."""

import subprocess
import sys

import pytest

import srflvm


def printed_by(code):
    """Return what a fresh interpreter prints."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_importing_loads_no_jax_and_no_estimator():
    code = (
        "import sys, srflvm, srflvm.cli; "
        "print(sorted({'jax', 'sklearn', 'pandas', 'matplotlib', 'anndata'} & set(sys.modules)))"
    )
    assert printed_by(code) == "[]"


def test_only_public_names_are_listed_whatever_has_been_imported():
    code = "import srflvm, srflvm.estimator, srflvm.cli, srflvm.numerics.features; print(*dir(srflvm))"
    modules = {"anndata", "bcd", "datasets", "explore", "imputation", "likelihoods", "parallel", "plot"}
    assert set(printed_by(code).split()) == {*srflvm.__all__, *modules}


def test_every_public_name_is_found():
    for name in srflvm.__all__:
        assert getattr(srflvm, name) is not None
    assert set(srflvm.__all__) <= set(dir(srflvm))
    assert srflvm.datasets.make_s_curve_gp
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        srflvm.nothing  # noqa: B018
