"""`kw machine`: the ceilings that floors are made from."""

from __future__ import annotations

from kernelwright.core.records import Machine
from kernelwright.core.units import bandwidth_text, bytes_text, percent_text, rate_text, time_text
from kernelwright.report import format
from kernelwright.report.terminal.console import Paper


def write(machine: Machine, paper: Paper) -> None:
    paper.line((format.machine_text(machine), "bold"), " " * 10, (format.ceilings_text(machine), "dim"))
    paper.line()
    _levels(machine, paper)
    paper.line()
    _rates(machine, paper)
    _costs(machine, paper)
    _notes(machine, paper)


def _levels(machine: Machine, paper: Paper) -> None:
    paper.table(
        ("memory", "size", "read", "write", "copy", "triad"),
        [
            (
                level.name,
                bytes_text(level.capacity_bytes) if level.capacity_bytes else "-",
                *(bandwidth_text(rate) if rate else "-" for _, rate in format.mixes(level)),
            )
            for level in machine.levels
        ],
    )


def _rates(machine: Machine, paper: Paper) -> None:
    """A row per dtype; the datasheet's figure and the share of it where one is known."""
    rows = []
    for dtype in format.dtypes(machine):
        rates = (machine.matrix_tflop_s.get(dtype), machine.vector_tflop_s.get(dtype))
        rows.append((dtype, *(rate_text(rate) if rate else "-" for rate in rates), _of_spec(machine, dtype)))
    paper.table(("dtype", "products", "other arithmetic", "of the datasheet"), rows)


def _of_spec(machine: Machine, dtype: str) -> str:
    """How much of the datasheet's rate a product reaches."""
    if machine.spec is None or machine.provenance == "datasheet":
        return "-"
    peak, reached = machine.spec.matrix_tflop_s.get(dtype), machine.matrix_tflop_s.get(dtype)
    return f"{percent_text(reached / peak)} of {rate_text(peak)}" if peak and reached else "-"


def _costs(machine: Machine, paper: Paper) -> None:
    costs = format.costs(machine)
    if costs:
        paper.line()
    for what, cost_us in costs:
        paper.line("  ", what.ljust(30), time_text(cost_us))


def _notes(machine: Machine, paper: Paper) -> None:
    notes = [format.plain(note) for note in machine.notes]
    if machine.spec:
        notes.append(f"datasheet: {format.plain(machine.spec.title)}, from {format.plain(machine.spec.source)}")
    if machine.software:
        notes.append(", ".join(f"{name} {version}" for name, version in machine.software.items()))
    if notes:
        paper.line()
    for note in notes:
        paper.paragraph(note, 2, "dim")
