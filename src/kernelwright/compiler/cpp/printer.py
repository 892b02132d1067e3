"""A region as C++ for the CPU: vectors along one axis, threads over the rows, one pass over a row for each reduction
that the next needs.

Where the vectors run along the row, lanes are added up at its end. Where they run along an outer axis, every lane is
a row of its own and a reduction is a plain loop. A region without reductions is the second kind.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from kernelwright.compiler.cpp.adjacent_axes import merge_adjacent_axes
from kernelwright.compiler.cpp.body import KernelBody
from kernelwright.compiler.cpp.columns import OuterVectorBody
from kernelwright.compiler.cpp.configs import CppConfig, generate_configs, vector_axes
from kernelwright.compiler.cpp.exponentials import scale_exponentials
from kernelwright.compiler.cpp.loop_interchange import InterchangedBody
from kernelwright.compiler.cpp.means import lower_means
from kernelwright.compiler.cpp.names import rename_reserved
from kernelwright.compiler.cpp.op_templates import CTYPES
from kernelwright.compiler.cpp.rows import RowVectorBody
from kernelwright.compiler.regions.region import Region

__all__ = ["CppConfig", "generate_configs", "print_cpp", "vector_axes"]


def print_cpp(region: Region, choice: CppConfig, in_place: Mapping[str, str] = MappingProxyType({})) -> str:
    """The function `extern "C" void NAME(inputs..., outputs...)`, to stand behind the headers.

    Args:
        in_place: the results that are written into an input, with that input's name: all other memory is apart.
    Raises:
        Misfit: a step that has no form here.
    """
    shared = {*in_place, *in_place.values()}
    apart = ["" if name in shared else " __restrict__" for name in (*region.reads, *region.writes)]
    region = rename_reserved(lower_means(scale_exponentials(region)))
    inputs, outputs = region.reads, region.writes
    types = {load.buffer: load.dtype for load in region.loads}
    written = {store.buffer: store.dtype for store in region.stores}
    given = [f"const {CTYPES[types[name]]}*{how} {name}" for name, how in zip(inputs, apart, strict=False)]
    given += [f"{CTYPES[written[n]]}*{how} {n}_out" for n, how in zip(outputs, apart[len(inputs) :], strict=True)]
    lines = _body(region, choice).generate()
    return "\n".join([f'extern "C" void {region.name}({", ".join(given)}) {{', *lines, "}"]) + "\n"


def _body(region: Region, choice: CppConfig) -> KernelBody:
    if choice.loop_interchange:
        if not choice.inner_vector_axis:
            return InterchangedBody(region, choice)
        axes = {axis.name: axis for axis in (*region.outer, *region.row)}
        outer, inner = axes[choice.vector_axis], axes[choice.inner_vector_axis]
        return InterchangedBody(merge_adjacent_axes(region, outer, inner), choice, lanes_per_row=inner.size)
    along_row = choice.vector_axis in {axis.name for axis in region.row}
    return RowVectorBody(region, choice) if along_row else OuterVectorBody(region, choice)
