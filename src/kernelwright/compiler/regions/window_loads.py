"""Loads of windows: an index along an axis of a tensor is the sum of those of the window and of the position in it."""

from __future__ import annotations

from typing import NamedTuple

import msgspec
from torch import fx

from kernelwright.compiler.regions.axes import Dim, Dims
from kernelwright.compiler.regions.region import Load, WindowIndex


class AxisWindow(NamedTuple):
    """An axis of a tensor along which a window reads the index `start` plus the sum of index times step over `terms`.

    Attributes:
        axis: of the tensor; None for a dimension of size 1.
        size: of the axis; other indices read `WindowLoad.fill`.
    """

    axis: int | None
    terms: tuple[tuple[Dim, int], ...]
    start: int
    size: int


class WindowLoad(NamedTuple):
    """A load of a node with some of the axes of its dimensions replaced by windows."""

    value: str
    node: fx.Node
    dims: Dims
    windows: tuple[AxisWindow, ...]
    fill: int | float | bool


def nonzero(steps: dict[str, int]) -> dict[str, int]:
    """Return the steps without those of 0."""
    return {axis: step for axis, step in steps.items() if step}


def replace_axis(load: Load, axis: str, steps: dict[str, int], start: int) -> Load:
    """Return a load with the index `start` plus the sum of other axes times steps in place of an axis."""
    stride = load.strides.get(axis, 0)
    strides = {name: step for name, step in load.strides.items() if name != axis}
    windows = []
    for index in load.windows:
        factor = index.steps.get(axis, 0)
        others = {name: step for name, step in index.steps.items() if name != axis}
        moved = others | nonzero({name: step * factor for name, step in steps.items()})
        windows.append(WindowIndex(steps=moved, start=index.start + start * factor, size=index.size))
    return msgspec.structs.replace(
        load,
        strides=strides | {name: step * stride for name, step in steps.items()},
        offset=load.offset + start * stride,
        windows=tuple(windows),
    )
