"""Several processes that fit one model together.

This is the only package that knows of processes. It may import `bcd`, `likelihoods`, `numerics`, `_typing`
and `exceptions`. Users start processes with `start`; everything else is internal.
"""

from srflvm.parallel.communicator import current
from srflvm.parallel.peers import CONNECT_TIMEOUT, PEER_TIMEOUT, start

__all__ = ["CONNECT_TIMEOUT", "PEER_TIMEOUT", "is_first", "n_processes", "process_index", "start"]


def n_processes() -> int:
    """Return how many processes work on a fit."""
    return current().n_processes


def process_index() -> int:
    """Return which of the processes this is, from 0."""
    return current().index


def is_first() -> bool:
    """Tell whether this is the process that writes files and prints."""
    return current().is_first
