"""Lowering of depthwise convolutions to a region: the elements of a window are loads, each with a weight of its own."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from torch import fx

from kernelwright.compiler.capture.target_device import runs_on_cpu
from kernelwright.compiler.regions.axes import Dim, Dims, Unsupported
from kernelwright.compiler.regions.contraction_planning import is_contraction
from kernelwright.compiler.regions.depthwise import Depthwise, match_depthwise
from kernelwright.compiler.regions.nodes import DEPTHWISE, compute_dtype, shape_of
from kernelwright.compiler.regions.pool_lowering import PoolLowering
from kernelwright.compiler.regions.region import Region
from kernelwright.compiler.regions.window_loads import AxisWindow, WindowLoad

MAX_PROLOGUE_STEPS = {"cuda": 64, "cpu": 16}
"""Steps that compute the elements of a window: as many take the time of writing and reading the input once."""
MAX_HELD_ROW = 4096
"""Elements of a row that stay in the registers of a multiprocessor from pass to pass."""


class DepthwiseLowering(PoolLowering):
    """Adds depthwise convolutions to a region."""

    def lower_depthwise(self, node: fx.Node) -> None:
        """Add a depthwise convolution; halves are accumulated in FP32, in the order of the taps.

        Raises:
            Unsupported: the region cannot compute it.
        """
        one, dtype = match_depthwise(node), compute_dtype(node)
        device = "cpu" if runs_on_cpu(node.meta["val"]) else "cuda"
        taps = list(product(*(dim.read_positions for dim in one.windows.dims)))
        self._require_external(one.weight)
        self._check_source(one.windows.source)
        outer, outputs, elements = self._add_elements(node, one.windows, taps, MAX_PROLOGUE_STEPS[device])
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

    def _check_source(self, source: fx.Node) -> None:
        """Check that the kernel of a product or another convolution does not compute the source as its epilogue.

        Raises:
            Unsupported: it does.
        """
        if not self._computes(source):
            return
        for node in self._loads:
            if shape_of(node) == shape_of(source) and is_contraction(node):
                raise Unsupported(f"{source.name} is computed where {node.name} is")

    def build(self, name: str, outputs: Sequence[fx.Node], *, keep_unused: bool = False) -> Region:
        """See `RegionBuilder.build`; a convolution is not computed again in each pass over long rows."""
        region = super().build(name, outputs, keep_unused=keep_unused)
        for node in filter(is_marked, self.nodes):
            held = 0 if runs_on_cpu(node.meta["val"]) else MAX_HELD_ROW
            if region.row_size > held and len(region.passes_that_need(node.name)) > 1:
                raise Unsupported(f"{node.name} would be computed in several passes over a row")
        return region

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


def is_marked(node: fx.Node) -> bool:
    """Whether regions compute a node as a depthwise convolution."""
    return DEPTHWISE in node.meta
