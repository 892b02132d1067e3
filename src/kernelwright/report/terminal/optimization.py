"""`kw optimize`: the diagnosis, every region before, predicted and after, the verdict and the bench."""

from __future__ import annotations

from collections.abc import Sequence

from kernelwright.core.optimization import Optimization, RegionOutcome
from kernelwright.core.units import time_text
from kernelwright.report import format, optimization
from kernelwright.report.terminal import bench, verdict
from kernelwright.report.terminal.console import TerminalWriter
from kernelwright.report.terminal.diagnosis import write_summary

MAX_ROWS = 8
MAX_FALLBACKS = 6
TIMES = ("before", "predicted", "after", "x floor")


def write(result: Optimization, writer: TerminalWriter) -> None:
    """Write the result of an optimization."""
    if result.verdict is None:
        return _plan(result, writer)
    writer.print_header(format.sanitize_line(result.problem), optimization.setup_text(result))
    writer.print_line()
    if result.diagnosis:
        write_summary(result.diagnosis, writer)
        writer.print_line()
    _regions(result, writer)
    _fallbacks(result, writer)
    _rewrites(result, writer)
    writer.print_line()
    verdict.write(result.verdict, writer)
    if result.bench:
        bench.write(result.bench, writer)
    for note in result.notes:
        writer.print_paragraph(format.sanitize_line(note), 0, "dim")
    if result.output_file:
        writer.print_line(f"wrote {format.sanitize_line(result.output_file)}")
    return None


def _regions(result: Optimization, writer: TerminalWriter) -> None:
    """A row for each region, with notes below it for cells that do not fit; then the regions without a kernel."""
    rows, num_hidden = optimization.region_rows(result, MAX_ROWS)
    if not rows:
        return writer.print_line("  ", optimization.kernels_text(result))
    head, table, notes = _layout(rows, writer)
    writer.print_table(head, table, notes)
    if num_hidden:
        writer.print_line("  ", (optimization.more_text(num_hidden), "dim"))
    fallbacks = [region for region in result.regions if not optimization.is_kernel(region)]
    for region in fallbacks[:MAX_FALLBACKS]:
        writer.print_paragraph(
            f"{optimization.region_name(region)}: {optimization.no_kernel_text(region)}", 4, "dim", first=["  "]
        )
    if len(fallbacks) > MAX_FALLBACKS:
        writer.print_line("  ", (f"and {len(fallbacks) - MAX_FALLBACKS:,} more without a kernel", "dim"))
    return None


def _layout(
    regions: Sequence[RegionOutcome], writer: TerminalWriter
) -> tuple[list[str], list[list[str]], list[list[str]]]:
    """Return head, rows and row notes; computation and winner move to the notes if the rows are too wide."""
    names = [optimization.region_name(region) for region in regions]
    times = [_times(region) for region in regions]
    computations = [optimization.computation_text(region) or "-" for region in regions]
    winners = [optimization.winner_text(region) for region in regions]
    rows = [
        [name, computation, *row, winner]
        for name, computation, row, winner in zip(names, computations, times, winners, strict=True)
    ]
    if writer.table_fits(head := ["region", "computation", *TIMES, "winner"], rows):
        return head, rows, [[] for _ in regions]
    notes = [[f"winner: {winner}"] for winner in winners]
    if writer.table_fits(head[:-1], without_winner := [row[:-1] for row in rows]):
        return head[:-1], without_winner, notes
    rows = [[name, *row] for name, row in zip(names, times, strict=True)]
    return ["region", *TIMES], rows, [[what, *note] for what, note in zip(computations, notes, strict=True)]


def _times(region: RegionOutcome) -> list[str]:
    return [
        *map(time_text, (region.before_us, region.predicted_us, region.after_us)),
        format.ratio_text(region.after_us, region.floor_us),
    ]


def _plan(result: Optimization, writer: TerminalWriter) -> None:
    """Write the regions as text, as all backends receive them."""
    for region in result.regions:
        for line in region.text.splitlines():
            writer.print_line(line)
        writer.print_line()
    _fallbacks(result, writer)


def _rewrites(result: Optimization, writer: TerminalWriter) -> None:
    names = [f"{format.sanitize_line(rewrite.name)} x{rewrite.count:,}" for rewrite in result.rewrites]
    if names:
        writer.print_paragraph(f"rewrites: {', '.join(names)}", 4, "dim", first=["  "])


def _fallbacks(result: Optimization, writer: TerminalWriter) -> None:
    for fallback in result.fallbacks[:MAX_FALLBACKS]:
        writer.print_paragraph(
            f"fallback operator {optimization.fallback_operator_text(fallback)}: "
            f"{optimization.fallback_reason_text(fallback)}",
            4,
            "dim",
            first=["  "],
        )
    if len(result.fallbacks) > MAX_FALLBACKS:
        writer.print_line("  ", (f"and {len(result.fallbacks) - MAX_FALLBACKS} more fallback operators", "dim"))
