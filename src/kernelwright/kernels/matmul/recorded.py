"""Configurations that were measured to be the fastest for products of given sizes; they override the model of tiles.

`recorded.json` holds those of this package. A user's own, in the same form, override them: the file that the variable
KERNELWRIGHT_MATMUL_TUNED names, read once.
"""

from __future__ import annotations

import functools
import json
import os
from pathlib import Path

from kernelwright.core.errors import UsageError
from kernelwright.kernels.matmul.configs import ELEMENT_BYTES, GemmConfig, Variant

PACKAGED = Path(__file__).with_name("recorded.json")
VARIABLE = "KERNELWRIGHT_MATMUL_TUNED"
LAYOUTS = {False: "nk", True: "kn"}
"""Layout of b in a row, by whether it is contiguous along N."""
Table = dict[tuple[int, int, str], list[tuple[int, GemmConfig]]]


def find_recorded(m: int, n: int, k: int, batch: int, variant: Variant) -> GemmConfig | None:
    """The configuration recorded for (m, k) and (k, n) in 16 bits, or for up to twice as many rows; None if there is
    none.

    Raises:
        UsageError: the user's file is wrong.
    """
    is_plain = not (variant.gated or variant.block_scales or variant.row_statistics != "kNone" or variant.transpose_a)
    if batch > 1 or not is_plain or ELEMENT_BYTES[variant.a] != 2:
        return None
    for path in (os.environ.get(VARIABLE, ""), str(PACKAGED)):
        for rows, config in _read_table(path).get((n, k, LAYOUTS[variant.transpose_b]), ()):
            if rows // 2 < m <= rows:
                return config
    return None


@functools.cache
def _read_table(path: str) -> Table:
    """Configurations by N, K and layout, with the number of rows of each."""
    table: Table = {}
    if not path:
        return table
    try:
        for row in json.loads(Path(path).read_text("utf-8"))["rows"]:
            table.setdefault((row["n"], row["k"], row["b"]), []).append((row["m"], GemmConfig(**row["config"])))
    except (OSError, ValueError, KeyError, TypeError) as fault:
        raise UsageError(f"{path} is no table of tuned products: {fault!r}", next=f"see {PACKAGED}") from fault
    return table
