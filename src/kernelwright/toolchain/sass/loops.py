"""Control flow of machine code: basic blocks, dominators, natural loops, and the choice of the hot loop."""

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
"""Weight of an instruction of each group in the choice of the hot loop; tensor instructions do the most work."""
_ARITHMETIC = ("tensor", "float math", "special")
_MULTIPLY_ADD = ("FFMA", "FFMA2", "HFMA2", "DFMA")
_ASSUMED_TRIP_COUNT = 8
"""Assumed iterations of a loop per iteration of the enclosing one; the machine code does not contain it."""


@dataclass
class BasicBlock:
    """A basic block: straight-line instructions and the start addresses of its successors."""

    start: int
    lines: list[SassInstruction]
    successors: set[int] = field(default_factory=set)


@dataclass(frozen=True)
class NaturalLoop:
    """A natural loop: its instructions by address, and its depth; `own_lines` are those in no inner loop."""

    header: int
    lines: tuple[SassInstruction, ...]
    depth: int
    own_lines: tuple[SassInstruction, ...]


@dataclass(frozen=True)
class ControlFlow:
    """The reachable instructions of a kernel and its loops, by address."""

    lines: tuple[SassInstruction, ...]
    loops: tuple[NaturalLoop, ...]
    hot_loop: NaturalLoop | None


def analyze_control_flow(lines: Sequence[SassInstruction], entries: Iterable[int] = ()) -> ControlFlow:
    """Build the control flow of one kernel.

    Args:
        lines: the instructions of its section.
        entries: start addresses of the functions in this section that it calls by name.
    """
    blocks = _blocks(lines)
    roots = _find_entries(blocks, lines, entries)
    blocks = {start: block for start, block in blocks.items() if start in _find_reachable(blocks, roots)}
    loops = _loops(blocks, [root for root in roots if root in blocks])
    reachable = tuple(line for start in sorted(blocks) for line in blocks[start].lines)
    return ControlFlow(reachable, loops, _find_hot_loop(loops))


def weigh(lines: Iterable[SassInstruction]) -> int:
    """Total weight in the choice of the hot loop; integer, branch and barrier instructions count 0."""
    return sum(_WEIGHT.get(classify(line), 0) for line in lines)


def _find_hot_loop(loops: Sequence[NaturalLoop]) -> NaturalLoop | None:
    """Choose the hot loop: tensor instructions first, then multiply-adds with loads or a barrier, then the weight of
    the loop's own instructions times the iterations assumed for its depth, which prefers the main body of an unrolled
    loop to its remainder. Of loops with the same arithmetic the shortest: the others handle edge cases."""
    working = [loop for loop in loops if weigh(loop.own_lines)]
    if not working:
        return None
    best = max(working, key=lambda loop: (*_purpose_key(loop), weigh(loop.own_lines) * _ASSUMED_TRIP_COUNT**loop.depth))
    same = [loop for loop in working if _arithmetic_key(loop) == _arithmetic_key(best)]
    return min(same, key=lambda loop: len(loop.own_lines)) if any(_arithmetic_key(best)[1:]) else best


def _arithmetic_key(loop: NaturalLoop) -> tuple[int, ...]:
    """Depth, and the number of own instructions of each arithmetic group."""
    groups = [classify(line) for line in loop.own_lines]
    return (loop.depth, *(groups.count(kind) for kind in _ARITHMETIC))


def _purpose_key(loop: NaturalLoop) -> tuple[bool, bool]:
    """Whether it has tensor instructions, and whether it has multiply-adds together with loads or a barrier."""
    groups = {classify(line) for line in loop.own_lines}
    multiplies = any(line.base_opcode in _MULTIPLY_ADD and classify(line) == "float math" for line in loop.own_lines)
    return "tensor" in groups, multiplies and bool(groups & {"global load", "shared load", "barrier"})


def _target(line: SassInstruction) -> int | None:
    """Branch target, if it is an address: always the last operand."""
    last = line.operand_list[-1].strip() if line.operand_list else ""
    return int(last, 16) if last.startswith("0x") else None


def _blocks(lines: Sequence[SassInstruction]) -> dict[int, BasicBlock]:
    """Split after every branch and before every branch target."""
    cuts, ends = {lines[0].address} if lines else set(), set()
    for line in lines:
        if line.base_opcode in (*_JUMPS, *_TERMINATORS, "CALL", "BSSY", "WARPSYNC", "BSYNC", "BREAK"):
            if (target := _target(line)) is not None:
                cuts.add(target)
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
    reconvergence = {
        line.operand_list[0]: _target(line)
        for line in lines
        if line.base_opcode == "BSSY" and len(line.operand_list) > 1
    }
    is_unique = sum(line.base_opcode == "BSSY" for line in lines) == len(reconvergence)
    for block in blocks.values():
        last = block.lines[-1]
        # a call to an address leaves a loop
        targets = [_target(last)] if last.base_opcode in (*_JUMPS, "CALL", "WARPSYNC") else []
        if last.base_opcode == "BSYNC" and is_unique:  # one BSSY per barrier register: the reconvergence point is known
            targets.append(reconvergence.get(last.operand_list[0]))
        if _falls_through(last):
            targets.append(last.address + INSTRUCTION_BYTES)
        block.successors = {start for start in targets if start is not None and start in blocks}


