"""A region as C++ for the CPU: vectors along one axis, threads over the rows, one pass over a row for each reduction
that the next needs.

Where the vectors run along the row, lanes are added up at its end. Where they run along an outer axis, every lane is
a row of its own and a reduction is a plain loop. A region without reductions is the second kind.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from kernelwright.compiler.cpp.body import Body
from kernelwright.compiler.cpp.columns import Columns
from kernelwright.compiler.cpp.configs import CpuChoice, choices, lane_axes
from kernelwright.compiler.cpp.exponentials import with_scaled_exponentials
from kernelwright.compiler.cpp.in_order import InOrder
from kernelwright.compiler.cpp.means import with_means_by_sums
from kernelwright.compiler.cpp.names import with_free_names
from kernelwright.compiler.cpp.neighbours import with_one_axis
from kernelwright.compiler.cpp.op_templates import CTYPES
from kernelwright.compiler.cpp.rows import Rows
from kernelwright.compiler.regions.region import Region

__all__ = ["CpuChoice", "choices", "lane_axes", "print_cpp"]


def print_cpp(region: Region, choice: CpuChoice, in_place: Mapping[str, str] = MappingProxyType({})) -> str:
    """The function `extern "C" void NAME(inputs..., outputs...)`, to stand behind the headers.

    Args:
        in_place: the results that are written into an input, with that input's name: all other memory is apart.
    Raises:
        Misfit: a step that has no form here.
    """
    shared = {*in_place, *in_place.values()}
    apart = ["" if name in shared else " __restrict__" for name in (*region.reads, *region.writes)]
    region = with_free_names(with_means_by_sums(with_scaled_exponentials(region)))
    inputs, outputs = region.reads, region.writes
    types = {load.buffer: load.dtype for load in region.loads}
    written = {store.buffer: store.dtype for store in region.stores}
    given = [f"const {CTYPES[types[name]]}*{how} {name}" for name, how in zip(inputs, apart, strict=False)]
    given += [f"{CTYPES[written[n]]}*{how} {n}_out" for n, how in zip(outputs, apart[len(inputs) :], strict=True)]
    lines = _body(region, choice).print()
    return "\n".join([f'extern "C" void {region.name}({", ".join(given)}) {{', *lines, "}"]) + "\n"


def _body(region: Region, choice: CpuChoice) -> Body:
    if choice.in_order:
        if not choice.inner:
            return InOrder(region, choice)
        axes = {axis.name: axis for axis in (*region.outer, *region.row)}
        outer, inner = axes[choice.lanes], axes[choice.inner]
        return InOrder(with_one_axis(region, outer, inner), choice, together=inner.size)
    along_row = choice.lanes in {axis.name for axis in region.row}
    return Rows(region, choice) if along_row else Columns(region, choice)
