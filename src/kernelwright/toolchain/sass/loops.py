"""Loops in machine code: basic blocks, who dominates whom, back edges, and which loop is hot."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from kernelwright.toolchain.sass.disassembly import INSTRUCTION_BYTES, SassInstruction
from kernelwright.toolchain.sass.opcode_classes import classify

_JUMPS, _TERMINATORS, _INDIRECT = (
    ("BRA", "JMP"),
    ("EXIT", "RET", "KILL", "BRX", "JMX", "BRXU", "JMXU"),
    ("BRX", "JMX", "BRXU", "JMXU"),
)
_WEIGHT = {"tensor": 64, "float math": 2, "special": 4, "conversion": 1, "global load": 8, "global store": 8,
           "shared load": 3, "shared store": 3}  # fmt: skip
"""How much an instruction counts in the choice of the hot loop: a wide matrix product most."""
_ARITHMETIC = ("tensor", "float math", "special")
_MULTIPLY_ADD = ("FFMA", "FFMA2", "HFMA2", "DFMA")
_ASSUMED_TRIP_COUNT = 8
"""How often a loop is taken to run for each turn of the one around it; nothing in the code says it."""


@dataclass
class BasicBlock:
    """Instructions that run one after the other."""

    start: int
    lines: list[SassInstruction]
    successors: set[int] = field(default_factory=set)


@dataclass(frozen=True)
class NaturalLoop:
    """A loop: its lines in order of address, and its depth. `own_lines` are those that stand in no inner loop."""

    header: int
    lines: tuple[SassInstruction, ...]
    depth: int
    own_lines: tuple[SassInstruction, ...]


@dataclass(frozen=True)
class ControlFlow:
    """What can be reached, and the loops of it, by address."""

    lines: tuple[SassInstruction, ...]
    loops: tuple[NaturalLoop, ...]
    hot_loop: NaturalLoop | None


def analyze_control_flow(lines: Sequence[SassInstruction], entries: Iterable[int] = ()) -> ControlFlow:
    """The flow of one kernel.

    Args:
        lines: of its section.
        entries: where functions begin that it calls by name.
    """
    blocks = _blocks(lines)
    roots = _find_entries(blocks, lines, entries)
    blocks = {start: block for start, block in blocks.items() if start in _find_reachable(blocks, roots)}
    found = _loops(blocks, [root for root in roots if root in blocks])
    reachable = tuple(line for start in sorted(blocks) for line in blocks[start].lines)
    return ControlFlow(reachable, found, _find_hot_loop(found))


def weigh(lines: Iterable[SassInstruction]) -> int:
    """How much these instructions count in the choice of the hot loop; waiting and counting are no work."""
    return sum(_WEIGHT.get(classify(line), 0) for line in lines)


def _find_hot_loop(loops: Sequence[NaturalLoop]) -> NaturalLoop | None:
    """Tensor instructions first, then multiply-adds with loads or a barrier, then the most work of its own times the
    turns that its depth promises: the main body of an unrolled loop, not its rest. Of loops that compute the same the
    leanest: the others serve what is odd."""
    working = [loop for loop in loops if weigh(loop.own_lines)]
    if not working:
        return None
    most = max(working, key=lambda loop: (*_purpose_key(loop), weigh(loop.own_lines) * _ASSUMED_TRIP_COUNT**loop.depth))
    alike = [loop for loop in working if _arithmetic_key(loop) == _arithmetic_key(most)]
    return min(alike, key=lambda loop: len(loop.own_lines)) if any(_arithmetic_key(most)[1:]) else most


def _arithmetic_key(loop: NaturalLoop) -> tuple[int, ...]:
    """Its depth, and how many instructions of each kind of arithmetic are its own."""
    groups = [classify(line) for line in loop.own_lines]
    return (loop.depth, *(groups.count(kind) for kind in _ARITHMETIC))


def _purpose_key(loop: NaturalLoop) -> tuple[bool, bool]:
    """Whether it multiplies matrices, and whether it multiplies and adds what it waits for."""
    groups = {classify(line) for line in loop.own_lines}
    multiplies = any(line.base_opcode in _MULTIPLY_ADD and classify(line) == "float math" for line in loop.own_lines)
    return "tensor" in groups, multiplies and bool(groups & {"global load", "shared load", "barrier"})


def _target(line: SassInstruction) -> int | None:
    """Where it may go, if that is an address; always the last operand."""
    last = line.operand_list[-1].strip() if line.operand_list else ""
    return int(last, 16) if last.startswith("0x") else None


def _blocks(lines: Sequence[SassInstruction]) -> dict[int, BasicBlock]:
    """Cut behind every jump and before every target."""
    cuts, ends = {lines[0].address} if lines else set(), set()
    for line in lines:
        if line.base_opcode in (*_JUMPS, *_TERMINATORS, "CALL", "BSSY", "WARPSYNC", "BSYNC", "BREAK"):
            if (to := _target(line)) is not None:
                cuts.add(to)
            ends.add(line.address)
    blocks: dict[int, BasicBlock] = {}
    current: BasicBlock | None = None
    for line in lines:
        if current is None or line.address in cuts:
            current = blocks[line.address] = BasicBlock(line.address, [])
        current.lines.append(line)
        if line.address in ends:
            current = None
    _connect(blocks, lines)
    return blocks


def _connect(blocks: dict[int, BasicBlock], lines: Sequence[SassInstruction]) -> None:
    meets = {
        line.operand_list[0]: _target(line)
        for line in lines
        if line.base_opcode == "BSSY" and len(line.operand_list) > 1
    }
    once = sum(line.base_opcode == "BSSY" for line in lines) == len(meets)
    for block in blocks.values():
        last = block.lines[-1]
        to = (
            [_target(last)] if last.base_opcode in (*_JUMPS, "CALL", "WARPSYNC") else []
        )  # a call to an address leaves a loop
        if last.base_opcode == "BSYNC" and once:  # with one BSSY for each register, it is known where all meet again
            to.append(meets.get(last.operand_list[0]))
        if _falls_through(last):
            to.append(last.address + INSTRUCTION_BYTES)
        block.successors = {start for start in to if start is not None and start in blocks}


def _falls_through(line: SassInstruction) -> bool:
    """Whether the next instruction may run: a jump that has a condition, or no jump at all."""
    if line.base_opcode not in (*_JUMPS, *_TERMINATORS):
        return True
    conditions = line.operand_list[:-1] if line.base_opcode in _JUMPS else ()
    return bool(line.predicate and line.predicate != "@PT") or bool(conditions) or "DIV" in line.modifiers


def _find_entries(blocks: dict[int, BasicBlock], lines: Sequence[SassInstruction], entries: Iterable[int]) -> list[int]:
    """Where something begins: the kernel, what it calls, and behind a computed jump whatever nobody else reaches."""
    roots = [lines[0].address] if lines else []
    roots += [start for start in entries if start in blocks]
    if any(line.base_opcode in _INDIRECT for line in lines):
        targets = set().union(*(block.successors for block in blocks.values()))
        roots += [start for start, block in blocks.items() if start not in targets and not _is_trap(block)]
    return list(dict.fromkeys(roots))


def _is_trap(block: BasicBlock) -> bool:
    """The padding behind the end: a jump to itself, or nothing."""
    return block.successors == {block.start} or all(line.base_opcode == "NOP" for line in block.lines)


def _find_reachable(blocks: dict[int, BasicBlock], roots: Iterable[int]) -> set[int]:
    found, todo = set(), [root for root in roots if root in blocks]
    while todo:
        if (start := todo.pop()) not in found:
            found.add(start)
            todo.extend(blocks[start].successors)
    return found


def _loops(blocks: dict[int, BasicBlock], roots: Sequence[int]) -> tuple[NaturalLoop, ...]:
    """The natural loops: those with one head are one loop."""
    before: dict[int, set[int]] = {start: set() for start in blocks}
    for start, block in blocks.items():
        for to in block.successors:
            before[to].add(start)
    dominators = _dominators(blocks, before, roots)
    bodies: dict[int, set[int]] = {}
    for start, block in blocks.items():
        if _is_lane_serial_branch(block.lines[-1]):
            continue
        for head in block.successors & dominators[start]:
            bodies.setdefault(head, {head}).update(_loop_body(head, start, before))
    return tuple(_make_loop(head, bodies, blocks) for head in sorted(bodies))


def _is_lane_serial_branch(line: SassInstruction) -> bool:
    """A jump back that serves one value of a warp after the other; for all but odd kernels it is never taken."""
    return line.base_opcode == "BRA" and {"U", "ANY"} <= set(line.modifiers)


def _make_loop(head: int, bodies: dict[int, set[int]], blocks: dict[int, BasicBlock]) -> NaturalLoop:
    body = bodies[head]
    around = sum(head in other and body < other for other in bodies.values())
    inner = set().union(*(other for other in bodies.values() if other < body))
    return NaturalLoop(
        header=head,
        lines=tuple(line for start in sorted(body) for line in blocks[start].lines),
        depth=1 + around,
        own_lines=tuple(line for start in sorted(body - inner) for line in blocks[start].lines),
    )


def _loop_body(head: int, tail: int, predecessors: dict[int, set[int]]) -> set[int]:
    """What reaches the tail without passing the head."""
    found, todo = {head}, [tail]
    while todo:
        if (start := todo.pop()) not in found:
            found.add(start)
            todo.extend(predecessors[start])
    return found


def _dominators(
    blocks: dict[int, BasicBlock], predecessors: dict[int, set[int]], roots: Sequence[int]
) -> dict[int, set[int]]:
    """For each block those through which every way from a root leads, itself among them."""
    every = set(blocks)
    found = {start: {start} if start in roots else set(every) for start in blocks}
    changed = True
    while changed:
        changed = False
        for start in sorted(every - set(roots)):
            ways = [found[other] for other in predecessors[start]]
            new = {start} | (set.intersection(*ways) if ways else set())
            if new != found[start]:
                found[start], changed = new, True
    return found
