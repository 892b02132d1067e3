"""Sums of the inputs that each position of a convolution's kernel meets along one dimension."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import fx

from kernelwright.compiler.regions.nodes import shape_of
from kernelwright.compiler.rewrites.linear_maps import Convolution
from kernelwright.compiler.rewrites.rewriting import insert_call

aten = torch.ops.aten
MAX_POSITIONS = 16
"""Positions of a kernel along a dimension, of which each adds a few calls."""


class Window(NamedTuple):
    """The inputs from `start` to before `stop`."""

    start: int
    stop: int


def find_windows(convolution: Convolution, dim: int) -> list[Window]:
    """Return what the positions of the kernel meet, in the order in which a convolution with an output of size 1 reads
    their sums; empty where a position meets inputs with gaps, or where there are no inputs that all positions meet.

    Args:
        dim: of the input, from 2.
    """
    index = dim - 2
    size, outputs = shape_of(convolution.input)[dim], shape_of(convolution.node)[dim]
    stride, padding, dilation = (
        values[index] for values in (convolution.stride, convolution.padding, convolution.dilation)
    )
    taps = [tap * dilation for tap in range(convolution.kernel[index])]
    if len(taps) > MAX_POSITIONS or (stride > 1 and not convolution.transposed):
        return []
    if convolution.transposed:  # input i adds to output stride i + tap - padding
        bounds = [(-((tap - padding) // stride), (outputs - 1 + padding - tap) // stride + 1) for tap in reversed(taps)]
    else:  # output i reads input i + tap - padding
        bounds = [(tap - padding, tap - padding + outputs) for tap in taps]
    windows = [Window(max(start, 0), min(stop, size)) for start, stop in bounds]
    core = _core(windows)
    return windows if core.start < core.stop else []


def _core(windows: Sequence[Window]) -> Window:
    return Window(max(one.start for one in windows), min(one.stop for one in windows))


def insert_window_sums(graph: fx.Graph, x: fx.Node, dim: int, windows: Sequence[Window]) -> fx.Node:
    """Insert the sums of some windows of a dimension, concatenated along it.

    What all windows have in common is summed once.
    """
    core = _core(windows)
    common, parts = _sum(graph, x, dim, core), dict[Window, fx.Node]()

    def edge(start: int, stop: int) -> fx.Node:
        key = Window(start, stop)
        if key not in parts:
            parts[key] = _sum(graph, x, dim, key)
        return parts[key]

    sums: dict[Window, fx.Node] = {}
    for window in windows:
        if window in sums:
            continue
        total = common
        for start, stop in ((window.start, core.start), (core.stop, window.stop)):
            if start < stop:
                total = insert_call(graph, aten.add.Tensor, total, edge(start, stop))
        sums[window] = total
    if len(windows) == 1:
        return sums[windows[0]]
    return insert_call(graph, aten.cat.default, [sums[window] for window in windows], dim)


def _sum(graph: fx.Graph, x: fx.Node, dim: int, window: Window) -> fx.Node:
    if window != (0, shape_of(x)[dim]):
        x = insert_call(graph, aten.slice.Tensor, x, dim, *window)
    return x if window.stop - window.start == 1 else insert_call(graph, aten.sum.dim_IntList, x, [dim], True)
