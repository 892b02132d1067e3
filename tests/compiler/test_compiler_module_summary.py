"""Regions and operators left to torch are grouped by module, equal modules of a stack together."""

import msgspec
import pytest
import torch
from torch import nn

from kernelwright.compiler.capture.dynamo_graphs import record_graphs
from kernelwright.compiler.graph_planning import plan_graph
from kernelwright.compiler.module_summary import stack_name, summarize_modules
from kernelwright.compiler.planning import plan_program
from kernelwright.compiler.session import untuned
from kernelwright.core.optimization import Attempt

replace = msgspec.structs.replace
KERNEL = Attempt(name="kernel", config={"vector_axis": "i0"})


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up, self.down = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x):
        return x + self.down(torch.sigmoid(self.up(x)) * 2)


class Stack(nn.Module):
    def __init__(self, widths=(8, 8, 8)):
        super().__init__()
        self.blocks = nn.ModuleList(Block(width) for width in widths)
        self.head = nn.Linear(widths[-1], 4)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return torch.relu(self.head(x))


def planned(program, *args):
    """A plan and its outcomes: a kernel takes 10 us for each region, torch 30 us."""
    with torch.no_grad():
        plan = plan_program(program, args, {})
    regions = [part for part in plan.regions if part.region.name not in plan.same_as]
    outcomes = [
        replace(
            untuned(part, "").outcome,
            before_us=30.0, after_us=10.0, limiter="DRAM", winner="kernel", attempts=(KERNEL,),
            num_occurrences=plan.count(part.region.name),
        )
        for part in regions
    ]  # fmt: skip
    return plan, outcomes


def by_name(program, *args, runs_kernels=True):
    plan, outcomes = planned(program, *args)
    return {row.name: row for row in summarize_modules([plan], outcomes, None, runs_kernels=runs_kernels)}


def test_equal_blocks_are_one_row_with_their_linear_layers():
    rows = by_name(Stack(), torch.randn(2, 8))
    assert set(rows) == {"blocks.0-2", "head", ""}
    block = rows["blocks.0-2"]
    assert (block.num_modules, block.num_regions, block.num_kernels) == (3, 6, 6)
    assert [(left.operator, left.count) for left in block.fallbacks] == [("aten.linear.default", 6)]
    assert "matrix product" in block.fallbacks[0].reason
    assert rows["head"].fallbacks[0].count == 1
    assert rows[""].num_regions == 1


def test_modules_of_graphs_between_breaks_have_the_paths_of_the_program():
    class Broken(Stack):
        def forward(self, x):
            return super().forward(x if x.sum() > 0 else -x)

    model, x = Broken().eval(), torch.randn(2, 8)
    recorded = record_graphs(model, (x,), {})
    plans = [plan_graph(graph, number, model).plan for number, graph in enumerate(recorded.graphs.values())
             if len(graph.module.graph.nodes) > 8]  # fmt: skip
    rows = summarize_modules(plans, [], None, runs_kernels=True)
    assert {row.name for row in rows} == {"blocks.0-2", "head"}


def test_every_region_is_counted_once():
    plan, outcomes = planned(Stack(), torch.randn(2, 8))
    rows = summarize_modules([plan], outcomes, None, runs_kernels=True)
    assert sum(row.num_regions for row in rows) == len(plan.regions)
    assert {name for row in rows for name in row.regions} == {outcome.name for outcome in outcomes}


class Widening(nn.Module):
    """Two blocks that differ in width."""

    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Block(8), Block(8), Block(6)])

    def forward(self, x):
        return self.blocks[2](self.blocks[1](self.blocks[0](x))[:, :6])


def test_blocks_of_other_shapes_are_rows_of_their_own():
    assert {"blocks.0-1", "blocks.2"} <= set(by_name(Widening(), torch.randn(2, 8)))


def test_layers_of_a_sequential_are_listed_by_themselves():
    program = nn.Sequential(nn.Linear(8, 8), nn.Sequential(nn.Linear(8, 8), nn.ReLU()))
    assert set(by_name(program, torch.randn(2, 8))) == {"0", "1.0", "1.1"}


def test_a_function_is_one_row_that_is_timed_by_its_regions():
    (row,) = by_name(lambda x: torch.sigmoid(x) * 2, torch.randn(2, 8)).values()
    assert (row.name, row.before_us, row.after_us, row.limiter, row.share) == ("", 30.0, 10.0, "DRAM", None)


def test_a_module_with_operators_that_nobody_timed_is_not_timed():
    rows = by_name(Stack(), torch.randn(2, 8))
    assert (rows["blocks.0-2"].before_us, rows["blocks.0-2"].after_us) == (None, None)
    assert rows["head"].before_us is None
    assert rows[""].before_us == 30.0


def test_kernels_that_are_not_used_take_no_time():
    rows = by_name(Stack(), torch.randn(2, 8), runs_kernels=False)
    assert all(row.num_kernels == 0 and row.after_us is None for row in rows.values())


def test_a_diagnosis_times_the_modules():
    from kernelwright.diagnosis.record_builder import build_diagnosis
    from kernelwright.diagnosis.why import predict_problem
    from kernelwright.machines.specs import machine_from_spec
    from kernelwright.problems import Problem

    program, x = Stack(), torch.randn(2, 8)
    problem = Problem.from_callable(program, x)
    diagnosis = build_diagnosis(predict_problem(problem, machine_from_spec("h200")), "stack", "")
    diagnosis = replace(diagnosis, time_us=200.0)
    plan, outcomes = planned(program, x)
    outcomes = [replace(outcome, after_us=1.0) for outcome in outcomes]
    rows = {row.name: row for row in summarize_modules([plan], outcomes, diagnosis, runs_kernels=True)}
    total_us = sum(row.before_us or 0.0 for row in rows.values())
    assert total_us == pytest.approx(sum(module.time_us for module in diagnosis.modules))
    block = rows["blocks.0-2"]
    linear_us = sum(row.time_us for row in diagnosis.operators if row.module.endswith(("up", "down")))
    assert block.after_us == pytest.approx(linear_us + 6 * 1.0)
    assert block.share == pytest.approx(block.before_us / 200.0)
    assert rows["head"].after_us == pytest.approx(rows["head"].before_us)
    assert rows["blocks.0-2"] == max(rows.values(), key=lambda row: row.before_us or 0.0)


def test_regions_that_torch_won_take_as_long_as_before():
    plan, outcomes = planned(lambda x: torch.sigmoid(x) * 2, torch.randn(2, 8))
    outcomes = [replace(outcome, winner="torch", after_us=30.0) for outcome in outcomes]
    (row,) = summarize_modules([plan], outcomes, None, runs_kernels=True)
    assert (row.before_us, row.after_us, row.num_kernels) == (30.0, 30.0, 0)


@pytest.mark.parametrize(
    ("paths", "name"),
    [
        (["layers.0.mlp", "layers.1.mlp", "layers.2.mlp"], "layers.0-2.mlp"),
        (["blocks.0", "blocks.2", "blocks.3"], "blocks.0,2-3"),
        (["a.0.b.0", "a.0.b.1", "a.1.b.0", "a.1.b.1"], "a.0-1.b.0-1"),
        (["head"], "head"),
        ([""], ""),
    ],
)
def test_a_stack_has_one_name(paths, name):
    assert stack_name(paths) == name
