"""`show` prints any record or error; `render_text` returns the same as a string."""

from __future__ import annotations

import io
import shutil
import sys
from collections.abc import Callable
from typing import Any

from rich.console import Console

from kernelwright.core.bench import Bench
from kernelwright.core.corpus import CorpusReport
from kernelwright.core.diagnosis import Diagnosis
from kernelwright.core.emulation import Emulation
from kernelwright.core.errors import KernelwrightError
from kernelwright.core.evidence import EvidenceRun, EvidenceStatus
from kernelwright.core.ladder import LadderRun
from kernelwright.core.layout import LayoutEvaluation
from kernelwright.core.library import KernelLibrary
from kernelwright.core.machine import Machine
from kernelwright.core.machine_code import CodeDifference, MachineCode
from kernelwright.core.optimization import Optimization
from kernelwright.core.suite_run import SuiteRun
from kernelwright.core.verdict import Verdict
from kernelwright.report.terminal import (
    bench,
    corpus,
    diagnosis,
    emulation,
    error,
    evidence,
    ladder,
    layout,
    library,
    machine,
    optimization,
    sass,
    suite_run,
    verdict,
)
from kernelwright.report.terminal.console import MAX_LINES, TerminalWriter

Report = (
    Diagnosis
    | Verdict
    | Bench
    | Machine
    | Optimization
    | LayoutEvaluation
    | LadderRun
    | Emulation
    | MachineCode
    | CodeDifference
    | KernelLibrary
    | SuiteRun
)
Shown = Report | EvidenceStatus | EvidenceRun | CorpusReport | KernelwrightError
_WRITERS: dict[type, Callable[[Any, TerminalWriter], None]] = {
    Diagnosis: diagnosis.write,
    Verdict: verdict.write,
    Bench: bench.write,
    Machine: machine.write,
    Optimization: optimization.write,
    EvidenceStatus: evidence.write,
    EvidenceRun: evidence.write_run,
    CorpusReport: corpus.write,
    SuiteRun: suite_run.write,
    LayoutEvaluation: layout.write,
    LadderRun: ladder.write,
    Emulation: emulation.write,
    MachineCode: sass.write,
    CodeDifference: sass.write_difference,
    KernelLibrary: library.write,
    KernelwrightError: error.write,
}


def show(record: Shown, console: Console | None = None, *, full: bool = False) -> None:
    """Print a record or an error, 80 to 160 columns wide; in colour only on a terminal without NO_COLOR.

    Args:
        full: print every region of an optimised program, whatever its length.
    Raises:
        TypeError: there is no output for this type of record.
    """
    for record_type, write in _WRITERS.items():
        if isinstance(record, record_type):
            max_lines = None if full else MAX_LINES
            return write(record, TerminalWriter.from_console(console or Console(), max_lines))
    raise TypeError(f"cannot show a {type(record).__name__}")


def render_text(record: Shown, width: int | None = None) -> str:
    """Return the output of `show` without colour and final newline; `width` defaults to the terminal's."""
    sink = io.TextIOWrapper(io.BytesIO(), encoding=getattr(sys.stdout, "encoding", None) or "utf-8", errors="replace")
    width = width or shutil.get_terminal_size((100, 24)).columns
    show(record, Console(file=sink, width=width, color_system=None, force_terminal=False, force_jupyter=False))
    sink.seek(0)
    return sink.read().rstrip("\n")
