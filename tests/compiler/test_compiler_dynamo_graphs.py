"""The graphs that Dynamo captures: what they read, what they return, and how a file recognises them."""

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))
from broken_programs import PROGRAMS, X

from kernelwright.compiler.capture.dynamo_graphs import record_graphs
from kernelwright.compiler.capture.graph_signature import sign_graph
from kernelwright.core.errors import ProblemError
from kernelwright.problems import load_problem

pytestmark = pytest.mark.filterwarnings("ignore:Dynamo does not know how to trace")


def recorded(program, *args):
    return record_graphs(program, args, {})


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_is_recorded_in_its_graphs_with_what_breaks_it(name, tmp_path):
    problem = load_problem(PROGRAMS[name].write(tmp_path))
    found = record_graphs(problem.program_on("cpu"), *problem.inputs("cpu", 0))
    assert len(found.graphs) == PROGRAMS[name].num_graphs
    assert PROGRAMS[name].cause in found.summary("data-dependent control flow")
    for signature, graph in found.graphs.items():
        assert sign_graph(graph.module, graph.inputs) == signature


def test_graphs_that_a_file_cannot_recognise_are_counted():
    def program(x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = x @ x.mT
            if y.sum() > 0:
                y = y * 2
        return y

    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = recorded(program, X)
    assert not found.graphs
    assert found.num_unsigned > 0
    assert f"; {found.num_unsigned} more" in found.summary("")


def test_an_operator_without_a_fake_is_named_in_every_recording_of_a_process(tmp_path):
    problem = load_problem(PROGRAMS["custom_op"].write(tmp_path))
    for _ in range(2):
        found = record_graphs(problem.program_on("cpu"), *problem.inputs("cpu", 0))
        assert list(found.opaque) == ["broken_programs.scaled"]


def test_the_inputs_of_the_program_are_as_before():
    def program(x):
        x.add_(1)
        return x if x.sum() > 0 else -x

    before = X.clone()
    assert recorded(program, X).graphs
    assert torch.equal(X, before)


def test_results_that_share_memory_are_recorded_as_such():
    def program(x):
        y = x * 2
        first, second = y.chunk(2)
        torch._dynamo.graph_break()
        return first + second, x.t()

    first, _ = recorded(program, torch.randn(4, 4)).graphs.values()
    pairs = [(result.shape, result.shares_with) for result in first.results]
    assert len({shared for _, shared in pairs}) == 1, pairs


def test_a_program_that_dynamo_cannot_run_is_one_clear_error():
    def caught(x):
        try:
            return x @ x
        except RuntimeError:
            return x * 2

    with pytest.raises(ProblemError, match="Dynamo cannot run the program: "):
        recorded(caught, X)


def only_graph(program, *args):
    (graph,) = recorded(program, *args).graphs.values()
    return graph


SAME = only_graph(lambda x: torch.relu(x) * 2, X).signature
OTHERS = {
    "operator": lambda: only_graph(lambda x: torch.tanh(x) * 2, X).signature,
    "literal": lambda: only_graph(lambda x: torch.relu(x) * 2.0, X).signature,
    "shape": lambda: only_graph(lambda x: torch.relu(x) * 2, X[:4]).signature,
    "strides": lambda: only_graph(lambda x: torch.relu(x) * 2, X.t().contiguous().t()).signature,
    "dtype": lambda: only_graph(lambda x: torch.relu(x) * 2, X.double()).signature,
}


def test_names_are_no_part_of_a_signature():
    def another(quite_different):
        result = torch.relu(quite_different)
        return result * 2

    assert only_graph(another, X + 1).signature == SAME


@pytest.mark.parametrize("what", OTHERS)
def test_everything_else_is_part_of_a_signature(what):
    assert OTHERS[what]() not in (SAME, None)


def test_a_default_dtype_and_autocast_are_seen():
    graph = only_graph(lambda x: torch.relu(x) * 2, X)
    with torch.autocast("cpu"):
        assert sign_graph(graph.module, graph.inputs) is None
    torch.set_default_dtype(torch.float64)
    try:
        assert sign_graph(graph.module, graph.inputs) not in (SAME, None)
    finally:
        torch.set_default_dtype(torch.float32)
