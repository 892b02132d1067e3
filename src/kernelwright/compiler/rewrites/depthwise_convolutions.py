"""Depthwise convolutions that regions compute.

Such a convolution takes the time of reading and writing its images, which a library's FP32 kernels are far from; and
what is computed elementwise before and after it joins the same kernel.
"""

from __future__ import annotations

from torch import fx

from kernelwright.compiler.regions.depthwise import is_depthwise
from kernelwright.compiler.regions.nodes import DEPTHWISE


def mark_depthwise_convolutions(graph: fx.Graph) -> int:
    """Mark the depthwise convolutions of few taps for the regions; return how many."""
    found = [node for node in graph.nodes if is_depthwise(node)]
    for node in found:
        node.meta[DEPTHWISE] = True
    return len(found)
