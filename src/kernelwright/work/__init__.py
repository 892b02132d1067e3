"""Counts the FLOPs and bytes of a torch program: as written, and as one ideal fused pass would move them."""

from kernelwright.work.arguments import first_reads
from kernelwright.work.calls import Call
from kernelwright.work.counting import CountingMode, count
from kernelwright.work.formulas import Formula, register
from kernelwright.work.fusion import fused_work, fusible_runs

__all__ = ["Call", "CountingMode", "Formula", "count", "first_reads", "fused_work", "fusible_runs", "register"]
