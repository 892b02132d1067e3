"""`kw optimize`: what it waited on, every region before, predicted and after, and what the file is worth."""

from __future__ import annotations

from kernelwright.core.optimization import Optimization, RegionOutcome
from kernelwright.core.units import time_text
from kernelwright.report import words
from kernelwright.report.terminal import bench, verdict
from kernelwright.report.terminal.paper import REGIME_STYLE, Paper

MOST_LEFT = 6


def write(found: Optimization, paper: Paper) -> None:
    if found.verdict is None:
        return _plan(found, paper)
    if found.diagnosis:
        regime = found.diagnosis.regime
        paper.paragraph(
            words.sentence(found.diagnosis), 2, first=["  ", (f"{regime}: ", f"bold {REGIME_STYLE[regime]}")]
        )
        paper.line()
    paper.table(("region", "before", "floor", "predicted", "after", "gain", "by"), map(_row, found.regions))
    for region in found.regions:
        paper.paragraph(f"{region.name}: {region.why}", 2, "dim")
    _left(found, paper)
    paper.line()
    verdict.write(found.verdict, paper)
    if found.bench:
        bench.write(found.bench, paper)
    paper.line(f"wrote {found.file}")
    return None


def _row(region: RegionOutcome) -> tuple[str, ...]:
    gain = words.times_text(region.before_us / region.after_us) if region.after_us < region.before_us else "-"
    times = (region.before_us, region.floor_us, region.predicted_us, region.after_us)
    name = f"{region.name} {region.summary}" + (f", {region.copies} times" if region.copies > 1 else "")
    return (name, *map(time_text, times), gain, region.winner)


def _plan(found: Optimization, paper: Paper) -> None:
    """The regions as text, each the way in which every generator reads it."""
    for region in found.regions:
        for line in region.text.splitlines():
            paper.line(line)
        paper.line()
    _left(found, paper)


def _left(found: Optimization, paper: Paper) -> None:
    for left in found.left[:MOST_LEFT]:
        times = f" ({left.count} times)" if left.count > 1 else ""
        paper.paragraph(f"left to torch: {left.operator}{times}, {left.reason}", 2, "dim")
    if len(found.left) > MOST_LEFT:
        paper.line("  ", (f"and {len(found.left) - MOST_LEFT} more operators", "dim"))
