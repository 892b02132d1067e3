"""Depthwise convolutions in regions: which kernels there are, and random ones as C++ against FP64."""

import random
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from tiers import fast_first

sys.path.insert(0, str(Path(__file__).parent))
from depthwise_programs import BATCH_NORM, IMAGE, KERNEL, LAST, PROGRAMS, SHIFT, fused, normal
from test_compiler_cpp import captured, execute

from kernelwright.compiler.capture.target_device import capturing_for
from kernelwright.compiler.regions.operators import op_name
from kernelwright.compiler.regions.partition import plan_regions

CONVOLVE = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
BEFORE = (lambda x: x, lambda x: x.relu(), lambda x: x * 2 + 1, lambda x: x.sigmoid(), lambda x: x.softmax(1))
AFTER = (
    lambda y: y,
    lambda y: F.silu(y),
    lambda y: y.sum(1),
    lambda y: y.softmax(-1),
    lambda y: F.relu6(y).mean((0, -1)),
)
DTYPES = {torch.float32: 2e-6, torch.float64: 1e-12, torch.bfloat16: 2e-2, torch.float16: 2e-3}


def random_program(seed):
    """A depthwise convolution with random windows, what computes its input and what reads it; and its arguments."""
    rng = random.Random(seed)
    rank, channels, multiplier = rng.randint(1, 3), rng.choice([2, 3, 8]), rng.choice([1, 1, 2])
    kernel = [rng.randint(1, 5 if rank < 3 else 3) for _ in range(rank)]
    settings = {
        "stride": [rng.randint(1, 3) for _ in range(rank)],
        "padding": [rng.randint(0, size) for size in kernel],
        "dilation": [rng.randint(1, 2) for _ in range(rank)],
        "groups": channels,
    }
    before, after, dtype = rng.choice(BEFORE), rng.choice(AFTER), rng.choice([torch.float32, *DTYPES])
    x = normal(rng.choice([1, 2]), channels, *[rng.randint(10, 23) for _ in range(rank)], seed=seed)
    if rng.random() < 0.4 and rank < 3:  # torch keeps volumes with the channels last
        x = x.movedim(1, -1).contiguous().movedim(-1, 1)
    args = [x, normal(channels * multiplier, 1, *kernel, seed=seed + 1)]
    if rng.random() < 0.5:
        args.append(normal(channels * multiplier, seed=seed + 2))
    return (lambda x, *rest: after(CONVOLVE[rank](before(x), *rest, **settings))), [one.to(dtype) for one in args]


@pytest.mark.parametrize("seed", fast_first(15, range(80)))
def test_random_convolutions(seed):
    program, args = random_program(seed)
    graph = captured(program, *args).graph
    regions, refused = plan_regions(graph)
    assert not any("conv" in op_name(node.target) for node in refused), refused
    (end,) = graph.find_nodes(op="output")
    result = end.args[0][0].meta["val"]  # of volumes in channels-last order torch itself returns other strides
    wanted, tolerance = program(*(one.double() for one in args)), DTYPES[args[0].dtype]
    for pick in (0, 1):
        (got,) = execute(graph, regions, args, pick)
        assert (got.dtype, got.stride()) == (result.dtype, result.stride())
        torch.testing.assert_close(got.double(), wanted, rtol=tolerance, atol=tolerance * wanted.abs().max().item())


@pytest.mark.parametrize("name", [name for name in PROGRAMS if "last" not in name])
def test_one_region_has_all(name):
    program, *args = PROGRAMS[name]
    regions, refused = plan_regions(captured(program, *args).graph)
    assert len(regions) == 1 and not refused


def test_the_weight_of_channels_last_images_is_reordered_in_each_call():
    (copy, _), (region, _) = plan_regions(captured(fused, LAST, KERNEL, *BATCH_NORM).graph)[0]
    assert copy.reads == ["w"] and "w" not in region.reads
    weights = [load for load in region.loads if load.buffer == copy.writes[0]]
    assert len(weights) == 9 and all(1 in load.strides.values() for load in weights)


