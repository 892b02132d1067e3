"""How the rows of a norm lie on the chip."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

from kernelwright.kernels.rows.cluster_launch import MAX_CLUSTER_WARPS, MAX_THREADS_PER_SM, ClusterLayout
from kernelwright.kernels.rows.layout import (
    MAX_WARPS,
    VECTOR_BYTES,
    WARP_SIZE,
    RowLayout,
    choose_row_layout,
    is_vectorizable,
    next_power_of_2,
    split_into_tiles,
)

BACKWARD_TILE_BYTES, BACKWARD_WARPS = 2**14, 8
"""Of a multiprocessor, whose loads run ahead of it through shared memory."""
BACKWARD_SPLIT_BYTES = 2**15
MULTI_TILE_ROWS = 64
"""Of a program that has several tiles beside each other."""
FEW_ROWS, FEW_ROWS_WARPS, FEW_ROWS_ELEMENTS = 8, (4, 16), 32
"""Too few for the tiles of many, and alone on the machine: a variant of their own, of so many warps at least and
at most, and so many elements a thread."""
MAX_STAGES = 3
"""Tiles of a program that are under way or in use."""
RELOAD_ROW_BYTES = 2**14
"""Of a row that is read twice, the second time from the cache."""
CENTRED_THREADS_PER_SM, CENTRED_SMALL_CLUSTER_THREADS_PER_SM, SMALL_CLUSTER_SIZE = 640, 512, 2
"""Threads of a multiprocessor where a cluster has the row, or one of few blocks: moments need more registers than a
sum."""
RESIDUAL_THREADS_PER_SM = 1024
"""And where a residual is added in the largest blocks, of which there would be only one."""
BACKWARD_THREADS_PER_SM = 512
"""And for a gradient, whose threads have the weight's in registers too."""
SCALAR_PROGRAMS_PER_SM = 3
"""Of a multiprocessor, where elements come one by one."""
PARTIAL_COLUMNS, PARTIAL_ROWS, PARTIAL_WARPS = 16, 64, 4
"""Of a tile of what programs add up down the columns."""
GRADIENT_ROWS, GRADIENT_TILE, GRADIENT_TILE_WITH_BIAS, MAX_RELOAD_ROWS = 32, (128, 2), (64, 1), 128
"""Rows, then columns and warps, of a tile that is read again for the gradient of the weight, and of the bias too; and
how many rows are: one program has all rows of its columns."""
PARTIAL_BYTES = 16
"""What a weight's place in a program's share of its gradient costs: 8 written and read, and registers all the while."""


def forward_layout(M: int, N: int, itemsize: int, centred: bool, added: bool) -> RowLayout:
    """As measured: rows of a power of two in more threads than the skeleton gives them, since a multiprocessor has no
    more programs of one warp than would be half of it; moments of short rows in small tiles of large programs; long
    rows for one sum read again, so that more of them are under way."""
    return _forward_layout(M <= FEW_ROWS, N, itemsize, centred, added)


@lru_cache(maxsize=4096)
def _forward_layout(few: bool, N: int, itemsize: int, centred: bool, added: bool) -> RowLayout:
    layout = choose_row_layout(N, itemsize)
    if few and layout.block_m > FEW_ROWS:
        return replace(layout, block_m=FEW_ROWS, num_warps=min(layout.num_warps, FEW_ROWS_WARPS[0]))
    if layout.num_splits > 1 or layout.block_n != N or not is_vectorizable(N, itemsize):
        return layout
    if layout.block_m <= 2 and layout.num_warps < MAX_WARPS:
        return replace(layout, num_warps=2 * layout.num_warps)
    if centred and N * itemsize == WARP_SIZE * VECTOR_BYTES // 2:
        return replace(layout, block_m=2 * layout.block_m, num_warps=4 * layout.num_warps)
    if N * itemsize == RELOAD_ROW_BYTES and not centred and not added:
        return replace(layout, num_warps=2 * layout.num_warps, reload=True)
    return layout


def should_preload_weights(M: int, layout: RowLayout, centred: bool) -> bool:
    """Whether weights are loaded with the row, not when they are wanted: registers are left for them, or are not short
    where few programs run."""
    return layout.num_splits == 1 and (not centred or M <= FEW_ROWS)


