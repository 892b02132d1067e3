"""What the machine code says about the kernel, as one paragraph: only what can be read off it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import NamedTuple

from kernelwright.core.machine_code import Occupancy, Spills
from kernelwright.core.units import number_text, percent_text
from kernelwright.toolchain.sass.disassembly import SassInstruction
from kernelwright.toolchain.sass.occupancy import LIMITS, WARP_SIZE
from kernelwright.toolchain.sass.opcode_classes import classify, count_access_widths
from kernelwright.toolchain.sass.registers import access_bytes, registers_read, registers_written, source_slots

_FMA_BOUND_SHARE = 0.3
"""The share of a loop from which its multiply-adds are what it is for."""
_WIDEST_ACCESS_BYTES = 16
_TWO_BANK_ARCHS = range(70, 100)
"""Compute capabilities whose registers lie in two banks."""


class LoadsInFlight(NamedTuple):
    """The most global loads to registers of one thread that have begun before the first of them is needed."""

    loads: int
    bytes: int


def summarize_code(
    body: Sequence[SassInstruction],
    *,
    loop: bool,
    compute: int,
    spills: Spills,
    spilling: frozenset[int],
    stack_bytes: int,
    occupancy: Occupancy | None,
) -> str:
    """One paragraph about a kernel.

    Args:
        body: the hot loop, or the whole kernel where it has none.
        spilling: addresses of the instructions that spill.
    """
    access = _access_texts(body)
    if loop and access:
        access[0] = f"In the hot loop {access[0][:1].lower()}{access[0][1:]}"
    found = [
        "" if loop else "There is no loop.",
        *access,
        _local_text(body, spills, spilling, stack_bytes, loop),
        _flight_text(body, occupancy, loop),
        *(_issue_texts(body, compute) if loop else ()),
        _conflict_text(body, compute),
        _occupancy_text(occupancy),
    ]
    return " ".join(sentence for sentence in found if sentence)


def loads_in_flight(body: Sequence[SassInstruction], *, loop: bool) -> LoadsInFlight:
    """Counted in the order of the code, a loop twice over, so that a load for the next turn counts; what a thread
    loads behind a predicate counts as loaded."""
    waiting: list[tuple[set[int], int]] = []
    most = LoadsInFlight(0, 0)
    for line in chain(body, body if loop else ()):
        touched = registers_read(line) | registers_written(line)
        waiting = [load for load in waiting if not load[0] & touched]
        if classify(line) == "global load" and line.base_opcode in ("LDG", "LD"):
            waiting.append((registers_written(line), access_bytes(line)))
            most = max(most, LoadsInFlight(len(waiting), sum(size for _, size in waiting)))
    return most


def bank_conflicts(body: Sequence[SassInstruction]) -> int:
    """FFMA that must read three different registers of one bank; there are two, of even and of odd numbers.

    A register that the instruction before kept in the same place (.reuse) is not read again.
    Source: Jia et al. 2018, arXiv:1804.06826 (Volta); the same banks are taken for granted up to Hopper.
    """
    kept: dict[int, int] = {}
    count = 0
    for line in body:
        slots = source_slots(line)
        if line.base_opcode == "FFMA":
            needed = {register for slot, register, _ in slots if kept.get(slot) != register}
            banks = [sum(register % 2 == bank for register in needed) for bank in (0, 1)]
            count += max(banks) >= 3
        kept = {slot: register for slot, register, keeps in slots if keeps}
    return count


def _access_texts(body: Sequence[SassInstruction]) -> list[str]:
    copies = [line for line in body if line.base_opcode == "LDGSTS" and not line.is_never_executed]
    rest = count_access_widths(line for line in body if line.base_opcode != "LDGSTS")
    found = [_width_text(rest[kind], kind) for kind in ("global load", "global store") if kind in rest]
    if copies:
        number = f"{len(copies)} asynchronous copies" if len(copies) > 1 else "One asynchronous copy"
        size = max(map(access_bytes, copies))
        found.append(
            f"{number} of {size} bytes a thread fill{'s' * (len(copies) == 1)} shared memory past the registers."
        )
    if any(classify(line) == "global load" and line.base_opcode in ("UTMALDG", "UBLKCP") for line in body):
        found.append("The copy engine (TMA) fills shared memory.")
    return found


def _width_text(widths: Mapping[int, int], noun: str) -> str:
    """`All 4 global loads are 16 bytes wide`, or how many are not."""
    total, widest = sum(widths.values()), max(widths)
    if len(widths) == 1:
        text = {1: f"The one {noun} is", 2: f"Both {noun}s are"}.get(total, f"All {total} {noun}s are")
        return f"{text} {widest} bytes wide{_scalar(widest)}."
    shown = ", ".join(f"{count} of {size}" for size, count in sorted(widths.items(), reverse=True))
    return f"The {total} {noun}s are of mixed width: {shown} bytes{_scalar(widest)}."


def _scalar(widest: int) -> str:
    return "" if widest >= _WIDEST_ACCESS_BYTES else f"; 16 would take {_WIDEST_ACCESS_BYTES // widest} times fewer"


def _local_text(
    body: Sequence[SassInstruction], spills: Spills, spilling: frozenset[int], stack_bytes: int, loop: bool
) -> str:
    if spills.instructions:
        inside = sum(line.address in spilling for line in body) if loop else 0
        there = f", {inside} of these instructions in the hot loop" if inside else ", none of it in the hot loop"
        sure = "" if spills.is_exact else " (judged by the stack: the compiler left no record)"
        return (
            f"It spills: {spills.stored_bytes:,} bytes stored and {spills.loaded_bytes:,} loaded for each thread"
            f"{there if loop else ''}{sure}."
        )
    local = sum(line.base_opcode in ("LDL", "STL") for line in body)
    if stack_bytes:
        here = f"; {number_text(local, 'access')} here" if local else ""
        why = "which an array indexed at run time or a call takes"
        return f"No spills, but {stack_bytes:,} bytes of stack, {why}{here}."
    return "No spills."


def _flight_text(body: Sequence[SassInstruction], occupancy: Occupancy | None, loop: bool) -> str:
    flight = loads_in_flight(body, loop=loop)
    if not flight.loads:
        return ""
    begun = "1 global load is" if flight.loads == 1 else f"{flight.loads} global loads are"
    text = f"{begun} in flight when the first is needed"
    if occupancy and occupancy.blocks_per_sm:
        whole = flight.bytes * WARP_SIZE * occupancy.warps_per_sm
        text += f", so up to {_format_bytes(whole)} on a multiprocessor of {occupancy.warps_per_sm} warps"
    return text + "."


def _issue_texts(body: Sequence[SassInstruction], compute: int) -> list[str]:
    """A scheduler issues one instruction a cycle: whatever is no multiply-add takes the place of one."""
    tensor = sum(classify(line) == "tensor" for line in body)
    if tensor:
        each = len(body) / tensor
        return [f"{_capitalize(number_text(tensor, 'tensor instruction'))} among {len(body)}: one in {each:.0f}."]
    fma = sum(line.base_opcode == "FFMA" for line in body)
    share = fma / len(body)
    if share < _FMA_BOUND_SHARE or any(line.base_opcode == "FFMA2" for line in body) or compute not in LIMITS:
        return []
    best = min(1.0, share * WARP_SIZE / LIMITS[compute].fma_lanes)
    limit = f"so at best {percent_text(best)} of the FMA peak" if best < 1 else "so issuing does not limit it"
    limit += " where all of them run" if best < 1 and sum(line.base_opcode == "BRA" for line in body) > 1 else ""
    found = [f"FFMA is {percent_text(share)} of the loop's instructions, {limit}."]
    shared = [access_bytes(line) for line in body if line.base_opcode == "LDS" and not line.is_never_executed]
    if shared:
        found.append(
            f"{fma / len(shared):.1f} FFMA to each load from shared memory, {sum(shared) / fma:.2f} bytes to each FFMA."
        )
    return found


def _conflict_text(body: Sequence[SassInstruction], compute: int) -> str:
    fma = sum(line.base_opcode == "FFMA" for line in body)
    if compute not in _TWO_BANK_ARCHS or fma < len(body) * _FMA_BOUND_SHARE:
        return ""
    count = bank_conflicts(body)
    if not count:
        return "No FFMA reads three registers of one bank."
    return f"{count} of {fma} FFMA read three registers of one bank, which can cost a cycle each."


def _occupancy_text(occupancy: Occupancy | None) -> str:
    if occupancy is None:
        return ""
    share = percent_text(occupancy.fraction)
    if occupancy.blocks_per_sm is None:
        return f"Registers allow {share} of the warps; the block size is not known."
    if occupancy.blocks_per_sm == 0:
        return f"Not one block of {occupancy.threads_per_block} threads fits: {occupancy.limiter}."
    if occupancy.fraction == 1:
        return "Occupancy is full."
    blocks = number_text(occupancy.blocks_per_sm, "block")
    hold = "hold" if occupancy.limiter.endswith("s") else "holds"
    return (
        f"{_capitalize(occupancy.limiter)} {hold} occupancy at {share}: {blocks} of "
        f"{occupancy.threads_per_block} threads."
    )


def _format_bytes(count: int) -> str:
    return f"{count / 1024:.0f} KiB" if count >= 1024 else f"{count} bytes"


def _capitalize(text: str) -> str:
    return text[:1].upper() + text[1:]
