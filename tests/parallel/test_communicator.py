"""A process that works alone, and the rows of several processes."""

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from srflvm import bcd, parallel
from srflvm.numerics.features import chunk_shape
from srflvm.parallel.communicator import Communicator, current


def test_one_process_exchanges_nothing():
    alone, values = current(), np.arange(4.0)
    assert (parallel.n_processes(), parallel.process_index(), parallel.is_first()) == (1, 0, True)
    assert (alone.n_processes, alone.n_processes_here(), alone.index, alone.mesh) == (1, 1, 0, None)
    assert alone.row_range(10) == (0, 10)
    assert alone.from_first(values) is values
    assert alone.gather(values) == [values]
    assert alone.sum(values)[0] is values
    assert alone.anywhere(True, False) == (True, False)
    assert alone.together(lambda: 3) == 3
    assert alone.by_first(lambda communicator: communicator.n_processes) == 1
    np.testing.assert_array_equal(alone.own_rows(alone.shard_rows(values, 4), 4), values)
    np.testing.assert_array_equal(alone.take_rows(np.array([1, 3]), values, 0), [1.0, 3.0])
    with alone.guarded(None), alone.jointly(), alone.apart():
        alone.report("something")


def test_one_process_leaves_a_run_as_it_is():
    run = bcd.Run(bcd.Carry({}, ()), {})
    assert current().shard_run(run, 3) is run
    assert current().gather_run(run, 3) is run


def one_of(n_processes, index, n_devices_each=1):
    """Make a communicator that only knows which process it is."""
    communicator = Communicator()
    communicator.n_processes, communicator.index = n_processes, index
    communicator.n_devices = n_processes * n_devices_each
    return communicator


@given(n_rows=st.integers(1, 20_000), n_processes=st.integers(1, 9), n_devices_each=st.integers(1, 4))
def test_every_row_belongs_to_one_process_in_order_and_in_whole_chunks(n_rows, n_processes, n_devices_each):
    processes = [one_of(n_processes, index, n_devices_each) for index in range(n_processes)]
    ranges = [process.row_range(n_rows) for process in processes]
    assert ranges[0][0] == 0
    assert ranges[-1][1] == n_rows
    for (start, stop), (next_start, _) in pairwise(ranges):
        assert start <= stop == next_start
    chunk_rows = chunk_shape(n_rows)[1]
    assert all(start % chunk_rows == 0 or start == n_rows for start, _ in ranges)


@given(n_rows=st.integers(1, 20_000), n_processes=st.integers(1, 9), n_devices_each=st.integers(1, 4))
def test_padding_gives_all_devices_the_same_number_of_whole_chunks(n_rows, n_processes, n_devices_each):
    (padded,) = {one_of(n_processes, i, n_devices_each).n_padded_rows(n_rows) for i in range(n_processes)}
    chunk_rows = chunk_shape(n_rows)[1]
    assert padded % (chunk_rows * n_devices_each) == 0
    assert 0 <= n_processes * padded - n_rows < chunk_rows * n_processes * n_devices_each
