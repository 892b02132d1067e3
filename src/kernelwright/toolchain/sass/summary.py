"""Summary of a kernel's machine code as one paragraph, limited to what the code itself shows."""

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
"""Share of FFMA in a loop from which on it counts as an FMA loop."""
_WIDEST_ACCESS_BYTES = 16
_TWO_BANK_ARCHS = range(70, 100)
"""Compute capabilities with two register banks."""


class LoadsInFlight(NamedTuple):
    """Maximum number of a thread's global loads, and their bytes, that are issued before the first result is used."""

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
    """Summarize a kernel in one paragraph.

    Args:
        body: the hot loop, or the whole kernel if it has none.
        loop: whether `body` is a loop.
        spilling: addresses of the instructions that spill.
    """
    access = _access_texts(body)
    if loop and access:
        access[0] = f"In the hot loop {access[0][:1].lower()}{access[0][1:]}"
    sentences = [
        "" if loop else "There is no loop.",
        *access,
        _local_text(body, spills, spilling, stack_bytes, loop),
        _flight_text(body, occupancy, loop),
        *(_issue_texts(body, compute) if loop else ()),
        _conflict_text(body, compute),
        _occupancy_text(occupancy),
    ]
    return " ".join(sentence for sentence in sentences if sentence)


def loads_in_flight(body: Sequence[SassInstruction], *, loop: bool) -> LoadsInFlight:
    """Count global loads in flight in code order; a loop is walked twice, to include prefetches of the next iteration.

    Predicated loads count as executed.
    """
    pending: list[tuple[set[int], int]] = []
    maximum = LoadsInFlight(0, 0)
    for line in chain(body, body if loop else ()):
        touched = registers_read(line) | registers_written(line)
        pending = [load for load in pending if not load[0] & touched]
        if classify(line) == "global load" and line.base_opcode in ("LDG", "LD"):
            pending.append((registers_written(line), access_bytes(line)))
            maximum = max(maximum, LoadsInFlight(len(pending), sum(size for _, size in pending)))
    return maximum


def bank_conflicts(body: Sequence[SassInstruction]) -> int:
    """Count FFMA that read three different registers of one bank; the two banks hold even and odd registers.

    A register in the reuse cache (`.reuse` in the same slot of the previous instruction) is not read again.
    Source: Jia et al. 2018, arXiv:1804.06826 (Volta); assumed to hold up to Hopper.
    """
    reuse_cache: dict[int, int] = {}
    count = 0
    for line in body:
        slots = source_slots(line)
        if line.base_opcode == "FFMA":
            read = {register for slot, register, _ in slots if reuse_cache.get(slot) != register}
            banks = [sum(register % 2 == bank for register in read) for bank in (0, 1)]
            count += max(banks) >= 3
        reuse_cache = {slot: register for slot, register, is_reused in slots if is_reused}
    return count


def _access_texts(body: Sequence[SassInstruction]) -> list[str]:
    copies = [line for line in body if line.base_opcode == "LDGSTS" and not line.is_never_executed]
    widths = count_access_widths(line for line in body if line.base_opcode != "LDGSTS")
    texts = [_width_text(widths[kind], kind) for kind in ("global load", "global store") if kind in widths]
    if copies:
        number = f"{len(copies)} asynchronous copies" if len(copies) > 1 else "One asynchronous copy"
        size = max(map(access_bytes, copies))
        texts.append(
            f"{number} of {size} bytes per thread load{'s' * (len(copies) == 1)} shared memory without registers."
        )
    if any(classify(line) == "global load" and line.base_opcode in ("UTMALDG", "UBLKCP") for line in body):
        texts.append("The TMA fills shared memory.")
    return texts


def _width_text(widths: Mapping[int, int], noun: str) -> str:
    """`All 4 global loads are 16 bytes wide`, or the number of each width."""
    total, widest = sum(widths.values()), max(widths)
    if len(widths) == 1:
        text = {1: f"The one {noun} is", 2: f"Both {noun}s are"}.get(total, f"All {total} {noun}s are")
        return f"{text} {widest} bytes wide{_scalar(widest)}."
    shown = ", ".join(f"{count} of {size}" for size, count in sorted(widths.items(), reverse=True))
    return f"The {total} {noun}s are of mixed width: {shown} bytes{_scalar(widest)}."


