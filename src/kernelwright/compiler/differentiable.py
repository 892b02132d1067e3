"""Generated `torch.autograd.Function`s of regions with gradients."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import NamedTuple

from kernelwright.compiler.capture.backward import Gradient
from kernelwright.compiler.forward_codegen import ForwardCodegen, PlannedRegion
from kernelwright.compiler.kernel_source import wrap_call
from kernelwright.compiler.regions.contraction import AnyRegion

AUTOGRAD_CALL_TEMPLATE = "run({name}_function, {given})"
RUN_SOURCE = '''
def run(function, *tensors):
    """Call a region's kernel, through autograd if any input requires a gradient."""
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
        return function.apply(*tensors)
    return function.kernel(*tensors)
'''


class RegionGradient(NamedTuple):
    """A region, its gradient, and the regions of the gradient that run as kernels."""

    region: AnyRegion
    gradient: Gradient
    regions: tuple[PlannedRegion, ...]


def emit_autograd_functions(regions: Sequence[RegionGradient]) -> str:
    """Generate Python that defines `run` and, for each region, the autograd function `NAME_function`."""
    return "\n\n".join([RUN_SOURCE.lstrip(), *map(_emit_autograd_function, regions)])


def _emit_autograd_function(differentiable: RegionGradient) -> str:
    region, gradient = differentiable.region, differentiable.gradient
    name, inputs, outputs = region.name, region.reads, region.writes
    lines = ForwardCodegen(gradient.captured, differentiable.regions).lines("")
    arguments = {int(source.name): node for node, source in gradient.captured.sources.items()}
    names = [node.name for _, node in sorted(arguments.items(), key=lambda pair: pair[0])]
    saved, grad_outputs = names[: len(inputs)], names[len(inputs) :]
    parameters = [grad_outputs[gradient.output_indices.index(i)] if i in gradient.output_indices else "_"
                  for i in range(len(outputs))]  # fmt: skip
    returned = lines.pop().removeprefix("return ").strip("()").rstrip(",").split(", ")
    by_input = dict(zip(gradient.input_indices, returned, strict=True))
    result = ", ".join(by_input.get(i, "None") for i in range(len(inputs)))
    backward = [
        f"{', '.join(saved)}{',' * (len(saved) == 1)} = ctx.saved_tensors",
        *(f"{grad} = {grad}.contiguous()" for grad in grad_outputs),
        *lines,
        f"return {result}",
    ]
    return "\n".join(
        [
            f"class {name}_function(torch.autograd.Function):",
            f'    """{name}; its backward pass recomputes intermediate values from the inputs."""',
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
            f"    def backward(ctx, {', '.join(parameters)}):",
            *(textwrap.indent(line, "        ") for line in backward),
            "",
        ]
    )
