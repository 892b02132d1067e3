"""`kw optimize`: what it waited on, every region before, predicted and after, and what the file is worth."""

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
TIMES = ("before", "predicted", "after", "of its floor")


def write(found: Optimization, paper: TerminalWriter) -> None:
    if found.verdict is None:
        return _plan(found, paper)
    paper.print_header(format.sanitize_line(found.problem), optimization.setup_text(found))
    paper.print_line()
    if found.diagnosis:
        write_summary(found.diagnosis, paper)
        paper.print_line()
    _regions(found, paper)
    _fallbacks(found, paper)
    paper.print_line()
    verdict.write(found.verdict, paper)
    if found.bench:
        bench.write(found.bench, paper)
    for note in found.notes:
        paper.print_paragraph(format.sanitize_line(note), 0, "dim")
    if found.output_file:
        paper.print_line(f"wrote {format.sanitize_line(found.output_file)}")
    return None


def _regions(found: Optimization, paper: TerminalWriter) -> None:
    """A row each, with what it computes and who does; what has no room in the row stands under it."""
    rows, left = optimization.region_rows(found, MAX_ROWS)
    if not rows:
        return paper.print_line("  ", optimization.kernels_text(found))
    head, table, under = _layout(rows, paper)
    paper.print_table(head, table, under)
    if left:
        paper.print_line("  ", (optimization.more_text(left), "dim"))
    alone = [region for region in found.regions if not optimization.is_kernel(region)]
    for region in alone[:MAX_FALLBACKS]:
        paper.print_paragraph(
            f"{optimization.region_name(region)}: {optimization.no_kernel_text(region)}", 4, "dim", first=["  "]
        )
    if len(alone) > MAX_FALLBACKS:
        paper.print_line("  ", (f"and {len(alone) - MAX_FALLBACKS:,} more without a kernel", "dim"))
    return None


def _layout(
    regions: Sequence[RegionOutcome], paper: TerminalWriter
) -> tuple[list[str], list[list[str]], list[list[str]]]:
    """Head, rows, and the lines under each row: what it computes and who does leave the rows until these fit."""
    names = [optimization.region_name(region) for region in regions]
    times = [_times(region) for region in regions]
    computes = [optimization.computation_text(region) or "-" for region in regions]
    by = [optimization.winner_text(region) for region in regions]
    whole = [[name, what, *row, who] for name, what, row, who in zip(names, computes, times, by, strict=True)]
    if paper.table_fits(head := ["region", "computes", *TIMES, "by"], whole):
        return head, whole, [[] for _ in regions]
    if paper.table_fits(head[:-1], brief := [row[:-1] for row in whole]):
        return head[:-1], brief, [[f"by {who}"] for who in by]
    bare = [[name, *row] for name, row in zip(names, times, strict=True)]
    return ["region", *TIMES], bare, [[what, f"by {who}"] for what, who in zip(computes, by, strict=True)]


def _times(region: RegionOutcome) -> list[str]:
    return [
        *map(time_text, (region.before_us, region.predicted_us, region.after_us)),
        format.ratio_text(region.after_us, region.floor_us),
    ]


def _plan(found: Optimization, paper: TerminalWriter) -> None:
    """The regions as text, each the way in which every generator reads it."""
    for region in found.regions:
        for line in region.text.splitlines():
            paper.print_line(line)
        paper.print_line()
    _fallbacks(found, paper)


def _fallbacks(found: Optimization, paper: TerminalWriter) -> None:
    for left in found.fallbacks[:MAX_FALLBACKS]:
        paper.print_paragraph(
            f"left to torch: {optimization.fallback_operator_text(left)}, {optimization.fallback_reason_text(left)}",
            4,
            "dim",
            first=["  "],
        )
    if len(found.fallbacks) > MAX_FALLBACKS:
        paper.print_line("  ", (f"and {len(found.fallbacks) - MAX_FALLBACKS} more operators", "dim"))
