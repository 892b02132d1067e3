"""Running sums, products and extremes along a row as Triton text, with a carry where the row is longer than a tile."""

from __future__ import annotations

from kernelwright.compiler.regions.axes import Unsupported
from kernelwright.compiler.regions.region import Scan
from kernelwright.compiler.triton.op_templates import TRITON_TYPES, highest, literal, lowest
from kernelwright.compiler.triton.reductions import RowOperand, apply_row_mask
from kernelwright.compiler.triton.tile import Tile


def scan_tile(tile: Tile, scan: Scan, operand: RowOperand) -> list[str]:
    """The scan of one tile.

    Raises:
        Misfit: an operation that has no form here.
    """
    given = apply_row_mask(tile, operand, scan_identity(scan))
    reverse = ", reverse=True" * scan.reverse
    if scan.op in ("sum", "prod"):
        return [f"{scan.value} = tl.cum{scan.op}({given}, axis={tile.reduce_axis}{reverse})"]
    return [f"{scan.value} = tl.associative_scan({given}, {tile.reduce_axis}, {_scan_combiner(scan)}{reverse})"]


def init_carry(tile: Tile, scan: Scan) -> str:
    """What came before the first tile."""
    shape = "()" if tile.is_single_row else "[BLOCK_M, 1]"
    return f"{scan.value}_carry = tl.full({shape}, {scan_identity(scan)}, {TRITON_TYPES[scan.dtype]})"


def apply_carry(tile: Tile, scan: Scan, operand: RowOperand) -> list[str]:
    """Joins the tiles before to this one, and this one to the carry."""
    value, carry, given = scan.value, f"{scan.value}_carry", apply_row_mask(tile, operand, scan_identity(scan))
    if scan.op == "sum":
        return [f"{value} += {carry}", f"{carry} += tl.sum({given}, {tile.reduce_args})"]
    join = _scan_combiner(scan)
    keep = "" if tile.is_single_row else ", keep_dims=True"
    total = f"tl.reduce({given}, {tile.reduce_axis}, {join}{keep})"
    return [f"{value} = {join}({value}, {carry})", f"{carry} = {join}({carry}, {total})"]


def scan_identity(scan: Scan) -> str:
    if scan.op not in ("sum", "prod", "max", "min"):
        raise Unsupported(f"a running {scan.op} has no form in Triton yet")
    ends = {"sum": literal(0, scan.dtype), "prod": literal(1, scan.dtype), "max": lowest(scan.dtype)}
    return ends.get(scan.op) or highest(scan.dtype)


def _scan_combiner(scan: Scan) -> str:
    return {"prod": "product", "max": "larger", "min": "smaller"}[scan.op]
