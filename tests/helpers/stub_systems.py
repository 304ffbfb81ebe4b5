"""Stub of a system whose fit ends in any of the ways that a fit can end."""

import os
import signal
import sys
import time

import numpy as np


class Stub:
    def __init__(self, random_state=None, behaviour="fine"):
        self.random_state = random_state
        self.behaviour = behaviour

    def fit_transform(self, Y):
        if self.behaviour == "slow":
            time.sleep(600)
        if self.behaviour == "killed":
            print("a warning of its own", file=sys.stderr)
            os.kill(os.getpid(), signal.SIGKILL)
        if self.behaviour == "broken":
            raise RuntimeError("no convergence after\n7 steps")
        if self.behaviour == "broken in JAX":
            import jax.numpy as jnp

            jnp.ones((2, 3)) @ jnp.ones((2, 3))
        if self.behaviour == "infinite":
            return np.full((len(Y), 2), np.inf)
        print("a line of its own")
        return Y[:, 2:4] if self.random_state else Y


def stub(behaviour, seed=0, system="PCA"):
    """Return a task that fits a `Stub`."""
    from srflvm_bench.tasks import Task

    settings = {"behaviour": behaviour}
    return Task("embedding", "digits", system, seed=seed, path="stub_systems:Stub", settings=settings)
