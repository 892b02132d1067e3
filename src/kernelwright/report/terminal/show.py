"""`show` prints any record or error; `text` gives the same as a string."""

from __future__ import annotations

import io
import shutil
import sys
from collections.abc import Callable
from typing import Any

from rich.console import Console

from kernelwright.core.corpus import CorpusReport
from kernelwright.core.emulation import Emulation
from kernelwright.core.errors import KernelwrightError
from kernelwright.core.evidence import EvidenceRun, EvidenceStatus
from kernelwright.core.ladder import Climb
from kernelwright.core.layout import LayoutAnswer
from kernelwright.core.library import Library
from kernelwright.core.machine_code import CodeDifference, MachineCode
from kernelwright.core.optimization import Optimization
from kernelwright.core.records import Bench, Diagnosis, Machine, Verdict
from kernelwright.core.suite_run import SuiteRun
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
from kernelwright.report.terminal.console import Paper

Report = (
    Diagnosis
    | Verdict
    | Bench
    | Machine
    | Optimization
    | LayoutAnswer
    | Climb
    | Emulation
    | MachineCode
    | CodeDifference
    | Library
    | SuiteRun
)
Shown = Report | EvidenceStatus | EvidenceRun | CorpusReport | KernelwrightError
_WRITERS: dict[type, Callable[[Any, Paper], None]] = {
    Diagnosis: diagnosis.write,
    Verdict: verdict.write,
    Bench: bench.write,
    Machine: machine.write,
    Optimization: optimization.write,
    EvidenceStatus: evidence.write,
    EvidenceRun: evidence.write_run,
    CorpusReport: corpus.write,
    SuiteRun: suite_run.write,
    LayoutAnswer: layout.write,
    Climb: ladder.write,
    Emulation: emulation.write,
    MachineCode: sass.write,
    CodeDifference: sass.write_difference,
    Library: library.write,
    KernelwrightError: error.write,
}


def show(record: Shown, console: Console | None = None) -> None:
    """Prints a record or an error, 80 to 160 columns wide; in colour only on a terminal without NO_COLOR.

    Raises:
        TypeError: nothing is known about how such a record looks.
    """
    for kind, write in _WRITERS.items():
        if isinstance(record, kind):
            return write(record, Paper.of(console or Console()))
    raise TypeError(f"no way to show a {type(record).__name__}")


def text(record: Shown, width: int | None = None) -> str:
    """What `show` prints, without colour and without the last newline; `width` is the terminal's unless given."""
    sink = io.TextIOWrapper(io.BytesIO(), encoding=getattr(sys.stdout, "encoding", None) or "utf-8", errors="replace")
    width = width or shutil.get_terminal_size((100, 24)).columns
    show(record, Console(file=sink, width=width, color_system=None, force_terminal=False, force_jupyter=False))
    sink.seek(0)
    return sink.read().rstrip("\n")
