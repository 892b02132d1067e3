"""Convolutions as filters times windows: the records, evaluated as they are defined, are what torch computes."""

from itertools import product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import fx

from kernelwright.compiler.regions.axes import Unsupported
from kernelwright.compiler.regions.convolution_matching import bias_of, match_convolution

aten = torch.ops.aten


def node_of(image, weight, bias=None, *options, target=aten.convolution.default):
    """The node of a convolution in a graph of its own."""
    graph = fx.Graph()
    nodes = []
    for name, value in (("x", image), ("w", weight), ("c", bias)):
        nodes.append(graph.placeholder(name) if value is not None else None)
        if nodes[-1] is not None:
            nodes[-1].meta["val"] = value
    node = graph.call_function(target, (*nodes, *options))
    node.meta["val"] = target(image, weight, bias, *options)
    return node


def convolve(image, weight, bias=None, *, stride=1, padding=0, dilation=1, transposed=False, extra=0, groups=1):
    rank = image.dim() - 2
    lists = [[value] * rank if isinstance(value, int) else list(value) for value in (stride, padding, dilation, extra)]
    return node_of(image, weight, bias, *lists[:3], transposed, lists[3], groups)


def evaluated(one, image, weight):
    """A contraction of filters and windows, element by element, as the docstrings define it."""
    filters, windows = one.left, one.right
    pixels = image.as_strided((image.untyped_storage().size() // image.element_size(),), (1,), 0)
    weights = weight.reshape(-1)
    result = torch.zeros(one.batch, one.m, *windows.output_size, dtype=torch.float64)
    channels, batch = torch.arange(windows.channels), torch.arange(one.batch)
    group = (batch % windows.groups)[:, None]
    batches = (batch // windows.groups)[:, None] * windows.batch_stride + windows.offset + image.storage_offset()
    batches = batches + group * windows.channels * windows.channel_stride
    rows = filters.offset + torch.arange(one.m)[:, None] * filters.row_stride + channels * filters.channel_stride
    rows = rows + group[:, :, None] * filters.group_stride
    for output in product(*map(range, windows.output_size)):
        for tap in product(*map(range, windows.taps)):
            at, weight_at, inside = 0, 0, True
            for dim, (place, t) in enumerate(zip(output, tap, strict=True)):
                q, phase = divmod(place, windows.phases[dim])
                position = q * windows.step[dim] + windows.start[dim][phase] + t * windows.dilation[dim]
                index = filters.first[dim][phase] + t * filters.tap_step[dim]
                has_tap = t < windows.phase_taps[dim][phase]
                assert not has_tap or 0 <= index < filters.kernel_size[dim]
                inside &= has_tap and 0 <= position < windows.image_size[dim]
                at += position * windows.image_strides[dim]
                weight_at = weight_at * filters.kernel_size[dim] + index
            if inside:
                x = pixels[batches + at + channels * windows.channel_stride].double()
                weight_of_tap = weights[rows + weight_at].double()
                result[(slice(None), slice(None), *output)] += (weight_of_tap @ x[:, :, None])[:, :, 0]
    return result.view(one.batch // windows.groups, windows.groups * one.m, *windows.output_size)


def check(node, image, weight):
    one = match_convolution(node)
    torch.testing.assert_close(evaluated(one, image, weight), node.meta["val"].double(), rtol=1e-4, atol=1e-4)
    assert one.k == one.right.channels * torch.Size(one.right.taps).numel()
    return one


@st.composite
def convolutions(draw, transposed):
    rank = draw(st.integers(1, 2))

    def sizes(least, most):
        return [draw(st.integers(least, most)) for _ in range(rank)]

    kernel, stride = sizes(1, 4), sizes(1, 3)
    dilation = sizes(1, 3)
    reach = [(size - 1) * step + 1 for size, step in zip(kernel, dilation, strict=True)]
    padding = [draw(st.integers(0, min(2, most - 1))) for most in reach]
    image = [draw(st.integers(max(1, least - 2 * pad), 5 + least)) for least, pad in zip(reach, padding, strict=True)]
    extra = [draw(st.integers(0, max(step, wide) - 1)) if transposed else 0
             for step, wide in zip(stride, dilation, strict=True)]  # fmt: skip
    return draw(st.integers(2, 3)), draw(st.integers(1, 3)), kernel, stride, padding, dilation, extra, image


def tensors(channels, out, kernel, image, transposed, groups=1):
    generator = torch.Generator().manual_seed(0)
    sizes = (groups * channels, out) if transposed else (groups * out, channels)
    weight = torch.randn(*sizes, *kernel, generator=generator)
    return torch.randn(2, groups * channels, *image, generator=generator), weight


@pytest.mark.parametrize("groups", [1, 3])
@pytest.mark.parametrize("transposed", [False, True])
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_every_convolution_is_the_product_of_its_filters_and_windows(transposed, groups, data):
    channels, out, kernel, stride, padding, dilation, extra, size = data.draw(convolutions(transposed))
    image, weight = tensors(channels, out, kernel, size, transposed, groups)
    options = {
        "stride": stride,
        "padding": padding,
        "dilation": dilation,
        "extra": extra,
        "transposed": transposed,
        "groups": groups,
    }
    try:
        node = convolve(image, weight, **options)
    except RuntimeError:  # torch refuses an empty output
        return
    check(node, image, weight)


def test_images_may_be_views():
    graph = fx.Graph()
    whole, weight = torch.randn(4, 6, 9, 8), torch.randn(5, 3, 2, 3)
    x, w = graph.placeholder("x"), graph.placeholder("w")
    part = graph.call_function(aten.slice.Tensor, (x, 1, 1, 7, 2))
    node = graph.call_function(aten.conv2d.default, (part, w))
    x.meta["val"], w.meta["val"], part.meta["val"] = whole, weight, whole[:, 1:7:2]
    node.meta["val"] = torch.conv2d(whole[:, 1:7:2], weight)
    one = match_convolution(node)
    assert (one.right.buffer, one.right.offset) == ("x", 72)
    torch.testing.assert_close(evaluated(one, whole, weight), node.meta["val"].double(), rtol=1e-4, atol=1e-4)


def test_the_phases_of_a_transposed_convolution_are_apart_by_its_stride():
    image, weight = torch.randn(2, 3, 4, 5), torch.randn(3, 2, 5, 3)
    one = check(convolve(image, weight, stride=(2, 3), transposed=True), image, weight)
    assert one.right.phases == (2, 3)
    assert one.right.taps == (3, 1)
    assert one.right.phase_taps == ((3, 2), (1, 1, 1))
    assert one.right.uneven_dims == [0]
    assert one.flops == 2 * (2 * 2 * 3) * (6 * 3 + 5 * 2) * 15, "outputs of each phase times their taps"


def test_a_dilation_that_shares_the_stride_leaves_phases_without_taps():
    image, weight = torch.randn(2, 3, 4, 5), torch.randn(3, 2, 3, 3)
    one = check(convolve(image, weight, stride=2, padding=1, dilation=2, transposed=True), image, weight)
    assert one.right.phase_taps == ((0, 3), (0, 3))
    assert one.right.dilation == (1, 1)


def test_a_dilation_without_a_common_factor_spreads_the_taps():
    image, weight = torch.randn(2, 3, 4, 5), torch.randn(3, 2, 3, 7)
    one = check(convolve(image, weight, stride=(5, 2), padding=1, dilation=(2, 3), transposed=True), image, weight)
    assert one.right.phase_taps == ((0, 1, 0, 1, 1), (3, 4))
    assert one.right.dilation == (2, 3)


def test_a_bias_is_along_the_rows():
    image, weight, bias = torch.randn(2, 3, 6, 6), torch.randn(4, 3, 3, 3), torch.randn(4)
    one = match_convolution(convolve(image, weight, bias))
    assert (one.bias, one.bias_along) == (("c", "float32"), "m")


@pytest.mark.parametrize("permitted", [True, False])
def test_torch_permits_tf32_for_fp32_alone(monkeypatch, permitted):
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", permitted)
    image, weight = torch.randn(2, 3, 6, 6), torch.randn(4, 3, 3, 3)
    assert match_convolution(convolve(image, weight)).tf32 is permitted
    assert not match_convolution(convolve(image.half(), weight.half())).tf32


def meta(*shape):
    return torch.empty(shape, device="meta")


def channels_last(node):
    node.meta["val"] = node.meta["val"].to(memory_format=torch.channels_last)
    return node


X, W = meta(2, 4, 6, 6), meta(8, 4, 3, 3)
REFUSED = {
    "one channel a group": (lambda: convolve(X, meta(8, 1, 3, 3), groups=4), "depthwise"),
    "a named padding": (lambda: node_of(X, W, None, [1, 1], "same", target=aten.conv2d.padding), "padding 'same'"),
    "no batch": (lambda: node_of(meta(4, 6, 6), W, target=aten.conv2d.default), "without a batch"),
    "channels last": (lambda: channels_last(convolve(X, W)), "another order"),
    "a weight that is not contiguous": (lambda: convolve(X, meta(4, 8, 3, 3).transpose(0, 1)), "another order"),
    "a large image": (lambda: convolve(meta(1, 4, 2**15, 2**14), W), r"2\*\*31"),
    "an image that is large with its padding": (lambda: convolve(meta(1, 1, 2**14, 2**14), meta(8, 1, 3, 3)), "31"),
    "a strided image": (lambda: convolve(torch.empty_strided((2, 4, 6, 6), (2**32, 2**30, 6, 1), device="meta"), W),
                        "31"),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_other_convolutions_are_refused(what):
    node, reason = REFUSED[what]
    with pytest.raises(Unsupported, match=reason):
        match_convolution(node())


def test_keyword_arguments_are_refused():
    node = convolve(X, W)
    node.kwargs = {"groups": 1}
    with pytest.raises(Unsupported, match="keyword"):
        match_convolution(node)


@pytest.mark.parametrize("bias", [meta(1), meta(4, 8), meta(16)[::2], meta()], ids=["one", "matrix", "strided", "0d"])
def test_a_bias_is_a_contiguous_vector_with_an_element_for_each_filter(bias):
    graph = fx.Graph()
    node = graph.placeholder("c")
    node.meta["val"] = bias
    with pytest.raises(Unsupported, match="bias"):
        bias_of(node, 8)
    assert bias_of(None, 8) == ()
