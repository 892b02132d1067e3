"""Device helpers of the row kernels: tile offsets, loads, and the reduction of a row that is split over programs.

A split row passes through DRAM once: each program stores a partial result of its split in a workspace, spins until
the partials of all splits of its row are there, and then reloads its split from L1. A partial and its ready flag
share one 64-bit word, so no ordering with other stores is needed. Programs are scheduled in order and the splits of
a row have adjacent program ids, so at any time only the newest row can be incomplete; all earlier rows run to
completion and free their SMs for the rest of it.

`PHASE` selects what one launch does: PHASE_FUSED does everything and spins on the other splits; where programs
cannot wait for each other, as in the interpreter, one launch stores the partials (PHASE_STORE) and a second one
combines them (PHASE_COMBINE).
"""

import triton
import triton.language as tl
from triton.runtime.interpreter import InterpretedFunction

PHASE_FUSED, PHASE_STORE, PHASE_COMBINE = tl.constexpr(0), tl.constexpr(1), tl.constexpr(2)
NUM_SLOTS = tl.constexpr(4)
"""Partials that a split can store."""
WARP_SIZE = tl.constexpr(32)
EVICT_DEFAULT, EVICT_LAST, EVICT_FIRST = tl.constexpr(""), tl.constexpr("evict_last"), tl.constexpr("evict_first")
"""Eviction policies: data read once, data reloaded soon, and the last read."""


@triton.jit
def program_coords(BLOCK_M: tl.constexpr, NUM_SPLITS: tl.constexpr):
    """The first row of this program's tile and the split of the row."""
    return (tl.program_id(0) // NUM_SPLITS) * BLOCK_M, tl.program_id(0) % NUM_SPLITS


INTERPRETED = tl.constexpr(isinstance(program_coords, InterpretedFunction))


def programmatic_launch(kernel):
    """Mark a kernel as safe for programmatic dependent launch (PDL).

    The kernel must call `grid_dependency_wait` before it touches memory; `launch_programs` then launches it with
    programmatic stream serialization, overlapping the tail of the previous kernel. A marked kernel that does not
    wait would read data that is not written yet; test_rows_pdl_wait.py checks both in PTX.
    """
    kernel.programmatic_launch = True
    return kernel


@triton.jit
def grid_dependency_wait():
    """Wait for the previous kernel on the stream (griddepcontrol.wait): the first statement of a
    `programmatic_launch`."""
    if not INTERPRETED and tl.target_info.cuda_capability_geq(9):
        tl.extra.cuda.gdc_wait()


@triton.jit
def tile_offsets(first_row, split, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Row offsets (BLOCK_M, 1) in int64 and column offsets (1, BLOCK_N) of a tile."""
    offs_m = (first_row + tl.arange(0, BLOCK_M)[:, None]).to(tl.int64)
    return offs_m, split * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]


@triton.jit
def row_offset(offs_m, inner_size, stride_outer, stride_inner):
    """Element offset of rows in a tensor with two leading dimensions, the inner one of size `inner_size`."""
    return (offs_m // inner_size) * stride_outer + (offs_m % inner_size) * stride_inner


@triton.jit
def load_tile(
    ptr, offs_m, offs_n, mask, inner_size, stride_outer, stride_inner, other, EVICTION: tl.constexpr = EVICT_DEFAULT
):
    """Load a tile in FP32; masked-off elements are `other`. `EVICTION` is an EVICT_* policy."""
    offs = row_offset(offs_m, inner_size, stride_outer, stride_inner) + offs_n
    return tl.load(ptr + offs, mask=mask, other=other, eviction_policy=EVICTION).to(tl.float32)


@triton.jit
def load_row_vector(ptr, offs_n, N: tl.constexpr):
    """Load a row vector (weight, bias) shared by all rows, (1, BLOCK_N) in FP32."""
    return tl.load(ptr + offs_n, mask=offs_n < N, other=0.0, eviction_policy=EVICT_LAST).to(tl.float32)


@triton.jit
def mul_rn(a, b, COLUMNS: tl.constexpr):
    """a * b, to be summed over tiles of `COLUMNS` columns.

    Where each lane may hold one element of a row the product is rounded first (mul.rn): with a fused multiply-add
    each lane would round all products but its own, and lanes would store different sums.
    """
    if COLUMNS > WARP_SIZE or INTERPRETED:
        result = a * b
    else:
        result = tl.inline_asm_elementwise("mul.rn.f32 $0, $1, $2;", "=r,r,r", [a, b], tl.float32, True, 1)
    return result


@triton.jit
def _add2(a, b, c, d):
    return a + c, b + d


@triton.jit
def row_sum2(a, b):
    """Row sums of two tiles in one reduction: warps synchronize once for both."""
    if INTERPRETED:
        sum_a, sum_b = tl.sum(a, 1, keep_dims=True), tl.sum(b, 1, keep_dims=True)
    else:
        sum_a, sum_b = tl.reduce((a, b), 1, _add2, keep_dims=True)
    return sum_a, sum_b


@triton.jit
def to_scalar(values):
    """The single element of a (1, 1) tensor."""
    return tl.sum(tl.sum(values, 1), 0)


@triton.jit
def store_partial(value, slot: tl.constexpr, row, split, workspace_ptr, NUM_SPLITS: tl.constexpr, PHASE: tl.constexpr):
    """Store a partial result of one split, with its ready flag, in slot `slot` of the workspace."""
    if PHASE != PHASE_COMBINE:
        packed = (value.to(tl.int32, bitcast=True).to(tl.int64) << 32) | 1
        tl.store(workspace_ptr + (row * NUM_SLOTS + slot) * NUM_SPLITS + split, packed)


@triton.jit
def wait_partials(slot: tl.constexpr, other, row, workspace_ptr, NUM_SPLITS: tl.constexpr, PHASE: tl.constexpr):
    """Partials of all splits of a row, (PADDED_SPLITS,), once all are ready; `other` in the padding."""
    PADDED_SPLITS: tl.constexpr = triton.next_power_of_2(NUM_SPLITS)
    splits = tl.arange(0, PADDED_SPLITS)
    ptrs = workspace_ptr + (row * NUM_SLOTS + slot) * NUM_SPLITS + splits
    packed = tl.load(ptrs, mask=splits < NUM_SPLITS, other=1, volatile=True)
    if PHASE == PHASE_FUSED:
        while tl.min(packed & 1, 0) == 0:
            packed = tl.load(ptrs, mask=splits < NUM_SPLITS, other=1, volatile=True)
    return tl.where(splits < NUM_SPLITS, (packed >> 32).to(tl.int32).to(tl.float32, bitcast=True), other)
