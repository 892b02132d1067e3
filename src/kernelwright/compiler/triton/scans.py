"""Running sums, products and extremes along a row as Triton text, with a carry where the row is longer than a tile."""

from __future__ import annotations

from kernelwright.compiler.regions.axes import Misfit
from kernelwright.compiler.regions.region import Scan
from kernelwright.compiler.triton.op_templates import TYPES, highest, literal, lowest
from kernelwright.compiler.triton.reductions import Operand, masked
from kernelwright.compiler.triton.tile import Tile


def scanned(tile: Tile, scan: Scan, operand: Operand) -> list[str]:
    """The scan of one tile.

    Raises:
        Misfit: an operation that has no form here.
    """
    given = masked(tile, operand, neutral_of(scan))
    reverse = ", reverse=True" * scan.reverse
    if scan.op in ("sum", "prod"):
        return [f"{scan.value} = tl.cum{scan.op}({given}, axis={tile.axis_number}{reverse})"]
    return [f"{scan.value} = tl.associative_scan({given}, {tile.axis_number}, {_join(scan)}{reverse})"]


def carry_start(tile: Tile, scan: Scan) -> str:
    """What came before the first tile."""
    shape = "()" if tile.line else "[BLOCK_M, 1]"
    return f"{scan.value}_carry = tl.full({shape}, {neutral_of(scan)}, {TYPES[scan.dtype]})"


def carried(tile: Tile, scan: Scan, operand: Operand) -> list[str]:
    """Joins the tiles before to this one, and this one to the carry."""
    value, carry, given = scan.value, f"{scan.value}_carry", masked(tile, operand, neutral_of(scan))
    if scan.op == "sum":
        return [f"{value} += {carry}", f"{carry} += tl.sum({given}, {tile.axis})"]
    join = _join(scan)
    keep = "" if tile.line else ", keep_dims=True"
    total = f"tl.reduce({given}, {tile.axis_number}, {join}{keep})"
    return [f"{value} = {join}({value}, {carry})", f"{carry} = {join}({carry}, {total})"]


def neutral_of(scan: Scan) -> str:
    if scan.op not in ("sum", "prod", "max", "min"):
        raise Misfit(f"a running {scan.op} has no form in Triton yet")
    ends = {"sum": literal(0, scan.dtype), "prod": literal(1, scan.dtype), "max": lowest(scan.dtype)}
    return ends.get(scan.op) or highest(scan.dtype)


def _join(scan: Scan) -> str:
    return {"prod": "product", "max": "larger", "min": "smaller"}[scan.op]
