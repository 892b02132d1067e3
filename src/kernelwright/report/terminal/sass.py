"""`kw sass`: resources of a kernel, its instruction mix, its hot loop and a summary."""

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
"""Minimum number of consecutive equal instructions that are shown as one line."""


def write(code: MachineCode, writer: TerminalWriter) -> None:
    """Write the machine code of a kernel."""
    kernel = writer.shorten(code.kernel, writer.width)
    writer.print_header(kernel, f"{sanitize_line(code.arch)}, {number_text(code.num_instructions, 'instruction')}")
    writer.print_paragraph(resources_text(code), 2)
    writer.print_line()
    _mix(code, writer)
    writer.print_line()
    _body(code, writer)
    writer.print_line()
    writer.print_paragraph(sanitize_line(code.summary), 11, first=["  ", ("summary", "bold"), "  "])
    for note in code.notes:
        writer.print_paragraph(sanitize_line(note), 2, "dim")


def write_difference(difference: CodeDifference, writer: TerminalWriter) -> None:
    """Write the metrics in which two kernels differ."""
    before, after = (
        f"{sanitize_line(code.kernel)} ({sanitize_line(code.arch)})" for code in (difference.before, difference.after)
    )
    writer.print_paragraph(f"{before}  ->  {after}", 0, "bold")
    changes = difference.changes
    if not changes:
        return writer.print_line("  no differences")
    metric_width = max(len(change.metric) for change in changes)
    before_width = max(len("before"), *(len(change.before) for change in changes))
    after_width = max(len("after"), *(len(change.after) for change in changes))
    head = f"{''.ljust(metric_width)}   {'before'.rjust(before_width)}   {'after'.rjust(after_width)}"
    writer.print_line("  ", (head, "dim"))
    for change in changes:
        mark = {True: ("   better", GOOD), False: ("   worse", "bold red3"), None: ""}[change.is_better]
        row = (
            f"{sanitize_line(change.metric).ljust(metric_width)}   {change.before.rjust(before_width)}   "
            f"{change.after.rjust(after_width)}"
        )
        writer.print_line("  ", row, mark)
    return None


def resources_text(code: MachineCode) -> str:
    """Format registers, shared memory, spills and occupancy on one line."""
    parts = [f"registers {code.registers}", f"shared {_bytes(code.shared_bytes)}", _spills_text(code.spills)]
    if code.stack_bytes:
        parts.append(f"stack {_bytes(code.stack_bytes)}")
    if code.occupancy:
        parts.append(_occupancy_text(code.occupancy))
    return "   ".join(parts)


def _spills_text(spills: Spills) -> str:
    if not spills.instructions:
        return "no spills"
    return f"spills {_bytes(spills.stored_bytes)} stored, {_bytes(spills.loaded_bytes)} loaded"


def _occupancy_text(occupancy: Occupancy) -> str:
    percent = percent_text(occupancy.fraction)
    if occupancy.blocks_per_sm is None:
        return f"occupancy up to {percent} (block size unknown)"
    blocks = number_text(occupancy.blocks_per_sm, "block")
    return f"occupancy {percent} ({occupancy.limiter}: {blocks} of {occupancy.threads_per_block} threads)"


def _bytes(count: int) -> str:
    """Format bytes, in KiB if possible, as shared memory has power-of-two sizes."""
    if count >= 1024 and count % 1024 == 0:
        return f"{count // 1024} KiB"
    return f"{count:,} B" if count else "0"


def _mix(code: MachineCode, writer: TerminalWriter) -> None:
    """The instructions by group, with the widths of memory accesses."""
    hot = code.hot_loop
    total = max(code.num_instructions, 1)
    rows = [
        (group, f"{count:,}", percent_text(count / total), _inside(hot, group), _widths(code, group))
        for group, count in code.instruction_mix.items()
    ]
    writer.print_table(("instructions", "count", "share", "hot loop", "widths"), rows)


def _inside(hot: Loop | None, group: str) -> str:
    return f"{hot.instruction_mix.get(group, 0):,}" if hot else "-"


def _widths(code: MachineCode, group: str) -> str:
    if group == "tensor":
        return ", ".join(
            f"{count:,} x {sanitize_line(name)}" for name, count in list(code.tensor_instructions.items())[:2]
        )
    table = sorted(code.access_widths.get(group, {}).items(), reverse=True)
    return ", ".join(f"{count:,} x {size} B" for size, count in table) or "-"


