"""Rows that lie across memory, as those of norms of channels-last images do: right in every choice, and without reading
element by element."""

import sys
from pathlib import Path

import msgspec
import pytest
import torch
import torch.nn.functional as F
from tiers import fast_where

sys.path.insert(0, str(Path(__file__).parent))
from test_compiler_cpp import call, captured, execute

from kernelwright.compiler.cpp.printer import CppConfig, generate_configs, print_cpp
from kernelwright.compiler.regions.partition import plan_regions
from kernelwright.core.optimization import Attempt


def image(*shape, dtype=torch.float32):
    drawn = torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(dtype)
    return drawn.to(memory_format=torch.channels_last)


def in_groups(x, groups):
    return x.reshape(x.shape[0], groups, x.shape[1] // groups, -1)


def shares(x):
    powers = (x - x.amax((2, 3), True)).exp()
    return powers / powers.sum((2, 3), True)


def masked(x):
    return x * torch.any(x > 2.5, (2, 3), keepdim=True)


def from_least(x):
    return x - x.amin((2, 3), True)


GROUPED = {
    "four_of_128": (lambda x: F.silu(F.group_norm(x, 32)), image(2, 128, 8, 9)),
    "a_last_chunk_that_is_shorter": (lambda x: F.group_norm(x, 24) * 2, image(2, 96, 40, 41)),
    "three_of_9": (lambda x: F.group_norm(x, 3) * 2, image(3, 9, 5, 5)),
    "ten_of_40": (lambda x: F.group_norm(x, 4) * 2, image(2, 40, 70, 60)),
    "a_long_row": (lambda x: F.group_norm(x, 2) * 2, image(1, 8, 200, 200)),
    "bfloat16": (lambda x: F.group_norm(x, 8) * 2, image(2, 32, 16, 16, dtype=torch.bfloat16)),
    "float64": (lambda x: F.group_norm(x, 8) * 2, image(2, 32, 16, 16, dtype=torch.float64)),
    "shares": (lambda x: shares(in_groups(x, 4)), image(2, 32, 16, 16)),
    "truths": (lambda x: masked(in_groups(x, 8)), image(2, 32, 8, 8)),
    "least": (lambda x: from_least(in_groups(x, 8)), image(2, 32, 9, 8)),
}  # fmt: skip
WITH_WEIGHTS = (lambda x, w, b: F.group_norm(x, 8, w, b) * 2, image(2, 32, 16, 16), torch.randn(32), torch.randn(32))
COLUMNS = {
    "batch_norm": (lambda x: F.batch_norm(x, None, None, training=True) * 2, image(4, 96, 20, 20)),
    "few_columns": (lambda x: F.batch_norm(x, None, None, training=True) * 2, image(4, 3, 80, 80)),
    "long_columns": (lambda x: F.batch_norm(x, None, None, training=True) * 2, image(4, 128, 40, 40)),
    "whole_samples": (lambda x: F.group_norm(x, 1) * 2, image(2, 96, 70, 70)),
    "layer_norm": (lambda x: F.layer_norm(x.permute(0, 2, 3, 1), (64,)) * 2, torch.randn(2, 64, 20, 20)),
    "sums": (lambda x: x.sum(0) * 2, torch.rand(5000, 200)),
    "softmax_of_columns": (lambda x: torch.softmax(x, 0), torch.randn(2000, 70)),
}
CASES = GROUPED | COLUMNS | {"with_weights": WITH_WEIGHTS}


@pytest.mark.parametrize("name", fast_where(range(0, 99, 2), CASES))
def test_rows_across_memory_are_right_in_every_choice(name):
    program, *args = CASES[name]
    graph = captured(program, *args).graph
    ((region, nodes),), _ = plan_regions(graph)
    for pick in range(len(generate_configs(region))):
        (got,) = execute(graph, [(region, nodes)], args, pick)
        torch.testing.assert_close(got, program(*args))


@pytest.mark.parametrize("name", fast_where(range(0, 99, 2), [*GROUPED, "with_weights"]))
def test_groups_of_channels_beside_each_other_are_read_as_vectors(name):
    program, *args = CASES[name]
    ((region, _),), _ = plan_regions(captured(program, *args).graph)
    assert generate_configs(region)
    for choice in generate_configs(region):
        printed = print_cpp(region, choice)
        assert "gather<" not in printed and "scatter<" not in printed, choice


@pytest.mark.parametrize("offset", [0.1, 300.1, 12345.678])
def test_groups_of_equal_channels_are_zero(offset):
    x = torch.full((2, 32, 16, 16), offset).to(memory_format=torch.channels_last)
    ((region, _),), _ = plan_regions(captured(lambda x: F.group_norm(x, 8) * 2, x).graph)
    for pick in range(len(generate_configs(region))):
        (got,) = call(region, {region.reads[0]: x}, pick).values()
        assert not got.any()


def test_results_lie_in_memory_as_the_image_does():
    program, *args = GROUPED["four_of_128"]
    ((region, _),), _ = plan_regions(captured(program, *args).graph)
    (store,) = region.stores
    assert store.shape_strides == program(*args).stride()


def test_what_lies_apart_is_not_read_as_one():
    """The row's mean alone goes out: one element for each group, not for each channel."""
    x = image(2, 32, 16, 16)
    ((region, _),), _ = plan_regions(captured(lambda x: in_groups(x, 8).mean((2, 3)) * 2, x).graph)
    assert all(not choice.inner_vector_axis for choice in generate_configs(region))
    (got,) = call(region, {region.reads[0]: x}, 0).values()
    torch.testing.assert_close(got, in_groups(x, 8).mean((2, 3)) * 2)


def test_a_choice_is_a_record_that_an_outcome_can_hold():
    program, *args = GROUPED["four_of_128"]
    ((region, _),), _ = plan_regions(captured(program, *args).graph)
    for choice in (*generate_configs(region), CppConfig(vector_axis="r0")):
        attempt = Attempt(name="one", config=msgspec.to_builtins(choice))
        assert msgspec.json.decode(msgspec.json.encode(attempt), type=Attempt) == attempt
