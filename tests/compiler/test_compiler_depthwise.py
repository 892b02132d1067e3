"""Depthwise convolutions are matched with their windows, and marked; others are left to torch."""

import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

sys.path.insert(0, str(Path(__file__).parent))
from rewrite_checks import captured_with, check, count, normal, operators, randomized

from kernelwright.compiler.capture.capture import capture
from kernelwright.compiler.planning import plan_captured
from kernelwright.compiler.regions.axes import Unsupported
from kernelwright.compiler.regions.depthwise import match_depthwise
from kernelwright.compiler.regions.nodes import DEPTHWISE
from kernelwright.compiler.rewrites.registry import DEPTHWISE_CONVOLUTIONS

X, W = normal(2, 4, 9, 11), normal(8, 1, 3, 2)


def convolution_of(program, *args):
    with torch.no_grad():
        graph = capture(program, args, {}).graph
    return next(node for node in graph.nodes if "conv" in str(node.target))


def test_windows_and_channels():
    one = match_depthwise(convolution_of(lambda x, w: F.conv2d(x, w, None, (2, 1), (1, 0), (1, 3), 4), X, W))
    assert (one.channels, one.multiplier, one.bias, one.num_taps) == (4, 2, None, 6)
    assert [tuple(dim) for dim in one.windows.dims] == [(9, 5, 3, 2, 1, 1), (11, 8, 2, 1, 0, 3)]


def test_the_larger_half_of_the_same_padding_is_after_the_image():
    one = match_depthwise(convolution_of(lambda x, w: F.conv2d(x, w, None, 1, "same", (1, 3), 4), X, W))
    assert [tuple(dim) for dim in one.windows.dims] == [(9, 9, 3, 1, 1, 1), (11, 11, 2, 1, 1, 3)]
    valid = match_depthwise(convolution_of(lambda x, w: F.conv2d(x, w, None, 1, "valid", 1, 4), X, W))
    assert [dim.padding for dim in valid.windows.dims] == [0, 0]


def test_taps_that_meet_padding_only_are_not_counted():
    one = match_depthwise(convolution_of(lambda x, w: F.conv2d(x[:, :, :1], w, None, 1, 1, 1, 4), X, W))
    assert one.num_taps == 2


OTHERS = {
    "dense": nn.Conv2d(4, 8, 3),
    "two groups": nn.Conv2d(4, 8, 3, groups=2),
    "one channel": nn.Sequential(nn.Conv2d(4, 1, 1), nn.Conv2d(1, 8, 3)),
    "transposed": nn.ConvTranspose2d(4, 4, 3, groups=4),
    "many taps": nn.Conv2d(4, 4, 9, groups=4),
    "a volume with the channels last": nn.Conv3d(4, 4, 3, groups=4),
}
INPUTS = {"a volume with the channels last": normal(1, 4, 5, 6, 7).to(memory_format=torch.channels_last_3d)}


@pytest.mark.parametrize("why", OTHERS)
def test_torch_keeps(why):
    captured = captured_with(randomized(OTHERS[why]), [INPUTS.get(why, X)], DEPTHWISE_CONVOLUTIONS)
    assert count(captured, DEPTHWISE_CONVOLUTIONS) == 0
    assert not any(DEPTHWISE in node.meta for node in captured.graph.nodes)
    assert any("conv" in one.operator for one in plan_captured(captured).fallbacks)


def test_other_operators_are_no_convolutions():
    with torch.no_grad():
        _, node, _ = capture(lambda x: x.relu(), (X,), {}).graph.nodes
    with pytest.raises(Unsupported, match="not a convolution"):
        match_depthwise(node)


def test_a_batch_norm_stays_where_a_region_computes_the_convolution():
    module = nn.Sequential(nn.Conv2d(4, 4, 3, groups=4), nn.BatchNorm2d(4), nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4))
    alone = captured_with(randomized(module), [X], "affine_folding")
    both = captured_with(randomized(module), [X], "affine_folding", DEPTHWISE_CONVOLUTIONS)
    assert (count(alone, "affine_folding"), count(both, "affine_folding")) == (2, 1)


def test_weights_of_channels_last_images_keep_results_and_layouts():
    module = randomized(nn.Conv2d(4, 8, 3, 2, 1, groups=4))
    captured = check(module, [X.to(memory_format=torch.channels_last)], DEPTHWISE_CONVOLUTIONS)
    assert operators(captured)[:3] == ["permute", "clone", "permute"]


def test_the_backward_convolution_stays_with_torch():
    def gradients(x, w, out):
        return torch.ops.aten.convolution_backward(
            out, x, w, None, [1, 1], [0, 0], [1, 1], False, [0, 0], 4, [True, True, False]
        )

    out = normal(2, 8, 7, 10)
    with torch.no_grad():
        captured = capture(gradients, (X, W, out), {})
    assert not any(DEPTHWISE in node.meta for node in captured.graph.nodes)
    assert not plan_captured(captured).regions
