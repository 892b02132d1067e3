"""`kw kernels`: a row for each kernel, with evidence, description, constraints and source."""

from __future__ import annotations

from kernelwright.core.library import KernelLibrary
from kernelwright.report.terminal.console import TerminalWriter


def write(library: KernelLibrary, writer: TerminalWriter) -> None:
    """Write the kernel library."""
    writer.print_table(
        ("kernel", "variants"),
        [(one.name, ", ".join(one.variants)) for one in library.kernels],
        [
            [
                one.evidence or "not measured yet",
                f"{one.description}; {', '.join(one.dtypes)}; {one.constraints}",
                one.source,
            ]
            for one in library.kernels
        ],
    )
    writer.print_line()
    writer.print_line(("from kernelwright.kernels import NAME", "dim"))
