"""`kw why`: bottleneck, distance from the floor, operators, recommendations."""

from __future__ import annotations

from kernelwright.core.diagnosis import Diagnosis, Recommendation
from kernelwright.core.units import bytes_text, percent_text, time_text
from kernelwright.report import format
from kernelwright.report.terminal.console import REGIME_STYLE, TerminalWriter

MAX_ROWS = 12
MAX_BAR_WIDTH = 40


def write(diagnosis: Diagnosis, writer: TerminalWriter) -> None:
    """Write a diagnosis."""
    writer.print_header(format.program_text(diagnosis), format.setup_text(diagnosis))
    writer.print_line()
    write_summary(diagnosis, writer)
    writer.print_line()
    _bars(diagnosis, writer)
    if diagnosis.operators:
        writer.print_line()
        _operators(diagnosis, writer)
    writer.print_line()
    _next(diagnosis, writer)
    _notes(diagnosis, writer)


def write_summary(diagnosis: Diagnosis, writer: TerminalWriter) -> None:
    """Write the regime in its colour, followed by the summary."""
    regime = (diagnosis.regime, f"bold {REGIME_STYLE[diagnosis.regime]}")
    line = f"{diagnosis.regime}: {format.diagnosis_summary(diagnosis)}"
    if len(line) + 2 <= writer.width:
        writer.print_line("  ", regime, line[len(diagnosis.regime) :])
        return
    writer.print_line("  ", regime)
    writer.print_paragraph(format.diagnosis_summary(diagnosis), 2)


def _bars(diagnosis: Diagnosis, writer: TerminalWriter) -> None:
    bars = format.time_bars(diagnosis)
    longest = max(bar.time_us for bar in bars) or 1.0
    numbers = [time_text(bar.time_us) for bar in bars]
    number_width = max(map(len, numbers))
    fixed_width = 2 + 12 + 2 + number_width + 3
    captions = [bar.caption for bar in bars]
    if writer.width - fixed_width - max(map(len, captions)) < 24:
        captions = [bar.short_caption for bar in bars]
    bar_width = max(10, min(MAX_BAR_WIDTH, writer.width - fixed_width - max(map(len, captions))))
    for bar, number, caption in zip(bars, numbers, captions, strict=True):
        style = REGIME_STYLE[diagnosis.regime] if bar.kind == "now" else "grey58"
        drawn = writer.bar_text(bar.time_us / longest, bar_width).ljust(bar_width)
        writer.print_line("  ", bar.label.ljust(12), (drawn, style), f"  {number:>{number_width}}   ", (caption, "dim"))


def _operators(diagnosis: Diagnosis, writer: TerminalWriter) -> None:
    rows, num_hidden = format.operator_rows(diagnosis, MAX_ROWS)
    writer.print_table(
        ("operator", "time", "share", "bytes", "FLOP/byte", "bound by", "x floor"),
        [
            (
                format.operator_name(row),
                time_text(row.time_us),
                percent_text(row.share),
                bytes_text(row.bytes),
                format.intensity_text(row),
                format.regime_text(row),
                format.ratio_text(row.time_us, row.floor_us),
            )
            for row in rows
        ],
    )
    if num_hidden:
        writer.print_line("  ", (f"and {num_hidden} more with smaller possible gains", "dim"))


def _next(diagnosis: Diagnosis, writer: TerminalWriter) -> None:
    writer.print_line("  ", ("next", "bold"))
    recommendations = format.recommendations(diagnosis)
    longest = max([len(format.sanitize_line(one.action)) for one in recommendations], default=0)
    for number, one in enumerate(recommendations, 1):
        _recommendation(diagnosis, writer, number, one, min(longest, writer.width - 34))
    if stop := format.stop_text(diagnosis):
        first = [f"  {len(recommendations) + 1}. "] if recommendations else ["  "]
        writer.print_paragraph(stop, 5 if recommendations else 2, first=first)


def _recommendation(
    diagnosis: Diagnosis, writer: TerminalWriter, number: int, recommendation: Recommendation, action_width: int
) -> None:
    """A line with action and gain; below it the reason, and the command unless it fits on the line."""
    action = format.sanitize_line(recommendation.action)
    gain = format.gain_text(format.current_time_us(diagnosis), recommendation.predicted_us)
    command = f"({format.sanitize_line(recommendation.command)})" if recommendation.command else ""
    if len(action) > action_width:
        writer.print_paragraph(action, 5, first=[f"  {number}. "])
        writer.print_line("     ", (gain, "bold"))
    else:
        fits = 5 + action_width + 3 + len(gain) + 3 + len(command) <= writer.width
        suffix = f"   {command}" if command and fits else ""
        writer.print_line(f"  {number}. {action.ljust(action_width)}   ", (gain, "bold"), (suffix, "dim"))
        command = "" if suffix else command
    for detail in (format.sanitize_line(recommendation.reason), command):
        if detail:
            writer.print_paragraph(detail, 5, "dim")


def _notes(diagnosis: Diagnosis, writer: TerminalWriter) -> None:
    notes = [format.sanitize_line(note) for note in diagnosis.notes]
    if diagnosis.predicted:
        notes.insert(0, f"predicted: nothing was run; {format.ceilings_text(diagnosis.machine)}")
    if diagnosis.coverage < 0.995:
        notes.append(f"FLOPs are known for {percent_text(diagnosis.coverage)} of the bytes moved")
    if notes:
        writer.print_line()
    for note in notes:
        writer.print_paragraph(note, 2, "dim")
