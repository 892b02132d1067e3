"""Plans of Dynamo's graphs: regions with names of their own, memory as before, faults that cost one graph."""

import math
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parent))
from broken_programs import X
from first_choice import FirstChoice

from kernelwright.compiler import graph_planning
from kernelwright.compiler.budget import Budget
from kernelwright.compiler.capture.dynamo_graphs import record_graphs
from kernelwright.compiler.graph_planning import plan_graph
from kernelwright.compiler.session import OptimizationSession
from kernelwright.core.errors import ProblemError
from kernelwright.problems import Problem


def planned(program, *args):
    graphs = record_graphs(program, args, {}).graphs.values()
    return [plan_graph(graph, number, program) for number, graph in enumerate(graphs, 1)]


def session_of(program, *args):
    with torch.no_grad():
        session = OptimizationSession(Problem.from_callable(program, *args), FirstChoice(), Budget(math.inf))
        session.make_plan()
    return session


def by_value(x):
    x = torch.relu(x) * 2
    return torch.tanh(x) + 1 if x.sum() > 0 else x


def test_regions_are_named_after_their_graph():
    names = [part.region.name for graph in planned(by_value, X) for part in graph.plan.regions]
    assert len(set(names)) == len(names) == 2
    assert [name.partition("_region")[0] for name in names] == ["graph_1", "graph_2"]


def test_a_graph_without_regions_has_no_plan():
    assert planned(lambda x: x.t(), X) == [None]


@pytest.mark.parametrize(
    "compute",
    [
        lambda x: (x * 2).chunk(2, -1),
        lambda x: ((x * 2)[0], x.t()),
        lambda x: [x * 2 + 1] * 2,
        lambda x: (x.add_(1), x * 2),
    ],
    ids=["chunks", "view of an input", "the same twice", "changed input"],
)
def test_results_share_memory_as_before(compute):
    (graph,) = record_graphs(compute, [X.clone()], {}).graphs.values()
    found = plan_graph(graph, 1, compute)
    assert found is None or graph_planning._layouts_with_kernels(found.plan, found.values) == graph.results


def test_a_graph_whose_results_would_not_be_views_of_one_tensor_stays_with_torch():
    """A region stores each of the views; Python could change one of them in place."""

    def two_views(x):
        y = x * 2
        return y.unsqueeze(0), y.squeeze()

    with pytest.raises(ProblemError, match="share memory"):
        planned(two_views, X)


def test_a_graph_that_enables_gradients_stays_with_torch():
    def differentiated(x):
        with torch.enable_grad():
            return torch.relu(x) * 2 + 1

    with pytest.raises(ProblemError, match="gradients"):
        planned(differentiated, X)


def test_a_graph_that_fails_costs_itself_alone(monkeypatch):
    plan_captured = graph_planning.plan_captured

    def failing(captured, prefix):
        if prefix == "graph_1_region":
            raise RuntimeError("no luck")
        return plan_captured(captured, prefix)

    monkeypatch.setattr(graph_planning, "plan_captured", failing)
    session = session_of(by_value, X)
    assert session.faults[0] == "graph 1 stays with torch: RuntimeError: no luck"
    assert [part.region.name for part in session._unique_regions()] == ["graph_2_region_0"]


def test_parameters_of_the_program_are_folded_as_in_a_whole_program():
    class Affine(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.norm = nn.Conv2d(3, 4, 3, bias=False), nn.BatchNorm2d(4)

        def forward(self, x):
            return self.norm(self.conv(x)) * 2

    (graph,) = planned(Affine().eval(), torch.randn(2, 3, 8, 8))
    assert [rewrite.name for rewrite in graph.plan.captured.rewrites] == ["affine_folding"]
