"""Numbers of any size work or are refused with the place and a remedy; nothing is infinite silently."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from srflvm.newton import inverse_root


@pytest.mark.parametrize("precision", [1e3, 1e16, 1e30])
def test_roots_of_inverses_are_finite_however_precise_the_data(precision):
    slopes = np.random.RandomState(0).standard_normal((64, 5, 4))
    hessian = np.eye(5) + precision * np.einsum("nqc,nrc->nqr", slopes, slopes)
    with jax.enable_x64(True):
        root = np.asarray(inverse_root(jnp.asarray(hessian)))
    assert np.isfinite(root).all()
    assert np.all(np.triu(root, 1) == 0.0)
    assert np.all(np.diagonal(root, axis1=1, axis2=2) > 0.0)
    if precision < 1e8:
        assert np.allclose(root @ np.swapaxes(root, 1, 2) @ hessian, np.eye(5), atol=1e-8)
