"""What importing the package costs."""

import subprocess
import sys

import pytest

import srflvm


def test_importing_loads_no_jax_and_no_estimator():
    code = (
        "import sys, srflvm, srflvm.cli; "
        "print(sorted({'jax', 'sklearn', 'pandas', 'matplotlib', 'anndata'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_public_name_is_found():
    for name in srflvm.__all__:
        assert getattr(srflvm, name) is not None
    assert set(srflvm.__all__) <= set(dir(srflvm))
    assert srflvm.datasets.make_s_curve_gp
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        srflvm.nothing  # noqa: B018