def _body(code: MachineCode, writer: TerminalWriter) -> None:
    hot = code.hot_loop
    if hot is None:
        writer.print_line("  ", ("no loop", "bold"), f"  {number_text(code.num_instructions, 'instruction')}")
        return _listing(code.instructions, writer)
    others = sum(_does_work(loop) for loop in code.loops) - 1
    count = number_text(hot.num_instructions, "instruction")
    depth = f", depth {hot.depth}" if hot.depth > 1 else ""
    one_of = f", one of {others + 1} loops" if others else ""
    addresses = f"{hot.first_address:#06x} to {hot.last_address:#06x}"
    writer.print_line("  ", ("hot loop", "bold"), f"  {count}, {addresses}{depth}{one_of}")
    return _listing(hot.instructions, writer)


def _does_work(loop: Loop) -> bool:
    """Whether the loop does more than wait for a barrier."""
    return any(group not in ("barrier", "branch", "other", "integer") for group in loop.instruction_mix)


def _listing(instructions: Sequence[Instruction], writer: TerminalWriter) -> None:
    """List the instructions, or count them by kind if there are more than `MAX_LINES` lines."""
    runs = _runs(instructions)
    if len(runs) > MAX_LINES:
        return _kinds(instructions, writer)
    opcodes = [_opcode(run) for run in runs]
    opcode_width = min(max(map(len, opcodes), default=0), 34)
    operand_width = min(max((len(_operands(run)) for run in runs), default=0), 32)
    source_line = ("", None)
    for run, opcode in zip(runs, opcodes, strict=True):
        first = run[0]
        if first.line is not None and (first.file, first.line) != source_line:
            source_line = (first.file, first.line)
            writer.print_line("    ", (f"{writer.shorten(first.file, writer.width - 16)}:{first.line}", "dim"))
        operands = _truncate(_operands(run), operand_width).ljust(operand_width)
        head = f"{first.address:#06x}  {_truncate(opcode, opcode_width).ljust(opcode_width)}  {operands}"
        description = _truncate(sanitize_line(first.description), writer.width - 6 - len(head))
        writer.print_line("    ", head, "  ", (description, "bold red3" if first.is_spill else "dim"))
    return None


def _kinds(instructions: Sequence[Instruction], writer: TerminalWriter) -> None:
    """Count the instructions by kind, sorted by group: arithmetic and memory first."""
    counts = Counter((one.group, one.opcode, one.description) for one in instructions)
    rank = {group: i for i, group in enumerate(get_args(InstructionGroup))}
    ranked = sorted(counts.items(), key=lambda kind: (rank[kind[0][0]], -kind[1]))
    kinds = [((opcode, description), count) for (_, opcode, description), count in ranked]
    opcode_width = min(max(len(opcode) for (opcode, _), _ in kinds[:MAX_KINDS]), 34)
    count_width = max(len(f"{count:,}") for _, count in kinds)
    for (opcode, description), count in kinds[:MAX_KINDS]:
        head = f"{count:>{count_width},}  {_truncate(sanitize_line(opcode), opcode_width).ljust(opcode_width)}"
        description = _truncate(sanitize_line(description), writer.width - 6 - len(head))
        writer.print_line("    ", head, "  ", (description, "dim"))
    if remaining := sum(count for _, count in kinds[MAX_KINDS:]):
        writer.print_line("    ", (f"and {remaining:,} more; see --json for all", "dim"))


def _runs(instructions: Sequence[Instruction]) -> list[list[Instruction]]:
    """Group consecutive instructions of one kind, if there are at least `MIN_RUN_LENGTH`."""
    runs: list[list[Instruction]] = []
    for _, group in groupby(
        instructions, key=lambda one: (one.opcode, one.predicate, one.description, one.file, one.line)
    ):
        run = list(group)
        runs += [run] if len(run) >= MIN_RUN_LENGTH else [[one] for one in run]
    return runs


def _opcode(run: Sequence[Instruction]) -> str:
    first = run[0]
    name = f"{first.predicate} {first.opcode}" if first.predicate else first.opcode
    return sanitize_line(f"{len(run)} x {name}" if len(run) > 1 else name)


def _operands(run: Sequence[Instruction]) -> str:
    return sanitize_line(run[0].operands) if len(run) == 1 else ""


def _truncate(text: str, max_width: int) -> str:
    return text if len(text) <= max_width else text[: max(max_width - 1, 0)] + "…" * (max_width > 0)
