import jax
import numpy as np
import pytest

from srflvm import SRFLVM, bcd
from srflvm.inference import plan as memory
from srflvm.inference.plan import Memory
from srflvm.inference.plan import _Shape as Shape
from srflvm.model import elbo
from srflvm.model.chunked_evidence import chunk_targets
from srflvm.model.evidence_layers import SharedData, SharedLayer
from srflvm.numerics.shared_regression import smallest_ratio

N_ROWS, N_SCORES, N_FREQUENCIES = 300_000, 7, 10
FLOAT32 = np.dtype(np.float32)


def sweep_bytes(diagonal: bool) -> float:
    """Ask XLA what a sweep holds: arguments, results and everything between."""
    kind = "diag" if diagonal else "full"
    rng = np.random.RandomState(0)
    start = elbo.StartingPoint("random", rng.standard_normal((N_ROWS, 2)), 1.0, 0.5, 0.5)
    settings = {"covariance_type": kind, "latent_covariance_type": kind, "dtype": FLOAT32}
    state = elbo.initial_state(start, rng, n_frequencies=N_FREQUENCIES, n_mixture=2, **settings)
    state |= {"log_noise": np.zeros(()), "log_ratio": np.zeros(())}
    targets = chunk_targets(np.ones((N_ROWS, N_SCORES), np.float32), 1.0, N_SCORES, FLOAT32)
    data = SharedData(targets, np.asarray(smallest_ratio(N_ROWS, FLOAT32)))
    model = elbo.build_model(elbo.Settings(SharedLayer()))
    run = bcd.begin(model, state)
    group, key = model.blocks[:2], jax.random.key(0, impl="rbg")
    climb = jax.jit(bcd._climb_steps, static_argnames="group")
    arguments = group, key, run.carry.state, run.carry.memories[:2], data, np.asarray(0.1)
    found = climb.lower(*arguments).compile().memory_analysis()
    return found.argument_size_in_bytes + found.output_size_in_bytes + found.temp_size_in_bytes


@pytest.mark.parametrize("diagonal", [False, True])
def test_a_sweep_holds_what_the_formula_says(diagonal):
    shape = Shape(N_ROWS, N_SCORES, N_SCORES, 2 * N_FREQUENCIES, 2, diagonal, 4, 5000)
    parts = Memory.of_complete(shape).parts
    in_chunks = parts["scores"] * 4 / (4 + 8)
    best_state = parts["latents"] / 14
    predicted = parts["latents"] - best_state + in_chunks
    assert sweep_bytes(diagonal) == pytest.approx(predicted, rel=0.1)


def test_rows_cost_the_same_each():
    shapes = [Shape(n, 50, 50, 100, 2, False, 4, 5000) for n in (10**6, 2 * 10**6, 3 * 10**6)]
    totals = [Memory.of_complete(shape).total for shape in shapes]
    np.testing.assert_allclose(totals[2] - totals[1], totals[1] - totals[0], rtol=0.01)
    assert totals[1] - totals[0] == pytest.approx(10**6 * (50 * 8 + 14 * 6 * 4 + 24 * 6), rel=0.01)


def test_what_cannot_fit_is_refused_with_numbers_before_it_starts(monkeypatch):
    monkeypatch.setattr(memory, "available", lambda: 1e8)
    Y = np.random.RandomState(0).standard_normal((60, 5))
    with pytest.raises(
        MemoryError, match=r"needs about 0\.\d\d GB .*programs 0\.20 GB.*only 0\.10 GB are free"
    ):
        SRFLVM(random_state=0).fit(Y)


def test_processes_on_one_machine_share_its_memory(monkeypatch):
    monkeypatch.setattr(memory, "available", lambda: 1e9)
    Memory({"everything": 6e8}).refuse_excess()
    with pytest.raises(MemoryError, match=r"0\.60 GB .*in each of 2 processes here, but only 1\.00 GB"):
        Memory({"everything": 6e8}).refuse_excess(n_sharing=2)


@pytest.mark.parametrize(
    ("n_rows", "n_columns", "n_scores", "held"),
    [
        (30_000, 20_000, 20_000, 40 * 20_000**2),
        (30_000, 20_000, 100, 40 * 20_000 * 250),
        (1000, 20_000, 100, 40 * 1000**2 + 24 * 20_000 * 100),
        (10**6, 784, 100, 40 * 784**2),
    ],
)
def test_directions_take_what_the_way_to_find_them_takes(n_rows, n_columns, n_scores, held):
    shape = Shape(n_rows, n_columns, n_scores, 100, 2, False, 4, 5000)
    assert Memory.of_complete(shape).parts["columns"] == held


def test_unknown_room_refuses_nothing(monkeypatch):
    monkeypatch.setattr(memory, "available", lambda: None)
    Memory({"everything": 1e18}).refuse_excess()


def test_available_memory_is_some():
    room = memory.available()
    assert room is None or room > 1e6


@pytest.mark.parametrize(
    ("parameters", "holes", "part"),
    [({}, False, "scores"), ({}, True, "entries"), ({"likelihood": "bernoulli"}, False, "entries")],
)
def test_a_model_predicts_the_memory_of_its_fit(parameters, holes, part):
    need = SRFLVM(**parameters).predict_memory(10**6, 500, holes=holes)
    assert max(need.parts, key=lambda name: need.parts[name]) == part
    assert need.total == sum(need.parts.values())
    assert f"{need.total / 1e9:.2f} GB ({part}" in str(need)
