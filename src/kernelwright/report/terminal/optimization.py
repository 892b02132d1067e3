"""`kw optimize`: what it waited on, every region before, predicted and after, and what the file is worth."""

from __future__ import annotations

from collections.abc import Sequence

from kernelwright.core.optimization import Optimization, RegionOutcome
from kernelwright.core.units import time_text
from kernelwright.report import format, optimization
from kernelwright.report.terminal import bench, verdict
from kernelwright.report.terminal.console import Paper
from kernelwright.report.terminal.diagnosis import write_sentence

MOST_ROWS = 8
MOST_LEFT = 6
TIMES = ("before", "predicted", "after", "of its floor")


def write(found: Optimization, paper: Paper) -> None:
    if found.verdict is None:
        return _plan(found, paper)
    paper.head(format.plain(found.problem), optimization.setting_text(found))
    paper.line()
    if found.diagnosis:
        write_sentence(found.diagnosis, paper)
        paper.line()
    _regions(found, paper)
    _left(found, paper)
    paper.line()
    verdict.write(found.verdict, paper)
    if found.bench:
        bench.write(found.bench, paper)
    for note in found.notes:
        paper.paragraph(format.plain(note), 0, "dim")
    if found.file:
        paper.line(f"wrote {format.plain(found.file)}")
    return None


def _regions(found: Optimization, paper: Paper) -> None:
    """A row each, with what it computes and who does; what has no room in the row stands under it."""
    rows, left = optimization.rows(found, MOST_ROWS)
    if not rows:
        return paper.line("  ", optimization.kernels_text(found))
    head, table, under = _layout(rows, paper)
    paper.table(head, table, under)
    if left:
        paper.line("  ", (optimization.more_text(left), "dim"))
    alone = [region for region in found.regions if not optimization.is_kernel(region)]
    for region in alone[:MOST_LEFT]:
        paper.paragraph(
            f"{optimization.region_name(region)}: {optimization.left_alone_text(region)}", 4, "dim", first=["  "]
        )
    if len(alone) > MOST_LEFT:
        paper.line("  ", (f"and {len(alone) - MOST_LEFT:,} more without a kernel", "dim"))
    return None


def _layout(regions: Sequence[RegionOutcome], paper: Paper) -> tuple[list[str], list[list[str]], list[list[str]]]:
    """Head, rows, and the lines under each row: what it computes and who does leave the rows until these fit."""
    names = [optimization.region_name(region) for region in regions]
    times = [_times(region) for region in regions]
    computes = [optimization.computes_text(region) or "-" for region in regions]
    by = [optimization.winner_text(region) for region in regions]
    whole = [[name, what, *row, who] for name, what, row, who in zip(names, computes, times, by, strict=True)]
    if paper.fits(head := ["region", "computes", *TIMES, "by"], whole):
        return head, whole, [[] for _ in regions]
    if paper.fits(head[:-1], brief := [row[:-1] for row in whole]):
        return head[:-1], brief, [[f"by {who}"] for who in by]
    bare = [[name, *row] for name, row in zip(names, times, strict=True)]
    return ["region", *TIMES], bare, [[what, f"by {who}"] for what, who in zip(computes, by, strict=True)]


def _times(region: RegionOutcome) -> list[str]:
    return [
        *map(time_text, (region.before_us, region.predicted_us, region.after_us)),
        format.ratio_text(region.after_us, region.floor_us),
    ]


def _plan(found: Optimization, paper: Paper) -> None:
    """The regions as text, each the way in which every generator reads it."""
    for region in found.regions:
        for line in region.text.splitlines():
            paper.line(line)
        paper.line()
    _left(found, paper)


def _left(found: Optimization, paper: Paper) -> None:
    for left in found.left[:MOST_LEFT]:
        paper.paragraph(
            f"left to torch: {optimization.operator_text(left)}, {optimization.left_reason(left)}",
            4,
            "dim",
            first=["  "],
        )
    if len(found.left) > MOST_LEFT:
        paper.line("  ", (f"and {len(found.left) - MOST_LEFT} more operators", "dim"))
