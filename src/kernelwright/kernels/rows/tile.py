"""A program's tile of rows on the device: where it lies, and what the parts of a row tell each other.

A row that is shared out is read once: every program keeps its part in registers, writes down what it found, and waits
until the others of its row have done so too. Programs take their places by ticket, not by number, so that whoever waits
waits for programs that have begun already. A row has fewer parts than the device runs programs at once, so the oldest
row is always complete, and its programs make room for the next.

`STEP` says how much of that one launch does: ALL, or, where nobody can wait, as in the interpreter, one launch that
only writes down (PUBLISH) and another that only goes on from there (FINISH).
"""

import triton
import triton.language as tl

ALL, PUBLISH, FINISH = tl.constexpr(0), tl.constexpr(1), tl.constexpr(2)


@triton.jit
def place(notes_ptr, PARTS: tl.constexpr, ROWS: tl.constexpr):
    """The first row of this program's tile, and which part of the row it is."""
    ticket = tl.atomic_add(notes_ptr, 1) if PARTS > 1 else tl.program_id(0)
    return (ticket // PARTS) * ROWS, ticket % PARTS


@triton.jit
def tile(first, part, ROWS: tl.constexpr, BLOCK_N: tl.constexpr):
    """The rows (ROWS, 1) and columns (1, BLOCK_N) of a tile."""
    rows = (first + tl.arange(0, ROWS)[:, None]).to(tl.int64)
    return rows, part * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]


@triton.jit
def begin_of(rows, inner, stride_outer, stride_inner):
    """Where rows begin in a tensor whose leading dimensions are two, the inner one of that size."""
    return (rows // inner) * stride_outer + (rows % inner) * stride_inner


@triton.jit
def exchanged(one, two, three, nothing, row, part, found_ptr, notes_ptr, PARTS: tl.constexpr, STEP: tl.constexpr):
    """Three values, (1, 1), of every part of a row: (1, PADDED) each, padded with `nothing` in the first and 0 in the
    others."""
    PADDED: tl.constexpr = triton.next_power_of_2(PARTS)
    found_ptr += row * (3 * PARTS)
    if STEP != FINISH:
        at = found_ptr + part + tl.zeros_like(one).to(tl.int32)
        tl.store(at, one)
        tl.store(at + PARTS, two)
        tl.store(at + 2 * PARTS, three)
    if STEP == ALL:
        tl.debug_barrier()
        arrived = tl.atomic_add(notes_ptr + 1 + row, 1, sem="acq_rel") + 1
        while arrived < PARTS:
            arrived = tl.atomic_add(notes_ptr + 1 + row, 0, sem="acquire")
    parts = tl.arange(0, PADDED)[None, :]
    ones = tl.load(found_ptr + parts, mask=parts < PARTS, other=nothing, cache_modifier=".cg")
    twos = tl.load(found_ptr + PARTS + parts, mask=parts < PARTS, other=0.0, cache_modifier=".cg")
    threes = tl.load(found_ptr + 2 * PARTS + parts, mask=parts < PARTS, other=0.0, cache_modifier=".cg")
    return ones, twos, threes