def _falls_through(line: SassInstruction) -> bool:
    """Whether execution can continue at the next instruction: not a branch, or a conditional one."""
    if line.base_opcode not in (*_JUMPS, *_TERMINATORS):
        return True
    conditions = line.operand_list[:-1] if line.base_opcode in _JUMPS else ()
    return bool(line.predicate and line.predicate != "@PT") or bool(conditions) or "DIV" in line.modifiers


def _find_entries(blocks: dict[int, BasicBlock], lines: Sequence[SassInstruction], entries: Iterable[int]) -> list[int]:
    """Entry addresses: the kernel, the functions it calls, and with indirect branches every block without a
    predecessor."""
    roots = [lines[0].address] if lines else []
    roots += [start for start in entries if start in blocks]
    if any(line.base_opcode in _INDIRECT for line in lines):
        targets = set().union(*(block.successors for block in blocks.values()))
        roots += [start for start, block in blocks.items() if start not in targets and not _is_trap(block)]
    return list(dict.fromkeys(roots))


def _is_trap(block: BasicBlock) -> bool:
    """Whether a block is padding after the end: a branch to itself, or NOPs."""
    return block.successors == {block.start} or all(line.base_opcode == "NOP" for line in block.lines)


def _find_reachable(blocks: dict[int, BasicBlock], roots: Iterable[int]) -> set[int]:
    visited, todo = set(), [root for root in roots if root in blocks]
    while todo:
        if (start := todo.pop()) not in visited:
            visited.add(start)
            todo.extend(blocks[start].successors)
    return visited


def _loops(blocks: dict[int, BasicBlock], roots: Sequence[int]) -> tuple[NaturalLoop, ...]:
    """The natural loops; back edges to the same header form one loop."""
    predecessors: dict[int, set[int]] = {start: set() for start in blocks}
    for start, block in blocks.items():
        for successor in block.successors:
            predecessors[successor].add(start)
    dominators = _dominators(blocks, predecessors, roots)
    bodies: dict[int, set[int]] = {}
    for start, block in blocks.items():
        if _is_lane_serial_branch(block.lines[-1]):
            continue
        for header in block.successors & dominators[start]:
            bodies.setdefault(header, {header}).update(_loop_body(header, start, predecessors))
    return tuple(_make_loop(header, bodies, blocks) for header in sorted(bodies))


def _is_lane_serial_branch(line: SassInstruction) -> bool:
    """Whether a back edge only serializes over distinct values in a warp (BRA.U.ANY); it is rarely taken."""
    return line.base_opcode == "BRA" and {"U", "ANY"} <= set(line.modifiers)


def _make_loop(header: int, bodies: dict[int, set[int]], blocks: dict[int, BasicBlock]) -> NaturalLoop:
    body = bodies[header]
    enclosing = sum(header in other and body < other for other in bodies.values())
    inner = set().union(*(other for other in bodies.values() if other < body))
    return NaturalLoop(
        header=header,
        lines=tuple(line for start in sorted(body) for line in blocks[start].lines),
        depth=1 + enclosing,
        own_lines=tuple(line for start in sorted(body - inner) for line in blocks[start].lines),
    )


def _loop_body(header: int, tail: int, predecessors: dict[int, set[int]]) -> set[int]:
    """Blocks that reach the back edge's source without passing the header."""
    visited, todo = {header}, [tail]
    while todo:
        if (start := todo.pop()) not in visited:
            visited.add(start)
            todo.extend(predecessors[start])
    return visited


def _dominators(
    blocks: dict[int, BasicBlock], predecessors: dict[int, set[int]], roots: Sequence[int]
) -> dict[int, set[int]]:
    """Dominators of each block, itself included."""
    starts = set(blocks)
    dominators = {start: {start} if start in roots else set(starts) for start in blocks}
    changed = True
    while changed:
        changed = False
        for start in sorted(starts - set(roots)):
            incoming = [dominators[other] for other in predecessors[start]]
            new = {start} | (set.intersection(*incoming) if incoming else set())
            if new != dominators[start]:
                dominators[start], changed = new, True
    return dominators
