"""Plans of the experiments."""

import pytest

from srflvm_bench import paper
from srflvm_bench.baselines import SYSTEMS
from srflvm_bench.baselines.rflvm import RFLVM
from srflvm_bench.tasks import IMPUTER, TABLE1_DATA, TABLE1_SYSTEMS, plan, task


def test_plans_and_paper():
    assert set(paper.TABLE1) <= set(TABLE1_SYSTEMS) <= set(SYSTEMS)
    assert {"t-SNE", "UMAP", "DCA"} <= set(TABLE1_SYSTEMS)
    assert all(set(row) == set(TABLE1_DATA) for row in (*paper.TABLE1.values(), *paper.TABLE2.values()))
    assert all(len(row) == 9 for system in paper.TABLE3.values() for row in system.values())
    assert len(plan("table1", seeds=5)) == 5 * len(TABLE1_DATA) * len(TABLE1_SYSTEMS)
    assert {task.data for task in plan("table1", seeds=5, quick=True)} == {"digits"}
    (same_size,) = plan("table2", seeds=1, only=["G-OURS, 50 frequencies", "mnist"])
    assert same_size.settings["n_frequencies"] == RFLVM().n_frequencies
    with pytest.raises(ValueError, match="'PCB' is neither"):
        plan("table1", seeds=1, only=["PCB"])
    with pytest.raises(ValueError, match="table2 has no fit of bridges and G-RFLVM, 4000 sweeps"):
        plan("table2", seeds=1, only=["bridges", "G-RFLVM, 4000 sweeps"])


def test_the_plan_of_weights():
    tasks = plan("weights", seeds=1)
    assert {task.settings["inference"] for task in tasks if "bernoulli" in task.data} >= {"sites", "gradient"}
    assert len({task.key for task in tasks}) == len(tasks)


def test_the_default_imputer_is_a_system_of_its_own_beside_the_papers_model():
    """Table 4 keeps the model without an affine part, and its fits are told apart from the imputer's."""
    imputer = task("imputation", "digits", IMPUTER, share=0.1)
    assert imputer.settings == {}
    (papers,) = plan("table4", seeds=1, quick=True, only=["G-OURS"])[:1]
    assert papers.settings["affine"] is False
    assert imputer.key != task("imputation", "digits", "G-OURS", share=0.1).key
