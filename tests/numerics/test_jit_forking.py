"""Forked processes: refused where JAX would hang, and left alone where it does not."""

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="the system does not fork")

BEGINNING = """
import os, signal, sys, warnings
import numpy as np
from srflvm import SRFLVM
warnings.simplefilter("ignore")
Y = np.random.default_rng(0).poisson(3.0, size=(30, 4)).astype(float)
H = np.where(np.eye(30, 4) > 0.0, np.nan, Y)

def model(**parameters):
    return SRFLVM(max_iter=2, tol=0.0, random_state=0, **parameters)

def in_child(name, work):
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        try:
            work()
            print(name, "worked", flush=True)
        except RuntimeError as error:
            print(name, error, flush=True)
        os._exit(0)
    print(name, "ended with", os.waitpid(child, 0)[1], flush=True)
"""


def run(code):
    found = subprocess.run(
        [sys.executable, "-c", BEGINNING + code], capture_output=True, text=True, check=True
    )
    return found.stdout.splitlines()


def test_computations_are_refused_after_a_fork_of_a_process_that_used_jax():
    lines = run("""
fitted = model().fit(Y)
calls = {
    "fit": lambda: model().fit(Y),
    "holes": lambda: model().fit(H),
    "counts": lambda: model(likelihood="poisson").fit(Y),
    "batches": lambda: model(batch_size=10).fit(Y),
    "stream": lambda: model().partial_fit(Y),
    "transform": lambda: fitted.transform(Y),
    "impute": lambda: fitted.impute(H),
    "kernel": lambda: fitted.kernel(fitted.embedding_),
}
for name, work in calls.items():
    in_child(name, work)
in_child("numpy", lambda: fitted.inverse_transform(fitted.embedding_))
""")
    names = ("fit", "holes", "counts", "batches", "stream", "transform", "impute", "kernel")
    refused = dict(zip(names, lines[:-2:2], strict=True))
    for name, line in refused.items():
        assert line.startswith(f"{name} Process "), line
        assert 'get_context("spawn")' in line
    assert lines[-2] == "numpy worked"
    assert all(line.endswith("ended with 0") for line in lines[1::2])


def test_a_fork_before_the_first_computation_works():
    code = """
from multiprocessing import get_context
in_child("fit", lambda: model().fit(Y))
with get_context("fork").Pool(1) as pool:
    print("pool", pool.map(abs, [-1]))
import jax
print("config", jax.config.jax_num_cpu_devices)
in_child("config", lambda: print(jax.config.jax_num_cpu_devices))
"""
    assert run(code) == [
        "fit worked",
        "fit ended with 0",
        "pool [1]",
        "config -1",
        "-1",
        "config worked",
        "config ended with 0",
    ]
