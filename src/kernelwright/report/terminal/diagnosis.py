"""`kw why`: what it waits on, how far from the floor, where the time goes, what to do next."""

from __future__ import annotations

from kernelwright.core.records import Diagnosis, Recommendation
from kernelwright.core.units import bytes_text, percent_text, time_text
from kernelwright.report import format
from kernelwright.report.terminal.console import REGIME_STYLE, TerminalWriter

MAX_ROWS = 12
MAX_BAR_WIDTH = 40


def write(diagnosis: Diagnosis, paper: TerminalWriter) -> None:
    paper.print_header(format.program_text(diagnosis), format.setup_text(diagnosis))
    paper.print_line()
    write_summary(diagnosis, paper)
    paper.print_line()
    _bars(diagnosis, paper)
    if diagnosis.operators:
        paper.print_line()
        _operators(diagnosis, paper)
    paper.print_line()
    _next(diagnosis, paper)
    _notes(diagnosis, paper)


def write_summary(diagnosis: Diagnosis, paper: TerminalWriter) -> None:
    """The regime in its colour, the sentence behind it, wrapped under itself."""
    regime = (diagnosis.regime, f"bold {REGIME_STYLE[diagnosis.regime]}")
    whole = f"{diagnosis.regime}: {format.diagnosis_summary(diagnosis)}"
    if len(whole) + 2 <= paper.width:
        paper.print_line("  ", regime, whole[len(diagnosis.regime) :])
        return
    paper.print_line("  ", regime)
    paper.print_paragraph(format.diagnosis_summary(diagnosis), 2)


def _bars(diagnosis: Diagnosis, paper: TerminalWriter) -> None:
    bars = format.time_bars(diagnosis)
    longest = max(bar.time_us for bar in bars) or 1.0
    numbers = [time_text(bar.time_us) for bar in bars]
    number_room = max(map(len, numbers))
    fixed = 2 + 12 + 2 + number_room + 3
    captions = [bar.caption for bar in bars]
    if paper.width - fixed - max(map(len, captions)) < 24:
        captions = [bar.short_caption for bar in bars]
    room = max(10, min(MAX_BAR_WIDTH, paper.width - fixed - max(map(len, captions))))
    for bar, number, caption in zip(bars, numbers, captions, strict=True):
        style = REGIME_STYLE[diagnosis.regime] if bar.kind == "now" else "grey58"
        drawn = paper.bar_text(bar.time_us / longest, room).ljust(room)
        paper.print_line("  ", bar.label.ljust(12), (drawn, style), f"  {number:>{number_room}}   ", (caption, "dim"))


def _operators(diagnosis: Diagnosis, paper: TerminalWriter) -> None:
    rows, left = format.operator_rows(diagnosis, MAX_ROWS)
    paper.print_table(
        ("operator", "time", "share", "bytes", "FLOP/byte", "waits on", "of its floor"),
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
    if left:
        paper.print_line("  ", (f"and {left} more; these have the most to gain", "dim"))


def _next(diagnosis: Diagnosis, paper: TerminalWriter) -> None:
    paper.print_line("  ", ("next", "bold"))
    moves = format.recommendations(diagnosis)
    what_room = max([len(format.sanitize_line(move.action)) for move in moves], default=0)
    for number, move in enumerate(moves, 1):
        _recommendation(diagnosis, paper, number, move, min(what_room, paper.width - 34))
    if stop := format.stop_text(diagnosis):
        paper.print_paragraph(stop, 5 if moves else 2, first=[f"  {len(moves) + 1}. "] if moves else ["  "])


def _recommendation(diagnosis: Diagnosis, paper: TerminalWriter, number: int, move: Recommendation, room: int) -> None:
    """One move on one line with its gain; why and how under it, or beside it where they fit."""
    what, gain = (
        format.sanitize_line(move.action),
        format.gain_text(format.current_time_us(diagnosis), move.predicted_us),
    )
    command = f"({format.sanitize_line(move.command)})" if move.command else ""
    if len(what) > room:
        paper.print_paragraph(what, 5, first=[f"  {number}. "])
        paper.print_line("     ", (gain, "bold"))
    else:
        fits = 5 + room + 3 + len(gain) + 3 + len(command) <= paper.width
        beside = f"   {command}" if command and fits else ""
        paper.print_line(f"  {number}. {what.ljust(room)}   ", (gain, "bold"), (beside, "dim"))
        command = "" if beside else command
    for extra in (format.sanitize_line(move.reason), command):
        if extra:
            paper.print_paragraph(extra, 5, "dim")


def _notes(diagnosis: Diagnosis, paper: TerminalWriter) -> None:
    notes = [format.sanitize_line(note) for note in diagnosis.notes]
    if diagnosis.predicted:
        notes.insert(0, f"predicted: nothing was run; {format.ceilings_text(diagnosis.machine)}")
    if diagnosis.coverage < 0.995:
        notes.append(f"FLOPs are known for {percent_text(diagnosis.coverage)} of the bytes moved")
    if notes:
        paper.print_line()
    for note in notes:
        paper.print_paragraph(note, 2, "dim")
