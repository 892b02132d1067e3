"""Row values of half precision, such as a mean, that one region stores for another: stored in FP32.

A region computes in FP32. Where it computes the elements of a row again and reads the row's mean from another region,
their difference would otherwise be the rounding of the mean; in eager mode both are rounded, and equal elements give 0.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import fx

from kernelwright.compiler.regions.nodes import READ_AS_FP32, dtype_of
from kernelwright.compiler.regions.region import HALF_DTYPES

aten = torch.ops.aten


def is_half(node: fx.Node) -> bool:
    return isinstance(node.meta.get("val"), torch.Tensor) and dtype_of(node) in HALF_DTYPES


def store_as_fp32(graph: fx.Graph, node: fx.Node, readers: Iterable[fx.Node]) -> fx.Node:
    """Changes a graph in place: the readers of a value take it from its FP32 copy, which is returned.

    They read it through a node that casts it back, which leaves the program the same for torch: a kernel reads the FP32
    copy itself.
    """
    with graph.inserting_after(node):
        wide = _cast(graph, node, torch.float32, f"{node.name}_wide")
    with graph.inserting_after(wide):
        back = _cast(graph, wide, node.meta["val"].dtype, f"{node.name}_back")
    wide.meta["val"] = node.meta["val"].to(torch.float32)
    back.meta |= {"val": node.meta["val"], READ_AS_FP32: True}
    for reader in readers:
        reader.replace_input_with(node, back)
    return wide


def _cast(graph: fx.Graph, node: fx.Node, dtype: torch.dtype, name: str) -> fx.Node:
    return graph.create_node("call_function", aten._to_copy.default, (node,), {"dtype": dtype}, name)
