"""`kw why`: what it waits on, how far from the floor, where the time goes, what to do next."""

from __future__ import annotations

from kernelwright.core.records import Diagnosis, Move
from kernelwright.core.units import bytes_text, percent_text, time_text
from kernelwright.report import format
from kernelwright.report.terminal.console import REGIME_STYLE, Paper

MOST_ROWS = 12
WIDEST_BAR = 40


def write(diagnosis: Diagnosis, paper: Paper) -> None:
    paper.head(format.program_text(diagnosis), format.setting_text(diagnosis))
    paper.line()
    write_sentence(diagnosis, paper)
    paper.line()
    _bars(diagnosis, paper)
    if diagnosis.operators:
        paper.line()
        _operators(diagnosis, paper)
    paper.line()
    _next(diagnosis, paper)
    _notes(diagnosis, paper)


def write_sentence(diagnosis: Diagnosis, paper: Paper) -> None:
    """The regime in its colour, the sentence behind it, wrapped under itself."""
    regime = (diagnosis.regime, f"bold {REGIME_STYLE[diagnosis.regime]}")
    whole = f"{diagnosis.regime}: {format.sentence(diagnosis)}"
    if len(whole) + 2 <= paper.width:
        paper.line("  ", regime, whole[len(diagnosis.regime) :])
        return
    paper.line("  ", regime)
    paper.paragraph(format.sentence(diagnosis), 2)


def _bars(diagnosis: Diagnosis, paper: Paper) -> None:
    bars = format.bars(diagnosis)
    longest = max(bar.time_us for bar in bars) or 1.0
    numbers = [time_text(bar.time_us) for bar in bars]
    number_room = max(map(len, numbers))
    fixed = 2 + 12 + 2 + number_room + 3
    captions = [bar.caption for bar in bars]
    if paper.width - fixed - max(map(len, captions)) < 24:
        captions = [bar.brief for bar in bars]
    room = max(10, min(WIDEST_BAR, paper.width - fixed - max(map(len, captions))))
    for bar, number, caption in zip(bars, numbers, captions, strict=True):
        style = REGIME_STYLE[diagnosis.regime] if bar.kind == "now" else "grey58"
        drawn = paper.bar(bar.time_us / longest, room).ljust(room)
        paper.line("  ", bar.label.ljust(12), (drawn, style), f"  {number:>{number_room}}   ", (caption, "dim"))


def _operators(diagnosis: Diagnosis, paper: Paper) -> None:
    rows, left = format.operator_rows(diagnosis, MOST_ROWS)
    paper.table(
        ("operator", "time", "share", "bytes", "FLOP/byte", "waits on", "of its floor"),
        [
            (
                format.operator_name(row),
                time_text(row.time_us),
                percent_text(row.share),
                bytes_text(row.bytes),
                format.intensity_text(row),
                format.waits_on(row),
                format.ratio_text(row.time_us, row.floor_us),
            )
            for row in rows
        ],
    )
    if left:
        paper.line("  ", (f"and {left} more; these have the most to gain", "dim"))


def _next(diagnosis: Diagnosis, paper: Paper) -> None:
    paper.line("  ", ("next", "bold"))
    moves = format.moves(diagnosis)
    what_room = max([len(format.plain(move.what)) for move in moves], default=0)
    for number, move in enumerate(moves, 1):
        _move(diagnosis, paper, number, move, min(what_room, paper.width - 34))
    if stop := format.stop_text(diagnosis):
        paper.paragraph(stop, 5 if moves else 2, first=[f"  {len(moves) + 1}. "] if moves else ["  "])


def _move(diagnosis: Diagnosis, paper: Paper, number: int, move: Move, room: int) -> None:
    """One move on one line with its gain; why and how under it, or beside it where they fit."""
    what, gain = format.plain(move.what), format.gain_text(format.now_us(diagnosis), move.predicted_us)
    command = f"({format.plain(move.command)})" if move.command else ""
    if len(what) > room:
        paper.paragraph(what, 5, first=[f"  {number}. "])
        paper.line("     ", (gain, "bold"))
    else:
        fits = 5 + room + 3 + len(gain) + 3 + len(command) <= paper.width
        beside = f"   {command}" if command and fits else ""
        paper.line(f"  {number}. {what.ljust(room)}   ", (gain, "bold"), (beside, "dim"))
        command = "" if beside else command
    for extra in (format.plain(move.why), command):
        if extra:
            paper.paragraph(extra, 5, "dim")


def _notes(diagnosis: Diagnosis, paper: Paper) -> None:
    notes = [format.plain(note) for note in diagnosis.notes]
    if diagnosis.predicted:
        notes.insert(0, f"predicted: nothing was run; {format.ceilings_text(diagnosis.machine)}")
    if diagnosis.coverage < 0.995:
        notes.append(f"FLOPs are known for {percent_text(diagnosis.coverage)} of the bytes moved")
    if notes:
        paper.line()
    for note in notes:
        paper.paragraph(note, 2, "dim")
