"""Lowering of depthwise convolutions to a region: the elements of a window are loads, each with a weight of its own."""

from __future__ import annotations

from itertools import product

from torch import fx

from kernelwright.compiler.regions.axes import Dim, Dims
from kernelwright.compiler.regions.depthwise import Depthwise, match_depthwise
from kernelwright.compiler.regions.nodes import compute_dtype, shape_of
from kernelwright.compiler.regions.pool_lowering import PoolLowering
from kernelwright.compiler.regions.window_loads import AxisWindow, WindowLoad

MAX_PROLOGUE_STEPS = 64
"""Steps that compute the elements of a window of FP32: as many take the time of writing and reading the input once."""


class DepthwiseLowering(PoolLowering):
    """Adds depthwise convolutions to a region."""

    def lower_depthwise(self, node: fx.Node) -> None:
        """Add a depthwise convolution; halves are accumulated in FP32, in the order of the taps.

        Raises:
            Unsupported: the region cannot compute it.
        """
        one, dtype = match_depthwise(node), compute_dtype(node)
        taps = list(product(*(dim.read_positions for dim in one.windows.dims)))
        self._require_external(one.weight)
        outer, outputs, elements = self._add_elements(node, one.windows, taps, MAX_PROLOGUE_STEPS)
        channel = self._output_channels(one, outer[1])
        weight_dims = (channel, *self._axes.new_dims(shape_of(one.weight)[1:]))
        total = ""
        for number, (element, tap) in enumerate(zip(elements, taps, strict=True)):
            weight = self._add_weight(f"{node.name}_weight{number}", one.weight, weight_dims, tap)
            term = self._add_step(f"{node.name}_term{number}", "mul", (element, weight), dtype)
            total = self._add_step(f"{node.name}_sum{number}", "add", (total, term), dtype) if total else term
        if one.bias is not None:
            bias = self._cast_to(self._value(one.bias), dtype)
            self._axes.unify(channel, self._dims[one.bias][0])
            total = self._add_step(f"{node.name}_biased", "add", (total, bias), dtype)
        self._dims[node] = (outer[0], channel, *outputs)
        self._names[node] = self._add_step(node.name, "cast", (total,), dtype)

    def _output_channels(self, one: Depthwise, channel: Dim) -> Dim:
        """The dimension of the output channels, of which the outer part is that of the input channels."""
        outputs = self._axes.new_dim(one.channels * one.multiplier)
        outer, _ = self._axes.reshape((outputs,), (one.channels, one.multiplier))
        self._axes.unify(outer, channel)
        return outputs

    def _add_weight(self, value: str, weight: fx.Node, dims: Dims, tap: tuple[int, ...]) -> str:
        """The weight of each channel at one tap."""
        kernel, spatial = shape_of(weight)[2:], dims[2:]
        windows = tuple(
            AxisWindow(dim[0] if dim else None, (), at, size)
            for dim, at, size in zip(spatial, tap, kernel, strict=True)
        )
        self._window_loads.append(WindowLoad(value, weight, dims, windows, 0))
        self._dtypes[value] = compute_dtype(weight)
        return value
