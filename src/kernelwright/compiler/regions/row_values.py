"""Half-precision row values, such as a mean, that one region passes to another are stored in FP32.

A region computes in FP32. If it recomputes the elements of a row but reads a rounded mean from another region, the
difference of equal elements and their mean would be the rounding error; in eager mode both are rounded and it is 0.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import fx

from kernelwright.compiler.regions.nodes import READ_AS_FP32, dtype_of
from kernelwright.compiler.regions.region import HALF_DTYPES

aten = torch.ops.aten


def is_half(node: fx.Node) -> bool:
    """Whether a node is a tensor of half precision."""
    return isinstance(node.meta.get("val"), torch.Tensor) and dtype_of(node) in HALF_DTYPES


def store_as_fp32(graph: fx.Graph, node: fx.Node, readers: Iterable[fx.Node]) -> fx.Node:
    """Insert, in place, an FP32 copy of a value for its readers, and return the copy.

    The readers get a node that casts it back, so that the graph still computes the same in torch; kernels read the FP32
    copy directly.
    """
    with graph.inserting_after(node):
        fp32 = _cast(graph, node, torch.float32, f"{node.name}_fp32")
    with graph.inserting_after(fp32):
        half = _cast(graph, fp32, node.meta["val"].dtype, f"{node.name}_half")
    fp32.meta["val"] = node.meta["val"].to(torch.float32)
    half.meta |= {"val": node.meta["val"], READ_AS_FP32: True}
    for reader in readers:
        reader.replace_input_with(node, half)
    return fp32


def _cast(graph: fx.Graph, node: fx.Node, dtype: torch.dtype, name: str) -> fx.Node:
    return graph.create_node("call_function", aten._to_copy.default, (node,), {"dtype": dtype}, name)
