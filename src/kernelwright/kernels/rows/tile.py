"""A program's tile of rows on the device: where it lies, and what the parts of a row tell each other.

A row that is shared out passes through memory once: every program writes down what it found of its part, waits until
the others of its row have done so too, and finds its part in the first cache when it reads it again. A value and the
sign that it is there are one word of 64 bits, so nobody waits for anybody's other stores. Programs begin in their order
and the parts of a row are neighbours, so of all that run only the newest row can be incomplete: the others go on, end,
and make room for the rest of it.

`STEP` says how much of that one launch does: ALL, or, where nobody can wait, as in the interpreter, one launch that
only writes down (PUBLISH) and another that only goes on from there (FINISH).
"""

import triton
import triton.language as tl
from triton.runtime.interpreter import InterpretedFunction

ALL, PUBLISH, FINISH = tl.constexpr(0), tl.constexpr(1), tl.constexpr(2)
SLOTS = tl.constexpr(4)
"""Numbers that a part of a row can write down."""
LANES = tl.constexpr(32)
ONCE, KEPT, LEFT = tl.constexpr(""), tl.constexpr("evict_last"), tl.constexpr("evict_first")
"""How the caches treat what is read once, what is read again soon, and what is read for the last time."""


@triton.jit
def place(ROWS: tl.constexpr, PARTS: tl.constexpr):
    """The first row of this program's tile, and which part of the row it is."""
    return (tl.program_id(0) // PARTS) * ROWS, tl.program_id(0) % PARTS


INTERPRETED = tl.constexpr(isinstance(place, InterpretedFunction))


def programmatic_launch(kernel):
    """Declares that a kernel calls `wait_for_earlier` before it touches memory, so that `launching.start` may launch it
    with programmatic stream serialization: beside the last programs of what was launched before. A kernel that is
    declared so and does not wait would read what is not written yet; test_rows_pdl_wait.py compares both in PTX."""
    kernel.programmatic_launch = True
    return kernel


@triton.jit
def wait_for_earlier():
    """Until what was launched before has ended: the first thing that a kernel does which is a `programmatic_launch`."""
    if not INTERPRETED and tl.target_info.cuda_capability_geq(9):
        tl.extra.cuda.gdc_wait()


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
def read(ptr, rows, columns, there, inner, stride_outer, stride_inner, nothing, CACHED: tl.constexpr = ONCE):
    """A tile of a tensor in FP32; `nothing` where it ends. `CACHED`: ONCE, KEPT or LEFT."""
    at = begin_of(rows, inner, stride_outer, stride_inner) + columns
    return tl.load(ptr + at, mask=there, other=nothing, eviction_policy=CACHED).to(tl.float32)


@triton.jit
def read_along(ptr, columns, N: tl.constexpr):
    """What all rows have in common, (1, BLOCK_N) in FP32."""
    return tl.load(ptr + columns, mask=columns < N, other=0.0, eviction_policy=KEPT).to(tl.float32)


@triton.jit
def product(a, b, COLUMNS: tl.constexpr):
    """a * b to be added up over tiles of so many columns. Where a lane may have one element of a row, it is rounded
    before: in a multiply-add each lane would round all products but its own, and write another sum than its neighbour.
    """
    if COLUMNS > LANES or INTERPRETED:
        result = a * b
    else:
        result = tl.inline_asm_elementwise("mul.rn.f32 $0, $1, $2;", "=r,r,r", [a, b], tl.float32, True, 1)
    return result


@triton.jit
def _both(a, b, c, d):
    return a + c, b + d


@triton.jit
def sums(a, b):
    """Of each row what two tiles add up to: warps wait for each other once for both."""
    if INTERPRETED:
        one, other = tl.sum(a, 1, keep_dims=True), tl.sum(b, 1, keep_dims=True)
    else:
        one, other = tl.reduce((a, b), 1, _both, keep_dims=True)
    return one, other


@triton.jit
def of_row(values):
    """The one number in (1, 1)."""
    return tl.sum(tl.sum(values, 1), 0)


@triton.jit
def publish(value, slot: tl.constexpr, row, part, notes_ptr, PARTS: tl.constexpr, STEP: tl.constexpr):
    """Writes down a number of a row's part."""
    if STEP != FINISH:
        word = (value.to(tl.int32, bitcast=True).to(tl.int64) << 32) | 1
        tl.store(notes_ptr + (row * SLOTS + slot) * PARTS + part, word)


@triton.jit
def collected(slot: tl.constexpr, nothing, row, notes_ptr, PARTS: tl.constexpr, STEP: tl.constexpr):
    """That number of every part, (PADDED), once all are there; `nothing` where there is no part."""
    PADDED: tl.constexpr = triton.next_power_of_2(PARTS)
    parts = tl.arange(0, PADDED)
    at = notes_ptr + (row * SLOTS + slot) * PARTS + parts
    words = tl.load(at, mask=parts < PARTS, other=1, volatile=True)
    if STEP == ALL:
        while tl.min(words & 1, 0) == 0:
            words = tl.load(at, mask=parts < PARTS, other=1, volatile=True)
    return tl.where(parts < PARTS, (words >> 32).to(tl.int32).to(tl.float32, bitcast=True), nothing)
