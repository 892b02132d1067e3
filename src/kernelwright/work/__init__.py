"""Count the FLOPs and bytes of a torch program: as written, and as one ideal fused pass over memory."""

from kernelwright.work.arguments import first_read_bytes
from kernelwright.work.calls import OperatorCall
from kernelwright.work.counting import CountingMode, count_work
from kernelwright.work.formulas import Formula, register_flop_formula
from kernelwright.work.fusion import fused_work, fusion_groups

__all__ = [
    "CountingMode",
    "Formula",
    "OperatorCall",
    "count_work",
    "first_read_bytes",
    "fused_work",
    "fusion_groups",
    "register_flop_formula",
]
