"""One typed function for each verb of `kw`. The command line, notebooks and services call these.

Each takes what the verb takes and returns a `CommandResult`: the record, whether it is a finding, and the commands to
run next. A function imports what it needs when it is called, so that importing this package is cheap.
"""

from kernelwright.commands.benchmark import bench
from kernelwright.commands.corpus import judge_check
from kernelwright.commands.diagnosis import why, why_emulated
from kernelwright.commands.disassembly import sass, sass_diff
from kernelwright.commands.evidence import (
    evidence_instrument,
    evidence_record,
    evidence_refresh,
    evidence_status,
    evidence_table,
)
from kernelwright.commands.ladders import ladder
from kernelwright.commands.layouts import layout
from kernelwright.commands.library import kernels
from kernelwright.commands.machines import machine
from kernelwright.commands.optimization import optimize
from kernelwright.commands.result import CommandResult
from kernelwright.commands.suites import suite_run
from kernelwright.commands.verification import verify

__all__ = [
    "CommandResult",
    "bench",
    "evidence_instrument",
    "evidence_record",
    "evidence_refresh",
    "evidence_status",
    "evidence_table",
    "judge_check",
    "kernels",
    "ladder",
    "layout",
    "machine",
    "optimize",
    "sass",
    "sass_diff",
    "suite_run",
    "verify",
    "why",
    "why_emulated",
]