def test_bytes_are_those_of_the_images_and_the_weight():
    ((region, _),), _ = plan_regions(captured(PROGRAMS["depthwise"][0], IMAGE, KERNEL, SHIFT).graph)
    assert region.bytes_moved == (IMAGE.nbytes + KERNEL.nbytes + SHIFT.nbytes, IMAGE.nbytes)


def depthwise_of(before):
    return lambda x, w: F.conv2d(before(x), w, None, 1, 1, 1, 6)


INPUTS = {  # (input of a convolution, number of kernels on a CPU, on a GPU)
    "relu": (lambda x: x.relu(), 1, 1),
    "some arithmetic": (lambda x: (x * 2 + 1).clamp(0, 6), 2, 1),
    "much arithmetic": (lambda x: ((x * 2 + 1) * x + 3) * x * (x - 1) + x.abs(), 2, 2),
    "a special function": (lambda x: x.sigmoid(), 2, 2),
    "the larger of a column": (lambda x: x.maximum(x[..., :1].relu()).relu(), 2, 1),
    "another convolution": (lambda x: F.conv2d(x, KERNEL.clone(), None, 1, 1, 1, 6).relu(), 2, 2),
}


@pytest.mark.parametrize("before", INPUTS)
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_cheap_inputs_are_computed_for_each_tap(before, device):
    program, *counts = INPUTS[before]
    with capturing_for(device):
        regions, _ = plan_regions(captured(depthwise_of(program), IMAGE, KERNEL).graph)
    assert len(regions) == counts[device == "cuda"]


WINDOWS_OF = {
    "convolution": lambda x, w: F.conv2d(x, w, None, 1, 1, 1, 6),
    "pooling": lambda x, w: F.avg_pool2d(x, 3, 1, 1),
}


@pytest.mark.parametrize("kind", WINDOWS_OF)
def test_windows_of_a_concatenation_are_read_from_memory(kind):

    def program(x, w):
        return WINDOWS_OF[kind](torch.cat((x[:, :3], x[:, 3:] * 2), 1), w)

    graph = captured(program, *TWO).graph
    regions, refused = plan_regions(graph)
    assert len(regions) == 2 and not refused
    torch.testing.assert_close(execute(graph, regions, TWO, 0)[0], program(*TWO))


def test_what_others_read_is_computed_once():
    regions, _ = plan_regions(captured(lambda x, w: ((y := x.relu()), depthwise_of(lambda x: x)(y, w)), *TWO).graph)
    assert sum(step.op == "relu" for region, _ in regions for step in region.steps) == 1


TWO = (IMAGE, KERNEL)


def test_padding_is_not_tested_where_the_input_is_0_there():
    for before, is_tested in ((lambda x: x.relu() * 2, False), (lambda x: x + 1, True)):
        with capturing_for("cuda"):
            ((region, _),), _ = plan_regions(captured(depthwise_of(before), *TWO).graph)
        assert any(step.op == "where" for step in region.steps) == is_tested


def test_rows_that_are_read_again_read_what_is_stored():

    def program(x, w):
        return F.batch_norm(depthwise_of(lambda x: x)(x, w), None, None, training=True)

    for device, count in (("cpu", 2), ("cuda", 1)):  # a row of 646 elements stays in registers
        with capturing_for(device):
            regions, _ = plan_regions(captured(program, *TWO).graph)
        assert len(regions) == count
    with capturing_for("cuda"):
        assert len(plan_regions(captured(program, normal(20, 6, 17, 19), KERNEL).graph)[0]) == 2


def test_a_product_computes_the_input_as_its_epilogue_on_a_gpu():
    x, w = torch.empty(16, 64, 56, 56, device="meta"), torch.empty(64, 64, 1, 1, device="meta")
    taps = torch.empty(64, 1, 3, 3, device="meta")

    def program(x, w, taps):
        return F.conv2d(F.conv2d(x, w).relu(), taps, None, 1, 1, 1, 64)

    assert len(plan_regions(captured(program, x, w, taps).graph)[0]) == 2
    with capturing_for("cpu"):
        assert len(plan_regions(captured(program, x, w, taps).graph)[0]) == 1
