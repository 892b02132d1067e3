"""`kw sass`: what a kernel takes of the machine, its hot loop in plain words, and what that says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from typing import get_args

from kernelwright.core.machine_code import (
    CodeDifference,
    Instruction,
    InstructionGroup,
    Loop,
    MachineCode,
    Occupancy,
    Spills,
)
from kernelwright.core.units import number_text, percent_text
from kernelwright.report.format import sanitize_line
from kernelwright.report.terminal.console import GOOD, TerminalWriter

MAX_LINES = 40
MAX_KINDS = 16
MIN_RUN_LENGTH = 3
"""So many instructions of one kind in a row become one line."""


def write(found: MachineCode, paper: TerminalWriter) -> None:
    kernel = paper.shorten(found.kernel, paper.width)
    paper.print_header(kernel, f"{sanitize_line(found.arch)}, {number_text(found.num_instructions, 'instruction')}")
    paper.print_paragraph(resources_text(found), 2)
    paper.print_line()
    _mix(found, paper)
    paper.print_line()
    _body(found, paper)
    paper.print_line()
    paper.print_paragraph(sanitize_line(found.summary), 11, first=["  ", ("reading", "bold"), "  "])
    for note in found.notes:
        paper.print_paragraph(sanitize_line(note), 2, "dim")


def write_difference(found: CodeDifference, paper: TerminalWriter) -> None:
    """Only what changed, before and after."""
    before, after = (
        f"{sanitize_line(code.kernel)} ({sanitize_line(code.arch)})" for code in (found.before, found.after)
    )
    paper.print_paragraph(f"{before}  ->  {after}", 0, "bold")
    if not found.changes:
        return paper.print_line("  no figure of the two differs")
    what_room = max(len(change.metric) for change in found.changes)
    left = max(len("before"), *(len(change.before) for change in found.changes))
    right = max(len("after"), *(len(change.after) for change in found.changes))
    head = f"{''.ljust(what_room)}   {'before'.rjust(left)}   {'after'.rjust(right)}"
    paper.print_line("  ", (head, "dim"))
    for change in found.changes:
        mark = {True: ("   better", GOOD), False: ("   worse", "bold red3"), None: ""}[change.is_better]
        row = (
            f"{sanitize_line(change.metric).ljust(what_room)}   {change.before.rjust(left)}   "
            f"{change.after.rjust(right)}"
        )
        paper.print_line("  ", row, mark)
    return None


def resources_text(found: MachineCode) -> str:
    """Registers, shared memory, spills and occupancy on one line."""
    parts = [f"registers {found.registers}", f"shared {_bytes(found.shared_bytes)}", _spills_text(found.spills)]
    if found.stack_bytes:
        parts.append(f"stack {_bytes(found.stack_bytes)}")
    if found.occupancy:
        parts.append(_occupancy_text(found.occupancy))
    return "   ".join(parts)


def _spills_text(spills: Spills) -> str:
    if not spills.instructions:
        return "no spills"
    return f"spills {_bytes(spills.stored_bytes)} stored, {_bytes(spills.loaded_bytes)} loaded"


def _occupancy_text(room: Occupancy) -> str:
    share = percent_text(room.fraction)
    if room.blocks_per_sm is None:
        return f"occupancy up to {share} (block size not known)"
    return (
        f"occupancy {share} ({room.limiter}: {number_text(room.blocks_per_sm, 'block')} of "
        f"{room.threads_per_block} threads)"
    )


def _bytes(count: int) -> str:
    """As the machine counts them: shared memory comes in powers of two."""
    if count >= 1024 and count % 1024 == 0:
        return f"{count // 1024} KiB"
    return f"{count:,} B" if count else "0"


def _mix(found: MachineCode, paper: TerminalWriter) -> None:
    """How many of each group, with the widths of what moves memory."""
    hot = found.hot_loop
    total = max(found.num_instructions, 1)
    rows = [
        (group, f"{count:,}", percent_text(count / total), _inside(hot, group), _widths(found, group))
        for group, count in found.instruction_mix.items()
    ]
    paper.print_table(("instructions", "count", "share", "hot loop", "widths"), rows)


def _inside(hot: Loop | None, group: str) -> str:
    return f"{hot.instruction_mix.get(group, 0):,}" if hot else "-"


def _widths(found: MachineCode, group: str) -> str:
    if group == "tensor":
        return ", ".join(
            f"{count:,} x {sanitize_line(name)}" for name, count in list(found.tensor_instructions.items())[:2]
        )
    table = sorted(found.access_widths.get(group, {}).items(), reverse=True)
    return ", ".join(f"{count:,} x {size} B" for size, count in table) or "-"


def _body(found: MachineCode, paper: TerminalWriter) -> None:
    hot = found.hot_loop
    if hot is None:
        paper.print_line("  ", ("no loop", "bold"), f"  {number_text(found.num_instructions, 'instruction')}")
        return _listing(found.instructions, paper)
    others = sum(_does_work(loop) for loop in found.loops) - 1
    beside = f", one of {others + 1} loops" if others else ""
    nested = f", {hot.depth} deep" if hot.depth > 1 else ""
    where = f"{hot.first_address:#06x} to {hot.last_address:#06x}"
    paper.print_line(
        "  ", ("hot loop", "bold"), f"  {number_text(hot.num_instructions, 'instruction')}, {where}{nested}{beside}"
    )
    return _listing(hot.instructions, paper)


def _does_work(loop: Loop) -> bool:
    """Not one that only waits for a barrier."""
    return any(group not in ("barrier", "branch", "other", "integer") for group in loop.instruction_mix)


def _listing(instructions: Sequence[Instruction], paper: TerminalWriter) -> None:
    """Line by line where that is short enough, else how many of each kind."""
    runs = _runs(instructions)
    if len(runs) > MAX_LINES:
        return _kinds(instructions, paper)
    opcodes = [_opcode(run) for run in runs]
    room = min(max(map(len, opcodes), default=0), 34)
    operand_room = min(max((len(_operands(run)) for run in runs), default=0), 32)
    at = ("", None)
    for run, opcode in zip(runs, opcodes, strict=True):
        first = run[0]
        if first.line is not None and (first.file, first.line) != at:
            at = (first.file, first.line)
            paper.print_line("    ", (f"{paper.shorten(first.file, paper.width - 16)}:{first.line}", "dim"))
        operands = _truncate(_operands(run), operand_room).ljust(operand_room)
        head = f"{first.address:#06x}  {_truncate(opcode, room).ljust(room)}  {operands}"
        words = _truncate(sanitize_line(first.description), paper.width - 6 - len(head))
        paper.print_line("    ", head, "  ", (words, "bold red3" if first.is_spill else "dim"))
    return None


def _kinds(instructions: Sequence[Instruction], paper: TerminalWriter) -> None:
    """Arithmetic and memory first, whatever the number of the rest."""
    counts = Counter((one.group, one.opcode, one.description) for one in instructions)
    rank = {group: at for at, group in enumerate(get_args(InstructionGroup))}
    ranked = sorted(counts.items(), key=lambda kind: (rank[kind[0][0]], -kind[1]))
    kinds = [((opcode, words), count) for (_, opcode, words), count in ranked]
    room = min(max(len(opcode) for (opcode, _), _ in kinds[:MAX_KINDS]), 34)
    number_room = max(len(f"{count:,}") for _, count in kinds)
    for (opcode, words), count in kinds[:MAX_KINDS]:
        head = f"{count:>{number_room},}  {_truncate(sanitize_line(opcode), room).ljust(room)}"
        paper.print_line("    ", head, "  ", (_truncate(sanitize_line(words), paper.width - 6 - len(head)), "dim"))
    if left := sum(count for _, count in kinds[MAX_KINDS:]):
        paper.print_line("    ", (f"and {left:,} more; --json lists every one", "dim"))


def _runs(instructions: Sequence[Instruction]) -> list[list[Instruction]]:
    """Neighbours of one kind together, where there are enough of them."""
    found: list[list[Instruction]] = []
    for _, group in groupby(
        instructions, key=lambda one: (one.opcode, one.predicate, one.description, one.file, one.line)
    ):
        run = list(group)
        found += [run] if len(run) >= MIN_RUN_LENGTH else [[one] for one in run]
    return found


def _opcode(run: Sequence[Instruction]) -> str:
    first = run[0]
    name = f"{first.predicate} {first.opcode}" if first.predicate else first.opcode
    return sanitize_line(f"{len(run)} x {name}" if len(run) > 1 else name)


def _operands(run: Sequence[Instruction]) -> str:
    return sanitize_line(run[0].operands) if len(run) == 1 else ""


def _truncate(text: str, room: int) -> str:
    return text if len(text) <= room else text[: max(room - 1, 0)] + "…" * (room > 0)
