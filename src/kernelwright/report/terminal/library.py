"""`kw kernels`: a row for each kernel, and under it what it takes and where it comes from."""

from __future__ import annotations

from kernelwright.core.library import KernelLibrary
from kernelwright.report.terminal.console import TerminalWriter


def write(library: KernelLibrary, paper: TerminalWriter) -> None:
    paper.print_table(
        ("kernel", "variants"),
        [(one.name, ", ".join(one.variants)) for one in library.kernels],
        [
            [
                one.evidence or "no evidence yet",
                f"{one.description}; {', '.join(one.dtypes)}; {one.constraints}",
                one.source,
            ]
            for one in library.kernels
        ],
    )
    paper.print_line()
    paper.print_line(("from kernelwright.kernels import NAME", "dim"))
