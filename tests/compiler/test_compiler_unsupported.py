"""What a program leaves to torch: called as the program called it, with the reason, and what stands around it fused."""

import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

sys.path.insert(0, str(Path(__file__).parent))
from test_compiler_cpp import captured
from test_compiler_random import with_kernels

from kernelwright.compiler.regions.operators import op_name
from kernelwright.compiler.regions.partition import plan_regions

IMAGE, TABLE = torch.randn(2, 3, 8, 8), torch.randn(50, 16)
PLACES = torch.randint(0, 50, (40,), generator=torch.Generator().manual_seed(0))
STARTS = torch.tensor([0, 10, 10, 25])


def one_row_seen(times, x):
    return x.new_zeros(1, x.shape[1]).expand(times, -1)


PROGRAMS = {
    "index_add": (lambda x, i: F.relu(one_row_seen(50, x).index_add(0, i, x * 2)) + 1, TABLE[:40], PLACES),
    "im2col": (lambda x: F.relu(F.unfold(x * 2, 3)) + 1, IMAGE),
    "col2im": (lambda x: F.relu(F.fold(x * 2, (8, 8), 3, padding=1)) + 1, torch.randn(2, 27, 64)),
    "reflection_pad2d": (lambda x: F.relu(F.pad(x * 2, (1, 1, 1, 1), mode="reflect")) + 1, IMAGE),
    "replication_pad2d": (lambda x: F.relu(F.pad(x * 2, (1, 1, 1, 1), mode="replicate")) + 1, IMAGE),
    "upsample_bicubic2d": (lambda x: F.relu(F.interpolate(x * 2, scale_factor=2, mode="bicubic")) + 1, IMAGE),
    "upsample_linear1d": (lambda x: F.relu(F.interpolate(x * 2, scale_factor=2, mode="linear")) + 1, IMAGE[0]),
    "_embedding_bag_forward_only": (lambda t, i, s: F.relu(F.embedding_bag(i, t * 2, s)) + 1, TABLE, PLACES, STARTS),
}  # fmt: skip
REASONS = {
    "index_add": "data-dependent indexing",
    "im2col": "windows",
    "col2im": "windows",
    "_embedding_bag_forward_only": "variable length",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_an_operator_that_no_region_holds_is_called_as_it_is_and_what_is_around_it_fused(name):
    program, *args = PROGRAMS[name]
    regions, refused = plan_regions(captured(program, *args).graph)
    assert {op_name(node.target) for node in refused} - {"getitem"} == {name}
    assert len(regions) == 2
    made, count = with_kernels(program, args)
    assert count == 2
    torch.testing.assert_close(made(*args), program(*args))


@pytest.mark.parametrize("name", REASONS)
def test_the_reason_says_what_a_region_lacks(name):
    program, *args = PROGRAMS[name]
    _, refused = plan_regions(captured(program, *args).graph)
    (reason,) = {reason for node, reason in refused.items() if op_name(node.target) == name}
    assert REASONS[name] in reason


def test_an_operator_that_nobody_knows_is_said_not_to_be_one_of_those_that_fit():
    _, refused = plan_regions(captured(lambda x: torch.cummax(x, -1).values.logcumsumexp(-1) * 2, TABLE).graph)
    reasons = {op_name(node.target): reason for node, reason in refused.items()}
    assert "needs sorting" in reasons["cummax"]
    assert "not pointwise" in reasons["logcumsumexp"]


@pytest.mark.parametrize(
    "several",
    [lambda x: x.max(-1).values, lambda x: x.min(-1)[1], lambda x: torch.var_mean(x, -1)[0]],
    ids=["max", "argmin", "var"],
)
def test_several_results_of_repeated_rows_are_left_as_a_whole(several):
    def program(x):
        return several(x.unsqueeze(0).expand(3, 50, 16)).abs() * 2, x.relu() + 1

    regions, refused = plan_regions(captured(program, TABLE).graph)
    assert [reason for node, reason in refused.items() if op_name(node.target) != "getitem"] == [
        "no region can store its results"
    ]
    made, count = with_kernels(program, [TABLE])
    assert count == len(regions) == 2
    torch.testing.assert_close(made(TABLE), program(TABLE))
