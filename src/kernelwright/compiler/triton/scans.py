"""Scans along a row (sum, product, maximum, minimum), with a carry where the row is longer than a tile."""

from __future__ import annotations

from kernelwright.compiler.regions.axes import Unsupported
from kernelwright.compiler.regions.region import Scan
from kernelwright.compiler.triton.op_templates import TRITON_TYPES, highest, literal, lowest
from kernelwright.compiler.triton.reductions import RowOperand, apply_row_mask
from kernelwright.compiler.triton.tile import Tile


def scan_tile(tile: Tile, scan: Scan, operand: RowOperand) -> list[str]:
    """The lines that scan one tile.

    Raises:
        Unsupported: the Triton backend does not support the operation.
    """
    masked = apply_row_mask(tile, operand, scan_identity(scan))
    reverse = ", reverse=True" * scan.reverse
    if scan.op in ("sum", "prod"):
        return [f"{scan.value} = tl.cum{scan.op}({masked}, axis={tile.reduce_axis}{reverse})"]
    return [f"{scan.value} = tl.associative_scan({masked}, {tile.reduce_axis}, {_scan_combiner(scan)}{reverse})"]


def init_carry(tile: Tile, scan: Scan) -> str:
    """The initial carry."""
    shape = "()" if tile.is_single_row else "[BLOCK_M, 1]"
    return f"{scan.value}_carry = tl.full({shape}, {scan_identity(scan)}, {TRITON_TYPES[scan.dtype]})"


def apply_carry(tile: Tile, scan: Scan, operand: RowOperand) -> list[str]:
    """The lines that combine the scan of a tile with the carry, and update the carry."""
    value, carry, masked = scan.value, f"{scan.value}_carry", apply_row_mask(tile, operand, scan_identity(scan))
    if scan.op == "sum":
        return [f"{value} += {carry}", f"{carry} += tl.sum({masked}, {tile.reduce_args})"]
    combine = _scan_combiner(scan)
    keep = "" if tile.is_single_row else ", keep_dims=True"
    total = f"tl.reduce({masked}, {tile.reduce_axis}, {combine}{keep})"
    return [f"{value} = {combine}({value}, {carry})", f"{carry} = {combine}({carry}, {total})"]


def scan_identity(scan: Scan) -> str:
    """The identity element of a scan.

    Raises:
        Unsupported: the Triton backend does not support the operation.
    """
    if scan.op not in ("sum", "prod", "max", "min"):
        raise Unsupported(f"a scan with {scan.op} is not supported by the Triton backend")
    identities = {"sum": literal(0, scan.dtype), "prod": literal(1, scan.dtype), "max": lowest(scan.dtype)}
    return identities.get(scan.op) or highest(scan.dtype)


def _scan_combiner(scan: Scan) -> str:
    return {"prod": "multiply_combine", "max": "maximum_nan", "min": "minimum_nan"}[scan.op]
