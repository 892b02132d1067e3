"""The layer that runs a program with its images in channels-last order, which convolutions prefer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from kernelwright.compiler.assembly.output_file import LayerBelow, indent
from kernelwright.compiler.kernel_source import wrap_call
from kernelwright.problems import Problem

TEMPLATE = '''
CHANNELS_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}
"""Memory formats by the number of dimensions."""


def to_channels_last(value):
    """Reorder every image in a tree of arguments; the values are the same."""

    def reorder(one):
        return one.contiguous(memory_format=CHANNELS_LAST[one.dim()]) if one.dim() in CHANNELS_LAST else one

    return tree_map_only(torch.Tensor, reorder, value)


def has_channels_last(value):
    """Whether an image in a tree of arguments is in channels-last order, for which results have it too."""
    images = [one for one in tree_leaves(value) if isinstance(one, torch.Tensor) and one.dim() in CHANNELS_LAST]
    formats = [CHANNELS_LAST[one.dim()] for one in images]
    return any(
        one.is_contiguous(memory_format=one_format) and not one.is_contiguous()
        for one, one_format in zip(images, formats)
    )


def to_row_major(value):
    """Reorder every image in a tree of results as the original program returns it."""
    return tree_map_only(torch.Tensor, lambda one: one.contiguous() if one.dim() in CHANNELS_LAST else one, value)


def reorder_weights(module):
    """Reorder the weights of convolutions."""
    for one in module.modules():
        for weight in one.parameters(recurse=False):
            if weight.dim() in CHANNELS_LAST:
                weight.data = to_channels_last(weight.data)
'''


@dataclass(frozen=True)
class ChannelsLastLayer:
    """Reorders weights once, inputs and results in each call."""

    class_name: str = "ChannelsLast"
    imports: str = "from torch.utils._pytree import tree_leaves, tree_map_only"

    def sections(self, problem: Problem) -> Sequence[tuple[str, str]]:
        """The functions that reorder."""
        return [("channels-last", TEMPLATE)]

    def body(self, below: LayerBelow) -> str:
        """Construct with reordered weights, and reorder around each call."""
        rename, (parameters, arguments) = below.rename, below.signature()
        lines = [f'"""{below.name} in channels-last order."""', ""]
        if below.problem.module is not None:
            lines += [
                "def __init__(self, *args, **kwargs):",
                "    super().__init__(*args, **kwargs)",
                f"    {rename('reorder_weights')}(self)",
                "",
            ]
        body = []
        if names := below.argument_names():
            targets = ", ".join(names) + "," * (len(names) == 1)
            body.append(f"if {rename('has_channels_last')}(({targets})):")
            body.append(f"    return {below.call(arguments)}")
            body.append(f"{targets} = {rename('to_channels_last')}(({targets}))")
        body.append(f"return {rename('to_row_major')}({below.call(arguments)})")
        return "\n".join([*lines, wrap_call(f"def forward({parameters}):"), *map(indent, body)])


def to_channels_last(value: torch.Tensor) -> torch.Tensor:
    """An image or a weight in channels-last order; any other tensor unchanged; as the function of the file."""
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    return value.contiguous(memory_format=formats[value.dim()]) if value.dim() in formats else value