def _scalar(widest: int) -> str:
    if widest >= _WIDEST_ACCESS_BYTES:
        return ""
    return f"; 16-byte accesses would need {_WIDEST_ACCESS_BYTES // widest} times fewer instructions"


def _local_text(
    body: Sequence[SassInstruction], spills: Spills, spilling: frozenset[int], stack_bytes: int, loop: bool
) -> str:
    if spills.instructions:
        inside = sum(line.address in spilling for line in body) if loop else 0
        where = f", {inside} of these instructions in the hot loop" if inside else ", none of it in the hot loop"
        certainty = "" if spills.is_exact else " (estimated from stack accesses: the compiler left no record)"
        return (
            f"It spills {spills.stored_bytes:,} bytes and reloads {spills.loaded_bytes:,} per thread"
            f"{where if loop else ''}{certainty}."
        )
    local = sum(line.base_opcode in ("LDL", "STL") for line in body)
    if stack_bytes:
        accesses = f"; {number_text(local, 'access')} here" if local else ""
        cause = "used by an array indexed at run time or by a call"
        return f"No spills, but {stack_bytes:,} bytes of stack, {cause}{accesses}."
    return "No spills."


def _flight_text(body: Sequence[SassInstruction], occupancy: Occupancy | None, loop: bool) -> str:
    flight = loads_in_flight(body, loop=loop)
    if not flight.loads:
        return ""
    issued = "1 global load is" if flight.loads == 1 else f"{flight.loads} global loads are"
    text = f"{issued} in flight when the first result is used"
    if occupancy and occupancy.blocks_per_sm:
        total = flight.bytes * WARP_SIZE * occupancy.warps_per_sm
        text += f", up to {_format_bytes(total)} per SM with {occupancy.warps_per_sm} warps"
    return text + "."


def _issue_texts(body: Sequence[SassInstruction], compute: int) -> list[str]:
    """A scheduler issues one instruction per cycle, so every instruction other than an FMA costs an FMA slot."""
    tensor = sum(classify(line) == "tensor" for line in body)
    if tensor:
        ratio = len(body) / tensor
        return [f"{_capitalize(number_text(tensor, 'tensor instruction'))} among {len(body)}: one in {ratio:.0f}."]
    fma = sum(line.base_opcode == "FFMA" for line in body)
    share = fma / len(body)
    if share < _FMA_BOUND_SHARE or any(line.base_opcode == "FFMA2" for line in body) or compute not in LIMITS:
        return []
    best = min(1.0, share * WARP_SIZE / LIMITS[compute].fma_lanes)
    limit = f"so at best {percent_text(best)} of the FMA peak" if best < 1 else "so the issue rate does not limit it"
    limit += " if all of them execute" if best < 1 and sum(line.base_opcode == "BRA" for line in body) > 1 else ""
    texts = [f"FFMA is {percent_text(share)} of the loop's instructions, {limit}."]
    shared = [access_bytes(line) for line in body if line.base_opcode == "LDS" and not line.is_never_executed]
    if shared:
        texts.append(
            f"{fma / len(shared):.1f} FFMA per load from shared memory, {sum(shared) / fma:.2f} bytes per FFMA."
        )
    return texts


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
        return f"Registers allow {share} of the warps; the block size is unknown."
    if occupancy.blocks_per_sm == 0:
        return f"No block of {occupancy.threads_per_block} threads fits: {occupancy.limiter}."
    if occupancy.fraction == 1:
        return "Occupancy is 100 %."
    blocks = number_text(occupancy.blocks_per_sm, "block")
    verb = "limit" if occupancy.limiter.endswith("s") else "limits"
    return (
        f"{_capitalize(occupancy.limiter)} {verb} occupancy to {share}: {blocks} of "
        f"{occupancy.threads_per_block} threads."
    )


def _format_bytes(count: int) -> str:
    return f"{count / 1024:.0f} KiB" if count >= 1024 else f"{count} bytes"


def _capitalize(text: str) -> str:
    return text[:1].upper() + text[1:]
