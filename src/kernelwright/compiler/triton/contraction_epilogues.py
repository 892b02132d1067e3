"""Generates the epilogue of a contraction: the bias, the elementwise steps and the stores of a tile."""

from __future__ import annotations

from kernelwright.compiler.regions.axes import Unsupported
from kernelwright.compiler.regions.contraction import AxisIndex, ContractionRegion, Windows
from kernelwright.compiler.regions.region import HALF_DTYPES, Load, Reduction, Scan, Step, Store
from kernelwright.compiler.triton.contraction_tiles import Masks
from kernelwright.compiler.triton.op_templates import TRITON_TYPES, full, step_expr
from kernelwright.compiler.triton.operand_packing import INT32_ELEMENTS, group_start

SCALAR, ROWS, COLUMNS, TILE = "scalar", "rows", "columns", "tile"
"""What an index or a load depends on, which is the shape of its Triton value."""
EXPANSION = {SCALAR: "", ROWS: "[:, None]", COLUMNS: "[None, :]", TILE: ""}


def emit_epilogue(region: ContractionRegion, masks: Masks, extra_mask: str = "") -> list[str]:
    """The lines that compute and store the outputs of a tile from its sums `acc`, in FP32.

    Args:
        extra_mask: of the stores; empty for none.

    Raises:
        Unsupported: a step has no Triton code.
    """
    return _Epilogue(region, masks).emit(extra_mask)


class _Epilogue:
    def __init__(self, region: ContractionRegion, masks: Masks) -> None:
        self.region, self.one = region, region.contraction
        self.masks = {SCALAR: "", ROWS: masks.rows, COLUMNS: masks.columns, TILE: masks.both}
        self.axes = {name: _axis_value(index) for name, index in region.indices.items()}
        self.dtypes: dict[str, str] = {}

    def emit(self, extra_mask: str) -> list[str]:
        lines = [f"{axis} = {expr}" for axis, (expr, _) in self.axes.items()]
        if self.one.bias:
            buffer, dtype = self.one.bias
            offsets, shape = (
                (f"{self._group_start}offs_m", ROWS) if self.one.bias_along == "m" else ("columns", COLUMNS)
            )
            lines.append(f"acc += {self._load(f'{buffer}_ptr + {offsets}', shape, dtype)}")
        for load in self.region.epilogue.loads:
            self.dtypes[load.value] = _register_dtype(load.dtype)
            value = "acc" if load.buffer == self.one.value else self._load(*self._address(load), load.dtype)
            lines.append(f"{load.value} = {value}")
        for step in self.region.epilogue.steps:
            if isinstance(step, Reduction | Scan):
                raise Unsupported("a reduction in the epilogue of a contraction")
            self.dtypes[step.value] = _register_dtype(step.dtype)
            lines.append(f"{step.value} = {self._step(step)}")
        mask = " & ".join(filter(None, (self.masks[TILE], extra_mask)))
        for store in self.region.stores:
            address, shape = self._address(store)
            options = f", mask={mask}" if mask else ""
            pointers = address if shape == TILE else f"tl.broadcast_to(({address}){EXPANSION[shape]}, acc.shape)"
            lines.append(f"tl.store({pointers}, tl.broadcast_to({store.value}, acc.shape){options})")
        return lines

    @property
    def _group_start(self) -> str:
        """The first row of a group as a term of an offset."""
        return group_start(self.one.right, self.one.m) if isinstance(self.one.right, Windows) else ""

    def _load(self, address: str, shape: str, dtype: str) -> str:
        """A load as a value that broadcasts to the tile: vectors are loaded once and expanded."""
        mask = f", mask={self.masks[shape]}, other=0" if self.masks[shape] else ""
        widened = ".to(tl.float32)" if dtype in HALF_DTYPES else ".to(tl.int1)" if dtype == "bool" else ""
        return f"tl.load({address}{mask}){EXPANSION[shape]}{widened}"

    def _step(self, step: Step) -> str:
        if step.op == "index":
            axis = str(step.args[0])
            return f"{axis}{EXPANSION[self.axes[axis][1]]}.to({TRITON_TYPES[step.dtype]})"
        if step.op == "constant":
            assert not isinstance(step.args[0], str)
            return full(step.args[0], step.dtype)
        known = tuple(self.dtypes[arg] if isinstance(arg, str) else None for arg in step.args)
        return step_expr(step.op, step.args, known, step.dtype)

    def _address(self, access: Load | Store) -> tuple[str, str]:
        """The address of an access, and its shape."""
        strides = {axis: stride for axis, stride in access.strides.items() if stride}
        shapes = {self.axes[axis][1] for axis in strides} or {SCALAR}
        shape = shapes.pop() if len(shapes) == 1 else TILE
        sizes = {axis.name: axis.size for axis in self.region.outer}
        extent = abs(access.offset) + sum(abs(stride) * sizes[axis] for axis, stride in strides.items())
        wide = ".to(tl.int64)" if extent > INT32_ELEMENTS else ""
        terms = [f"{access.buffer}_ptr", *[str(access.offset)] * bool(access.offset)]
        for axis, stride in strides.items():
            index = f"{axis}{EXPANSION[self.axes[axis][1]] if shape == TILE else ''}{wide}"
            terms.append(f"{index} * {stride}" if stride != 1 else index)
        return " + ".join(terms), shape


def _axis_value(index: AxisIndex) -> tuple[str, str]:
    """The expression of the index along an axis, and its shape."""
    shape = TILE if index.row_factor and index.column_divisor else ROWS if index.row_factor else COLUMNS
    terms = []
    if index.row_factor:
        rows = f"rows{EXPANSION[ROWS] if shape == TILE else ''}"
        if index.row_factor == -1:
            terms.append(f"{rows} // {index.row_divisor}" if index.row_divisor > 1 else rows)
        else:
            terms.append(f"{rows} * {index.row_factor}")
    if index.column_divisor:
        columns = f"columns{EXPANSION[COLUMNS] if shape == TILE else ''}"
        terms.append(f"{columns} // {index.column_divisor}" if index.column_divisor > 1 else columns)
    expr = " + ".join(terms)
    return (f"({expr}) % {index.modulus}" if index.modulus else expr), shape


def _register_dtype(dtype: str) -> str:
    return "float32" if dtype in HALF_DTYPES else dtype
