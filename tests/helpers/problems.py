"""Problems as a fit of all rows builds them, for tests of what comes before and after."""

from srflvm.data.sources import ArraySource
from srflvm.inference.facts import TrainingData
from srflvm.inference.params import Params
from srflvm.inference.plan import gather_facts, plan_fit
from srflvm.likelihoods.columns import choose
from srflvm.parallel.communicator import Communicator


def plan_and_problem(Y, likelihood="gaussian", **settings):
    """Plan a fit of Y by one process, and build its problem."""
    params, alone = Params(likelihood=likelihood, **settings).check(), Communicator()
    data = TrainingData(ArraySource(Y), choose(likelihood, Y.shape[1], None))
    facts = gather_facts(params, data, alone)
    plan = plan_fit(params, facts, alone)
    return plan, plan.build_problem(data, facts)
