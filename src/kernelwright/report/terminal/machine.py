"""`kw machine`: the ceilings of a machine."""

from __future__ import annotations

from kernelwright.core.machine import Machine
from kernelwright.core.units import bandwidth_text, bytes_text, percent_text, rate_text, time_text
from kernelwright.report import format
from kernelwright.report.terminal.console import TerminalWriter


def write(machine: Machine, writer: TerminalWriter) -> None:
    """Write a machine."""
    writer.print_line((format.machine_text(machine), "bold"), " " * 10, (format.ceilings_text(machine), "dim"))
    writer.print_line()
    _levels(machine, writer)
    writer.print_line()
    _rates(machine, writer)
    _costs(machine, writer)
    _notes(machine, writer)


def _levels(machine: Machine, writer: TerminalWriter) -> None:
    writer.print_table(
        ("memory", "size", "read", "write", "copy", "triad"),
        [
            (
                level.name,
                bytes_text(level.capacity_bytes) if level.capacity_bytes else "-",
                *(bandwidth_text(rate) if rate else "-" for _, rate in format.bandwidths_by_mix(level)),
            )
            for level in machine.levels
        ],
    )


def _rates(machine: Machine, writer: TerminalWriter) -> None:
    """A row per dtype, with the fraction of the datasheet's peak if it is known."""
    rows = []
    for dtype in format.dtypes(machine):
        rates = (machine.matrix_tflop_s.get(dtype), machine.vector_tflop_s.get(dtype))
        rows.append((dtype, *(rate_text(rate) if rate else "-" for rate in rates), _of_spec(machine, dtype)))
    writer.print_table(("dtype", "matrix", "vector", "of datasheet peak"), rows)


def _of_spec(machine: Machine, dtype: str) -> str:
    """The fraction of the datasheet's peak that a matrix product reaches."""
    if machine.spec is None or machine.provenance == "datasheet":
        return "-"
    peak, reached = machine.spec.matrix_tflop_s.get(dtype), machine.matrix_tflop_s.get(dtype)
    return f"{percent_text(reached / peak)} of {rate_text(peak)}" if peak and reached else "-"


def _costs(machine: Machine, writer: TerminalWriter) -> None:
    costs = format.host_costs(machine)
    if costs:
        writer.print_line()
    for label, cost_us in costs:
        writer.print_line("  ", label.ljust(30), time_text(cost_us))


def _notes(machine: Machine, writer: TerminalWriter) -> None:
    notes = [format.sanitize_line(note) for note in machine.notes]
    if machine.spec:
        notes.append(
            f"datasheet: {format.sanitize_line(machine.spec.title)}, from {format.sanitize_line(machine.spec.source)}"
        )
    if machine.software:
        notes.append(", ".join(f"{name} {version}" for name, version in machine.software.items()))
    if notes:
        writer.print_line()
    for note in notes:
        writer.print_paragraph(note, 2, "dim")
