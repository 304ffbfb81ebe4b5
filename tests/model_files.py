"""Model files for the tests: written, read and changed without the checks of the library."""

import hashlib
import json
import warnings

import numpy as np
from safetensors import safe_open
from safetensors.numpy import save as to_bytes
from sklearn.exceptions import ConvergenceWarning

from srflvm import SRFLVM, persistence


def some_rows(n_rows=30):
    angle = np.linspace(0.0, 5.0, n_rows)
    clean = np.column_stack([np.sin(angle), np.cos(angle), angle, angle**2 / 5.0])
    return clean + 0.1 * np.random.RandomState(0).standard_normal(clean.shape)


def fit_briefly(Y, **parameters):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return SRFLVM(**{"max_iter": 3, "random_state": 0} | parameters).fit(Y)


def assert_same(left, right, where="model"):
    """Equal in structure, types and every bit."""
    assert type(left) is type(right), where
    if isinstance(left, np.ndarray):
        assert left.dtype == right.dtype, where
        np.testing.assert_array_equal(left, right, err_msg=where, strict=True)
    elif isinstance(left, dict):
        assert left.keys() == right.keys(), where
        for key in left:
            assert_same(left[key], right[key], f"{where}.{key}")
    elif isinstance(left, tuple):
        for index, pair in enumerate(zip(left, right, strict=True)):
            assert_same(*pair, f"{where}[{index}]")
    elif hasattr(left, "__dict__"):
        assert_same(vars(left), vars(right), where)
    else:
        assert left == right, where


def read(path):
    """Header and tensors of a file, without any of the checks of the library."""
    with safe_open(path, framework="numpy") as container:
        header = json.loads(container.metadata()[persistence.HEADER_KEY])
        return header, {name: container.get_tensor(name) for name in container.keys()}  # noqa: SIM118


def write(path, header, tensors, *, sign=True):
    """A file with the checksums that belong to its content, whatever it is."""
    if sign:
        header = header | {"tensors_sha256": persistence._digest(tensors)}
    text = json.dumps(header)
    digest = hashlib.sha256(text.encode()).hexdigest()
    metadata = {persistence.HEADER_KEY: text, persistence.HEADER_DIGEST_KEY: digest}
    path.write_bytes(to_bytes({n: np.asarray(t, order="C") for n, t in tensors.items()}, metadata))
