"""A generated kernel, and the function that launches the kernels of a region."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from kernelwright.compiler.regions.call import CallRegion
from kernelwright.compiler.regions.contraction import ContractionRegion
from kernelwright.compiler.triton.source_lines import wrap_line


class Kernel(NamedTuple):
    """A kernel with its tensor arguments, number of programs and warps."""

    name: str
    source: str
    tensors: Sequence[str]
    num_programs: int
    num_warps: int


def print_kernel(name: str, tensors: Sequence[str], doc: str, body: Sequence[str]) -> str:
    """The source of a kernel."""
    head = f"def {name}({', '.join(f'{tensor}_ptr' for tensor in tensors)}):"
    lines = ["@triton.jit", head, f'    """{doc}."""', *indented(body)]
    return "\n".join(wrapped for line in lines for wrapped in wrap_line(line)) + "\n"


def indented(lines: Sequence[str]) -> list[str]:
    """Lines one level deeper."""
    return [f"    {line}" for line in lines]


def print_launcher(
    region: ContractionRegion | CallRegion, kernels: Sequence[Kernel], scratch: Mapping[str, tuple[int, str]]
) -> str:
    """The source of the function that allocates the scratch memory and launches the kernels.

    Args:
        scratch: number of elements and dtype of each tensor that only the kernels use.
    """
    name, inputs, outputs = region.name, region.reads, region.writes
    lines = [f"launch_{one.name} = make_launcher({one.name}, {one.num_programs}, {one.num_warps})" for one in kernels]
    lines += ["", "", f"def launch_{name}({', '.join([*inputs, *outputs])}):"]
    lines.append(f'    """Computes {", ".join(outputs)} from {", ".join(inputs)}."""')
    for buffer, (size, dtype) in scratch.items():
        lines.append(f"    {buffer} = empty_on_device_of({inputs[0]}, ({size},), (1,), torch.{dtype})")
    lines += [f"    launch_{one.name}({', '.join(one.tensors)})" for one in kernels]
    return "\n".join(wrapped for line in lines for wrapped in wrap_line(line)) + "\n"
