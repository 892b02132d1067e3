"""Loops in machine code: basic blocks, who dominates whom, back edges, and which loop is hot."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from kernelwright.toolchain.sass.disassembly import INSTRUCTION_BYTES, Line
from kernelwright.toolchain.sass.groups import group_of

_JUMPS, _ENDS, _INDIRECT = (
    ("BRA", "JMP"),
    ("EXIT", "RET", "KILL", "BRX", "JMX", "BRXU", "JMXU"),
    ("BRX", "JMX", "BRXU", "JMXU"),
)
_WEIGHT = {"tensor": 64, "float math": 2, "special": 4, "conversion": 1, "global load": 8, "global store": 8,
           "shared load": 3, "shared store": 3}  # fmt: skip
"""How much an instruction counts in the choice of the hot loop: a wide matrix product most."""
_ARITHMETIC = ("tensor", "float math", "special")
_MULTIPLY_ADD = ("FFMA", "FFMA2", "HFMA2", "DFMA")
_TRIPS = 8
"""How often a loop is taken to run for each turn of the one around it; nothing in the code says it."""


@dataclass
class Block:
    """Instructions that run one after the other."""

    start: int
    lines: list[Line]
    after: set[int] = field(default_factory=set)


@dataclass(frozen=True)
class Found:
    """A loop: its lines in order of address, and its depth. `own` are those that stand in no inner loop."""

    head: int
    lines: tuple[Line, ...]
    depth: int
    own: tuple[Line, ...]


@dataclass(frozen=True)
class Flow:
    """What can be reached, and the loops of it, by address."""

    lines: tuple[Line, ...]
    loops: tuple[Found, ...]
    hot: Found | None


def flow(lines: Sequence[Line], entries: Iterable[int] = ()) -> Flow:
    """The flow of one kernel.

    Args:
        lines: of its section.
        entries: where functions begin that it calls by name.
    """
    blocks = _blocks(lines)
    roots = _roots(blocks, lines, entries)
    blocks = {start: block for start, block in blocks.items() if start in _reached(blocks, roots)}
    found = _loops(blocks, [root for root in roots if root in blocks])
    reachable = tuple(line for start in sorted(blocks) for line in blocks[start].lines)
    return Flow(reachable, found, _hot(found))


def work_of(lines: Iterable[Line]) -> int:
    """How much these instructions count in the choice of the hot loop; waiting and counting are no work."""
    return sum(_WEIGHT.get(group_of(line), 0) for line in lines)


def _hot(loops: Sequence[Found]) -> Found | None:
    """Tensor instructions first, then multiply-adds with loads or a barrier, then the most work of its own times the
    turns that its depth promises: the main body of an unrolled loop, not its rest. Of loops that compute the same the
    leanest: the others serve what is odd."""
    working = [loop for loop in loops if work_of(loop.own)]
    if not working:
        return None
    most = max(working, key=lambda loop: (*_purpose(loop), work_of(loop.own) * _TRIPS**loop.depth))
    alike = [loop for loop in working if _computes(loop) == _computes(most)]
    return min(alike, key=lambda loop: len(loop.own)) if any(_computes(most)[1:]) else most


def _computes(loop: Found) -> tuple[int, ...]:
    """Its depth, and how many instructions of each kind of arithmetic are its own."""
    groups = [group_of(line) for line in loop.own]
    return (loop.depth, *(groups.count(kind) for kind in _ARITHMETIC))


def _purpose(loop: Found) -> tuple[bool, bool]:
    """Whether it multiplies matrices, and whether it multiplies and adds what it waits for."""
    groups = {group_of(line) for line in loop.own}
    multiplies = any(line.name in _MULTIPLY_ADD and group_of(line) == "float math" for line in loop.own)
    return "tensor" in groups, multiplies and bool(groups & {"global load", "shared load", "barrier"})


def _target(line: Line) -> int | None:
    """Where it may go, if that is an address; always the last operand."""
    last = line.parts[-1].strip() if line.parts else ""
    return int(last, 16) if last.startswith("0x") else None


def _blocks(lines: Sequence[Line]) -> dict[int, Block]:
    """Cut behind every jump and before every target."""
    cuts, ends = {lines[0].address} if lines else set(), set()
    for line in lines:
        if line.name in (*_JUMPS, *_ENDS, "CALL", "BSSY", "WARPSYNC", "BSYNC", "BREAK"):
            if (to := _target(line)) is not None:
                cuts.add(to)
            ends.add(line.address)
    blocks: dict[int, Block] = {}
    current: Block | None = None
    for line in lines:
        if current is None or line.address in cuts:
            current = blocks[line.address] = Block(line.address, [])
        current.lines.append(line)
        if line.address in ends:
            current = None
    _connect(blocks, lines)
    return blocks


def _connect(blocks: dict[int, Block], lines: Sequence[Line]) -> None:
    meets = {line.parts[0]: _target(line) for line in lines if line.name == "BSSY" and len(line.parts) > 1}
    once = sum(line.name == "BSSY" for line in lines) == len(meets)
    for block in blocks.values():
        last = block.lines[-1]
        to = [_target(last)] if last.name in (*_JUMPS, "CALL", "WARPSYNC") else []  # a call to an address leaves a loop
        if last.name == "BSYNC" and once:  # with one BSSY for each register, it is known where all meet again
            to.append(meets.get(last.parts[0]))
        if _goes_on(last):
            to.append(last.address + INSTRUCTION_BYTES)
        block.after = {start for start in to if start is not None and start in blocks}


def _goes_on(line: Line) -> bool:
    """Whether the next instruction may run: a jump that has a condition, or no jump at all."""
    if line.name not in (*_JUMPS, *_ENDS):
        return True
    conditions = line.parts[:-1] if line.name in _JUMPS else ()
    return bool(line.predicate and line.predicate != "@PT") or bool(conditions) or "DIV" in line.modifiers


def _roots(blocks: dict[int, Block], lines: Sequence[Line], entries: Iterable[int]) -> list[int]:
    """Where something begins: the kernel, what it calls, and behind a computed jump whatever nobody else reaches."""
    roots = [lines[0].address] if lines else []
    roots += [start for start in entries if start in blocks]
    if any(line.name in _INDIRECT for line in lines):
        targets = set().union(*(block.after for block in blocks.values()))
        roots += [start for start, block in blocks.items() if start not in targets and not _is_trap(block)]
    return list(dict.fromkeys(roots))


def _is_trap(block: Block) -> bool:
    """The padding behind the end: a jump to itself, or nothing."""
    return block.after == {block.start} or all(line.name == "NOP" for line in block.lines)


def _reached(blocks: dict[int, Block], roots: Iterable[int]) -> set[int]:
    found, todo = set(), [root for root in roots if root in blocks]
    while todo:
        if (start := todo.pop()) not in found:
            found.add(start)
            todo.extend(blocks[start].after)
    return found


def _loops(blocks: dict[int, Block], roots: Sequence[int]) -> tuple[Found, ...]:
    """The natural loops: those with one head are one loop."""
    before: dict[int, set[int]] = {start: set() for start in blocks}
    for start, block in blocks.items():
        for to in block.after:
            before[to].add(start)
    dominators = _dominators(blocks, before, roots)
    bodies: dict[int, set[int]] = {}
    for start, block in blocks.items():
        if _once_for_each(block.lines[-1]):
            continue
        for head in block.after & dominators[start]:
            bodies.setdefault(head, {head}).update(_body(head, start, before))
    return tuple(_found(head, bodies, blocks) for head in sorted(bodies))


def _once_for_each(line: Line) -> bool:
    """A jump back that serves one value of a warp after the other; for all but odd kernels it is never taken."""
    return line.name == "BRA" and {"U", "ANY"} <= set(line.modifiers)


def _found(head: int, bodies: dict[int, set[int]], blocks: dict[int, Block]) -> Found:
    body = bodies[head]
    around = sum(head in other and body < other for other in bodies.values())
    inner = set().union(*(other for other in bodies.values() if other < body))
    return Found(
        head=head,
        lines=tuple(line for start in sorted(body) for line in blocks[start].lines),
        depth=1 + around,
        own=tuple(line for start in sorted(body - inner) for line in blocks[start].lines),
    )


def _body(head: int, tail: int, before: dict[int, set[int]]) -> set[int]:
    """What reaches the tail without passing the head."""
    found, todo = {head}, [tail]
    while todo:
        if (start := todo.pop()) not in found:
            found.add(start)
            todo.extend(before[start])
    return found


def _dominators(blocks: dict[int, Block], before: dict[int, set[int]], roots: Sequence[int]) -> dict[int, set[int]]:
    """For each block those through which every way from a root leads, itself among them."""
    every = set(blocks)
    found = {start: {start} if start in roots else set(every) for start in blocks}
    changed = True
    while changed:
        changed = False
        for start in sorted(every - set(roots)):
            ways = [found[other] for other in before[start]]
            new = {start} | (set.intersection(*ways) if ways else set())
            if new != found[start]:
                found[start], changed = new, True
    return found
