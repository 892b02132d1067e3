"""`kw bench`: rejected candidates, the variants with their floors, and the comparisons with their intervals."""

from __future__ import annotations

from kernelwright.core.bench import Bench
from kernelwright.core.units import time_text
from kernelwright.report import format
from kernelwright.report.terminal.console import BAD, COMPARISON_STYLE, TerminalWriter
from kernelwright.report.terminal.verdict import write_rejected

MAX_NAME_LENGTH = 36


def write(bench: Bench, writer: TerminalWriter) -> None:
    """Write a bench."""
    for verdict in format.rejected_verdicts(bench):
        write_rejected(verdict, writer)
    _variants(bench, writer)
    has_conditions = _comparisons(bench, writer)
    if bench.variants and not has_conditions:
        writer.print_paragraph(format.conditions_text(bench), 0, "dim")
    for note in dict.fromkeys(
        format.sanitize_line(note) for timing in format.variant_timings(bench) for note in timing.notes
    ):
        writer.print_paragraph(note, 0, "dim")
    for note in bench.notes:
        writer.print_paragraph(format.sanitize_line(note), 0, "dim")


def _variants(bench: Bench, writer: TerminalWriter) -> None:
    """A line for each variant: name, time, time over floor; below it why a time is suspicious."""
    names = [writer.shorten(variant.name, MAX_NAME_LENGTH) for variant in bench.variants]
    name_width = max([12, *map(len, names)])
    has_unit = False
    for name, variant in zip(names, bench.variants, strict=True):
        ratio = format.ratio_text(variant.time_us, variant.floor_us)
        tail = "no floor" if ratio == "-" else ratio if has_unit else f"{ratio} floor"
        has_unit = has_unit or ratio != "-"
        writer.print_line(name.ljust(name_width), f"  {time_text(variant.time_us):>9}   ", tail)
        if variant.suspicious:
            writer.print_paragraph(format.sanitize_line(variant.suspicious), 14, first=[("  suspicious  ", BAD)])


def _comparisons(bench: Bench, writer: TerminalWriter) -> bool:
    """A line for each comparison; returns whether the last one includes the conditions."""
    texts = [format.comparison_text(bench, comparison) for comparison in bench.comparisons]
    text_width = max(map(len, texts), default=0)
    conditions = format.conditions_text(bench)
    for i, (comparison, text) in enumerate(zip(bench.comparisons, texts, strict=True)):
        before, after = text.split(comparison.verdict, 1)
        verdict = (comparison.verdict, f"bold {COMPARISON_STYLE[comparison.verdict]}")
        numbers = f"  {format.factor_text(comparison.speedup):>6}  {format.interval_text(comparison)}"
        fits = i == len(texts) - 1 and text_width + len(numbers) + 5 + len(conditions) <= writer.width
        suffix = f"     {conditions}" if fits else ""
        writer.print_line(before, verdict, after + " " * (text_width - len(text)), numbers, (suffix, "dim"))
        if fits:
            return True
    return False
