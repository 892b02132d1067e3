"""Regions with their gradients, as text: one autograd function for each."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import NamedTuple

from kernelwright.compiler.capture.backward import Gradient
from kernelwright.compiler.forward_codegen import Forward, Part
from kernelwright.compiler.kernel_source import wrapped
from kernelwright.compiler.regions.region import Region

CALL = "run({name}_function, {given})"
RUN = '''
def run(function, *tensors):
    """A region's kernel, recorded where a backward pass will come."""
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
        return function.apply(*tensors)
    return function.kernel(*tensors)
'''


class Differentiable(NamedTuple):
    """A region, its gradient, and the parts of that which run as kernels."""

    region: Region
    gradient: Gradient
    parts: tuple[Part, ...]


def functions(regions: Sequence[Differentiable]) -> str:
    """Python that defines `run` and, for each region, `NAME_function`."""
    return "\n\n".join([RUN.lstrip(), *map(_function, regions)])


def _function(found: Differentiable) -> str:
    name = found.region.name
    inputs, outputs = found.region.reads, found.region.writes
    lines = Forward(found.gradient.captured, found.parts).lines("")
    given = {int(source.name): node for node, source in found.gradient.captured.sources.items()}
    names = [node.name for _, node in sorted(given.items(), key=lambda pair: pair[0])]
    kept, gradients = names[: len(inputs)], names[len(inputs) :]
    taken = [gradients[found.gradient.floating.index(at)] if at in found.gradient.floating else "_"
             for at in range(len(outputs))]  # fmt: skip
    returned = lines.pop().removeprefix("return ").strip("()").rstrip(",").split(", ")
    by_input = dict(zip(found.gradient.wanted, returned, strict=True))
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
            f"        return {wrapped(f'{name}({chr(44).join(inputs)})')}",
            "",
            "    @staticmethod",
            "    @torch.autograd.function.once_differentiable",
            f"    def backward(ctx, {', '.join(taken)}):",
            *(textwrap.indent(line, "        ") for line in backward),
            "",
        ]
    )