def forward_threads_per_sm(layout: ClusterLayout, centred: bool, added: bool) -> int:
    """Threads of a multiprocessor that have registers, where a cluster has the row."""
    if added and layout.num_warps == MAX_CLUSTER_WARPS:
        return RESIDUAL_THREADS_PER_SM
    if not centred or added:
        return MAX_THREADS_PER_SM
    return CENTRED_SMALL_CLUSTER_THREADS_PER_SM if layout.cluster_size <= SMALL_CLUSTER_SIZE else CENTRED_THREADS_PER_SM


def backward_layout(M: int, N: int, itemsize: int) -> tuple[RowLayout, int]:
    """The layout, and how many tiles a program has beside each other."""
    columns = next_power_of_2(N)
    if columns * itemsize > BACKWARD_SPLIT_BYTES:
        columns = BACKWARD_SPLIT_BYTES // itemsize
        return RowLayout(1, columns, -(-N // columns), BACKWARD_WARPS, reload=True), 1
    bytes_at_once = BACKWARD_TILE_BYTES if is_vectorizable(N, itemsize) else BACKWARD_TILE_BYTES // 2
    rows = max(1, bytes_at_once // (columns * itemsize))
    if M <= FEW_ROWS:
        few = FEW_ROWS if rows > FEW_ROWS else 1
        warps, (least, most) = few * columns // WARP_SIZE, FEW_ROWS_WARPS
        return RowLayout(few, columns, 1, max(1, min(warps, most, max(least, warps // FEW_ROWS_ELEMENTS)))), 1
    layout = RowLayout(rows, columns, 1, BACKWARD_WARPS * max(1, columns * itemsize // BACKWARD_TILE_BYTES))
    if is_vectorizable(N, itemsize):
        return _match_weight_layout(layout, N, itemsize)
    return split_into_tiles(layout, N, itemsize, MULTI_TILE_ROWS, BACKWARD_WARPS)


def _match_weight_layout(layout: RowLayout, N: int, itemsize: int) -> tuple[RowLayout, int]:
    """The layout, and how many tiles a program has beside each other, so that a thread has the same columns of the
    weight as of the rows: the weight has a vector for each thread, or fewer elements than there are threads. Between,
    Triton computes the whole tile as the weight lies, element by element.
    Where the weight has a vector for every second thread, or rows of half a tile do not fill it, half as many threads
    take half as many rows, in twice as many programs."""
    threads, vector = WARP_SIZE * layout.num_warps, VECTOR_BYTES // itemsize
    vectors = layout.block_n // vector
    padded = layout.block_n * itemsize == BACKWARD_TILE_BYTES // 2 and layout.block_n > N
    if padded or vectors == threads // 2:
        return replace(layout, block_m=max(1, layout.block_m // 2), num_warps=layout.num_warps // 2), 1
    if vectors < threads <= layout.block_n:
        return replace(layout, block_n=threads // 2), -(-N // (threads // 2))
    return layout, 1


def backward_programs(M: int, layout: RowLayout, stages: int, multiprocessors: int) -> int:
    """Programs that share the rows out, each keeping its own sum of the weight's gradient: where they are small, or
    where nothing is fetched ahead, several to a multiprocessor."""
    each = max(1, BACKWARD_WARPS // layout.num_warps)
    if stages == 1 and layout.num_splits == 1:
        each *= SCALAR_PROGRAMS_PER_SM
    return max(1, min(-(-M // layout.block_m), multiprocessors * each // layout.num_splits))


def backward_stages(
    M: int, layout: RowLayout, tiles: int, N: int, itemsizes: Sequence[int], weight_itemsize: int, shared_bytes: int
) -> int:
    """How many times the tiles of all tensors together, one of each itemsize, are under way or in use; all but one need
    room, and so does the weight, of `weight_itemsize` bytes an element, with each. Where elements come one by one, or
    where a program has no other tile, none is fetched ahead."""
    if M <= FEW_ROWS or not all(is_vectorizable(N, itemsize) for itemsize in itemsizes):
        return 1
    return min(
        MAX_STAGES, 1 + shared_bytes // (tiles * layout.block_n * (layout.block_m * sum(itemsizes) + weight_itemsize))
    )


def should_reload(M: int, programs: int, read_bytes: int) -> bool:
    """Whether M rows, of so many bytes an element, are no more to read again than the shares of so many programs."""
    return programs > 1 and M <= MAX_RELOAD_ROWS and M * read_bytes <= programs * PARTIAL_BYTES
