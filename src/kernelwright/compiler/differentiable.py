"""Regions with their gradients, as text: one autograd function for each."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import NamedTuple

from kernelwright.compiler.capture.backward import Gradient
from kernelwright.compiler.forward_codegen import ForwardCodegen, PlannedRegion
from kernelwright.compiler.kernel_source import wrap_call
from kernelwright.compiler.regions.region import Region

AUTOGRAD_CALL_TEMPLATE = "run({name}_function, {given})"
RUN_SOURCE = '''
def run(function, *tensors):
    """A region's kernel, recorded where a backward pass will come."""
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
        return function.apply(*tensors)
    return function.kernel(*tensors)
'''


class RegionGradient(NamedTuple):
    """A region, its gradient, and the parts of that which run as kernels."""

    region: Region
    gradient: Gradient
    regions: tuple[PlannedRegion, ...]


def emit_autograd_functions(regions: Sequence[RegionGradient]) -> str:
    """Python that defines `run` and, for each region, `NAME_function`."""
    return "\n\n".join([RUN_SOURCE.lstrip(), *map(_emit_autograd_function, regions)])


def _emit_autograd_function(found: RegionGradient) -> str:
    name = found.region.name
    inputs, outputs = found.region.reads, found.region.writes
    lines = ForwardCodegen(found.gradient.captured, found.regions).lines("")
    given = {int(source.name): node for node, source in found.gradient.captured.sources.items()}
    names = [node.name for _, node in sorted(given.items(), key=lambda pair: pair[0])]
    kept, gradients = names[: len(inputs)], names[len(inputs) :]
    taken = [gradients[found.gradient.output_indices.index(at)] if at in found.gradient.output_indices else "_"
             for at in range(len(outputs))]  # fmt: skip
    returned = lines.pop().removeprefix("return ").strip("()").rstrip(",").split(", ")
    by_input = dict(zip(found.gradient.input_indices, returned, strict=True))
    result = ", ".join(by_input.get(at, "None") for at in range(len(inputs)))
    backward = [
        f"{', '.join(kept)}{',' * (len(kept) == 1)} = ctx.saved_tensors",
        *(f"{gradient} = {gradient}.contiguous()" for gradient in gradients),
        *lines,
        f"return {result}",
    ]
    return "\n".join(
        [
            f"class {name}_function(torch.autograd.Function):",
            f'    """{name}; its gradient computes again what it needs from the inputs."""',
            "",
            f"    kernel = staticmethod({name})",
            "",
            "    @staticmethod",
            f"    def forward(ctx, {', '.join(inputs)}):",
            f"        ctx.save_for_backward({', '.join(inputs)})",
            f"        return {wrap_call(f'{name}({chr(44).join(inputs)})')}",
            "",
            "    @staticmethod",
            "    @torch.autograd.function.once_differentiable",
            f"    def backward(ctx, {', '.join(taken)}):",
            *(textwrap.indent(line, "        ") for line in backward),
            "",
        ]
    )
