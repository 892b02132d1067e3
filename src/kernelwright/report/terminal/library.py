"""`kw kernels`: a row for each kernel, and under it what it takes and where it comes from."""

from __future__ import annotations

from kernelwright.core.library import Library
from kernelwright.report.terminal.console import Paper


def write(library: Library, paper: Paper) -> None:
    paper.table(
        ("kernel", "variants"),
        [(one.name, ", ".join(one.variants)) for one in library.kernels],
        [
            [one.evidence or "no evidence yet", f"{one.about}; {', '.join(one.dtypes)}; {one.limits}", one.source]
            for one in library.kernels
        ],
    )
    paper.line()
    paper.line(("from kernelwright.kernels import NAME", "dim"))
