"""Generates the epilogue of a contraction: the bias, the elementwise steps and the stores of a tile."""

from __future__ import annotations

from kernelwright.compiler.regions.axes import Unsupported
from kernelwright.compiler.regions.contraction import ContractionRegion
from kernelwright.compiler.regions.region import HALF_DTYPES, Load, Reduction, Scan, Step, Store
from kernelwright.compiler.triton.contraction_tiles import Masks
from kernelwright.compiler.triton.op_templates import TRITON_TYPES, full, step_expr
from kernelwright.compiler.triton.operand_packing import INT32_ELEMENTS


def emit_epilogue(region: ContractionRegion, masks: Masks, extra_mask: str = "") -> list[str]:
    """The lines that compute and store the outputs of a tile from its sums `acc`, in FP32.

    Args:
        extra_mask: of the stores; empty for none.

    Raises:
        Unsupported: a step has no Triton code.
    """
    one, lines, dtypes = region.contraction, list[str](), dict[str, str]()
    if one.bias:
        buffer, dtype = one.bias
        along = {"m": ("offs_m[:, None]", masks.rows), "n": ("columns[None, :]", masks.columns)}
        offsets, mask = along[one.bias_along]
        lines.append(f"acc += {_load(f'{buffer}_ptr + {offsets}', dtype, mask)}")
    for load in region.epilogue.loads:
        dtypes[load.value] = "float32" if load.dtype in HALF_DTYPES else load.dtype
        if load.buffer == one.value:
            lines.append(f"{load.value} = acc")
        else:
            address, used = _address(region, load)
            mask = {"": "", "r": masks.rows, "c": masks.columns, "cr": masks.both}[used]
            lines.append(f"{load.value} = {_load(address, load.dtype, mask)}")
    for step in region.epilogue.steps:
        if isinstance(step, Reduction | Scan):
            raise Unsupported("a reduction in the epilogue of a contraction")
        dtypes[step.value] = "float32" if step.dtype in HALF_DTYPES else step.dtype
        lines.append(f"{step.value} = {_step(region, step, dtypes)}")
    mask = " & ".join(filter(None, (masks.both, extra_mask)))
    for store in region.stores:
        value = f"tl.broadcast_to({store.value}, acc.shape)"
        lines.append(f"tl.store({_address(region, store)[0]}, {value}{f', mask={mask}' if mask else ''})")
    return lines


def _load(address: str, dtype: str, mask: str) -> str:
    widened = ".to(tl.float32)" if dtype in HALF_DTYPES else ".to(tl.int1)" if dtype == "bool" else ""
    return f"tl.load({address}{f', mask={mask}, other=0' if mask else ''}){widened}"


def _step(region: ContractionRegion, step: Step, dtypes: dict[str, str]) -> str:
    if step.op == "index":
        return f"({_index_expr(region, str(step.args[0]))[0]}).to({TRITON_TYPES[step.dtype]})"
    if step.op == "constant":
        assert not isinstance(step.args[0], str)
        return full(step.args[0], step.dtype)
    known = tuple(dtypes[arg] if isinstance(arg, str) else None for arg in step.args)
    return step_expr(step.op, step.args, known, step.dtype)


def _address(region: ContractionRegion, access: Load | Store) -> tuple[str, str]:
    """The address of an access, and what it depends on: `r` rows, `c` columns, `cr` both."""
    sizes = {axis.name: axis.size for axis in region.outer}
    extent = sum(abs(stride) * sizes[axis] for axis, stride in access.strides.items())
    wide = extent > INT32_ELEMENTS
    terms, depends = [f"{access.buffer}_ptr"], set[str]()
    for axis, stride in access.strides.items():
        if stride:
            index, used = _index_expr(region, axis)
            depends |= set(used)
            index = f"({index}).to(tl.int64)" if wide else f"({index})" if " " in index else index
            terms.append(f"{index} * {stride}" if stride != 1 else index)
    if access.offset:
        terms.append(str(access.offset))
    return " + ".join(terms), "".join(sorted(depends))


def _index_expr(region: ContractionRegion, axis: str) -> tuple[str, str]:
    """The index along an axis, and what it depends on."""
    index, terms, depends = region.indices[axis], list[str](), ""
    if index.row_factor:
        row = "rows[:, None]"
        if index.row_factor == -1:
            row = f"{row} // {index.row_divisor}" if index.row_divisor > 1 else row
        else:
            row = f"{row} * {index.row_factor}"
        terms.append(row)
        depends += "r"
    if index.column_divisor:
        column = "columns[None, :]"
        terms.append(f"{column} // {index.column_divisor}" if index.column_divisor > 1 else column)
        depends += "c"
    expr = " + ".join(terms)
    return (f"({expr}) % {index.modulus}" if index.modulus else expr), depends
