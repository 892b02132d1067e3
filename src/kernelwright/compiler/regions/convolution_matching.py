"""Convolutions and transposed convolutions of a graph as contractions of filters and windows."""

from __future__ import annotations

from math import gcd, prod
from typing import Any

import torch
from torch import fx

from kernelwright.compiler.regions.axes import Unsupported
from kernelwright.compiler.regions.contraction import Contraction, Filters, Windows
from kernelwright.compiler.regions.nodes import FULL_PRECISION, dtype_of, resolve_view, shape_of
from kernelwright.compiler.regions.operators import op_name
from kernelwright.verification.outcome import WIDENED, operand_precision

MAX_PADDING_CHANNELS, MAX_PADDING_ROWS = 8, 256
"""More elements than packed operands add to channels and filters."""


def match_convolution(node: fx.Node) -> Contraction:
    """A convolution of images in torch's default order, channels first; each group is a batch of its own.

    Raises:
        Unsupported: it is in another order, or depthwise.
    """
    image, weight, bias, *options = [*node.args, *(None,) * 9][:9]
    if node.kwargs or not isinstance(image, fx.Node) or not isinstance(weight, fx.Node):
        raise Unsupported("a convolution with keyword arguments")
    rank = len(shape_of(weight)) - 2
    if len(shape_of(image)) != rank + 2:
        raise Unsupported("a convolution of an image without a batch")
    general = op_name(node.target) == "convolution"
    transposed, groups = (options[3], options[5]) if general else (False, options[3])
    groups = groups or 1
    channels, out_channels = shape_of(image)[1] // groups, shape_of(node)[1]
    if groups > 1 and channels == 1:
        raise Unsupported("a depthwise convolution")
    defaults = zip(options, (1, 0, 1), strict=False)
    stride, padding, dilation = (_per_dim(value, rank, default) for value, default in defaults)
    if not weight.meta["val"].is_contiguous() or not node.meta["val"].is_contiguous():
        raise Unsupported("a convolution in another order than torch's default")
    kernel = shape_of(weight)[2:]
    taps_of = _transposed_taps if transposed else _plain_taps
    dims = [taps_of(*dim) for dim in zip(kernel, stride, padding, dilation, strict=True)]
    taps, step, start, first, tap_step, dilation = (tuple(column) for column in zip(*dims, strict=True))
    root, strides, offset = resolve_view(image)
    windows = Windows(
        buffer=root.name, dtype=dtype_of(root), channels=channels, image_size=shape_of(image)[2:],
        image_strides=strides[2:], batch_stride=strides[0], channel_stride=strides[1], phase_taps=taps,
        output_size=shape_of(node)[2:], step=step, start=start, dilation=dilation, offset=offset, groups=groups,
    )  # fmt: skip
    own, _, weight_offset = resolve_view(weight)
    rows, per_filter = out_channels // groups, prod(kernel)
    row, channel = (per_filter, rows * per_filter) if transposed else (channels * per_filter, per_filter)
    filters = Filters(
        buffer=own.name, dtype=dtype_of(own), row_stride=row, channel_stride=channel, kernel_size=kernel, first=first,
        tap_step=tap_step, offset=weight_offset, group_stride=rows * channels * per_filter,
    )  # fmt: skip
    _check_offsets(filters, windows, out_channels)
    return Contraction(
        value=node.name, dtype=dtype_of(node), batch=shape_of(image)[0] * groups, m=rows, n=prod(windows.output_size),
        k=channels * prod(windows.taps), left=filters, right=windows, bias=bias_of(bias, out_channels), bias_along="m",
        tf32=_may_use_tf32(node),
    )  # fmt: skip


def _may_use_tf32(node: fx.Node) -> bool:
    """Whether torch would round the operands, and the convolution is the program's own: one of sums of inputs has the
    error of each rounding, where the sum of many outputs averages them."""
    permitted = torch.backends.cudnn.allow_tf32 or operand_precision() in WIDENED
    return dtype_of(node) == "float32" and permitted and FULL_PRECISION not in node.meta


def _check_offsets(filters: Filters, windows: Windows, out_channels: int) -> None:
    """Offsets within an image and within the weight are int32, also in their packed forms.

    Raises:
        Unsupported: they may not fit.
    """
    padded = [size + sum(margin) for size, margin in zip(windows.image_size, windows.margins, strict=True)]
    channels = windows.channels + MAX_PADDING_CHANNELS
    extents = [abs(windows.channel_stride) * channels * windows.groups]
    extents += [abs(stride) * size for stride, size in zip(windows.image_strides, padded, strict=True)]
    rows = out_channels + MAX_PADDING_ROWS * windows.groups
    weight = filters.offset + rows * channels * prod(windows.taps) * prod(windows.phases)
    if max(sum(extents), prod(padded) * channels, weight) >= 2**31:
        raise Unsupported("an image or a weight of 2**31 elements")


def _plain_taps(kernel: int, stride: int, padding: int, dilation: int) -> tuple[Any, ...]:
    """Taps by phase, step, starts by phase, first weights by phase and their step, the distance of taps in the image,
    in one dimension."""
    return (kernel,), stride, (-padding,), (0,), 1, dilation


def _transposed_taps(kernel: int, stride: int, padding: int, dilation: int) -> tuple[Any, ...]:
    """The same for a transposed convolution: weight k adds image i to output `i * stride + k * dilation - padding`.

    Phase p, of outputs `q * stride + p`, has the weights k for which `p + padding - k * dilation` is a multiple of the
    stride; k reads image `q` plus that multiple. The taps are in the opposite order, so that positions increase.
    """
    common = gcd(stride, dilation)
    taps, start, first = [], [], []
    for phase in range(stride):
        reached = [k for k in range(kernel) if (phase + padding - k * dilation) % stride == 0]
        last = reached[-1] if reached else 0
        taps.append(len(reached))
        first.append(last)
        start.append((phase + padding - last * dilation) // stride if reached else 0)
    return tuple(taps), 1, tuple(start), tuple(first), -(stride // common), dilation // common


def _per_dim(value: Any, rank: int, default: int) -> tuple[int, ...]:
    """An option of a convolution for each dimension.

    Raises:
        Unsupported: it is the name of a padding.
    """
    if isinstance(value, str):
        raise Unsupported(f"padding {value!r}")
    values = tuple(int(one) for one in (value if value is not None else [default]))
    return values * rank if len(values) == 1 else values


def bias_of(bias: Any, size: int) -> tuple[str, str] | tuple[()]:
    """Buffer and dtype of a bias.

    Raises:
        Unsupported: it is not a contiguous vector of this size in memory of its own.
    """
    if bias is None:
        return ()
    is_vector = isinstance(bias, fx.Node) and shape_of(bias) == (size,) and bias.meta["val"].is_contiguous()
    if not is_vector or resolve_view(bias)[0] is not bias:
        raise Unsupported("a bias that is not a contiguous vector")
    return bias.name, dtype_of(bias)
