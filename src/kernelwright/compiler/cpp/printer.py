"""Generates C++ for a region on the CPU: vectors along one axis, threads over the rows, and one pass over a row for
each reduction that the next pass needs.

Where the vectors run along the row, lanes are combined at its end. Where they run along an outer axis, each lane is a
row and a reduction is a plain loop; regions without reductions also use this structure.
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


def print_cpp(region: Region, config: CppConfig, in_place: Mapping[str, str] = MappingProxyType({})) -> str:
    """Generate the function `extern "C" void NAME(inputs..., outputs...)`, without the headers it needs.

    Args:
        in_place: output name -> name of the input whose memory it overwrites; all other buffers do not alias.
    Raises:
        Unsupported: the C++ backend does not support a step.
    """
    aliased = {*in_place, *in_place.values()}
    qualifiers = ["" if name in aliased else " __restrict__" for name in (*region.reads, *region.writes)]
    region = rename_reserved(lower_means(scale_exponentials(region)))
    inputs, outputs = region.reads, region.writes
    input_dtypes = {load.buffer: load.dtype for load in region.loads}
    output_dtypes = {store.buffer: store.dtype for store in region.stores}
    params = [
        f"const {CTYPES[input_dtypes[name]]}*{qualifier} {name}"
        for name, qualifier in zip(inputs, qualifiers, strict=False)
    ]
    params += [
        f"{CTYPES[output_dtypes[name]]}*{qualifier} {name}_out"
        for name, qualifier in zip(outputs, qualifiers[len(inputs) :], strict=True)
    ]
    lines = _select_body(region, config).generate()
    return "\n".join([f'extern "C" void {region.name}({", ".join(params)}) {{', *lines, "}"]) + "\n"


def _select_body(region: Region, config: CppConfig) -> KernelBody:
    if config.loop_interchange:
        if not config.inner_vector_axis:
            return InterchangedBody(region, config)
        axes = {axis.name: axis for axis in (*region.outer, *region.row)}
        outer, inner = axes[config.vector_axis], axes[config.inner_vector_axis]
        return InterchangedBody(merge_adjacent_axes(region, outer, inner), config, lanes_per_row=inner.size)
    along_row = config.vector_axis in {axis.name for axis in region.row}
    return RowVectorBody(region, config) if along_row else OuterVectorBody(region, config)
