"""Tile layouts of the norms."""

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
"""Tile and warps of a gradient program, one per SM, which prefetches through shared memory."""
BACKWARD_SPLIT_BYTES = 2**15
MULTI_TILE_ROWS = 64
"""Rows of a program with several tiles."""
FEW_ROWS, FEW_ROWS_WARPS, FEW_ROWS_ELEMENTS = 8, (4, 16), 32
"""Up to this many rows, alone on the GPU, use a separate variant: minimum and maximum warps, and elements per
thread."""
MAX_STAGES = 3
"""Tiles of a program that are in flight or in use."""
RELOAD_ROW_BYTES = 2**14
"""Row length at which a row is loaded twice, the second time from the cache."""
CENTRED_THREADS_PER_SM, CENTRED_SMALL_CLUSTER_THREADS_PER_SM, SMALL_CLUSTER_SIZE = 640, 512, 2
"""Resident threads per SM where a cluster, or a cluster of few blocks, has the row: moments need more registers than
a sum."""
RESIDUAL_THREADS_PER_SM = 1024
"""The same for the largest blocks with a residual, which otherwise would run one per SM."""
BACKWARD_THREADS_PER_SM = 512
"""The same for the gradient, whose threads also accumulate the weight gradient in registers."""
SCALAR_PROGRAMS_PER_SM = 3
"""Programs per SM where loads are scalar."""
PARTIAL_COLUMNS, PARTIAL_ROWS, PARTIAL_WARPS = 16, 64, 4
"""Tile of the sum over partial weight gradients."""
GRADIENT_ROWS, GRADIENT_TILE, GRADIENT_TILE_WITH_BIAS, MAX_RELOAD_ROWS = 32, (128, 2), (64, 1), 128
"""Rows, then (columns, warps), of a tile of the second pass for the weight gradient, and for weight and bias; and
the maximum number of rows, since one program has all rows of its columns."""
PARTIAL_BYTES = 16
"""Cost in bytes of one element of a partial weight gradient: 8 stored and loaded, and registers during the whole
kernel."""


def forward_layout(M: int, N: int, itemsize: int, centred: bool, added: bool) -> RowLayout:
    """The layout of the forward pass, as measured.

    Rows of a power of two use more threads than `choose_row_layout` assigns, since an SM holds no more one-warp
    programs than fill half of it; moments of short rows use small tiles in large programs; long rows for a single
    sum are reloaded, so that more of them are in flight.
    """
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
    """Whether to load weights together with the row: only where registers are left, or few programs run."""
    return layout.num_splits == 1 and (not centred or M <= FEW_ROWS)


def forward_threads_per_sm(layout: ClusterLayout, centred: bool, added: bool) -> int:
    """Resident threads per SM for which registers must suffice, where a cluster has the row."""
    if added and layout.num_warps == MAX_CLUSTER_WARPS:
        return RESIDUAL_THREADS_PER_SM
    if not centred or added:
        return MAX_THREADS_PER_SM
    return CENTRED_SMALL_CLUSTER_THREADS_PER_SM if layout.cluster_size <= SMALL_CLUSTER_SIZE else CENTRED_THREADS_PER_SM


def backward_layout(M: int, N: int, itemsize: int) -> tuple[RowLayout, int]:
    """The layout and the number of tiles per program."""
    columns = next_power_of_2(N)
    if columns * itemsize > BACKWARD_SPLIT_BYTES:
        columns = BACKWARD_SPLIT_BYTES // itemsize
        return RowLayout(1, columns, -(-N // columns), BACKWARD_WARPS, reload=True), 1
    tile_bytes = BACKWARD_TILE_BYTES if is_vectorizable(N, itemsize) else BACKWARD_TILE_BYTES // 2
    rows = max(1, tile_bytes // (columns * itemsize))
    if M <= FEW_ROWS:
        block_m = FEW_ROWS if rows > FEW_ROWS else 1
        warps, (min_warps, max_warps) = block_m * columns // WARP_SIZE, FEW_ROWS_WARPS
        return RowLayout(
            block_m, columns, 1, max(1, min(warps, max_warps, max(min_warps, warps // FEW_ROWS_ELEMENTS)))
        ), 1
    layout = RowLayout(rows, columns, 1, BACKWARD_WARPS * max(1, columns * itemsize // BACKWARD_TILE_BYTES))
    if is_vectorizable(N, itemsize):
        return _match_weight_layout(layout, N, itemsize)
    return split_into_tiles(layout, N, itemsize, MULTI_TILE_ROWS, BACKWARD_WARPS)


def _match_weight_layout(layout: RowLayout, N: int, itemsize: int) -> tuple[RowLayout, int]:
    """The layout and the number of tiles per program such that a thread has the same columns of the weight as of the
    rows.

    The weight then has a vector for each thread, or fewer elements than there are threads; in between, Triton
    computes the whole tile in the layout of the weight, one element at a time. Where the weight has a vector for
    every second thread, or padded rows of half a tile do not fill it, half as many threads process half as many rows
    in twice as many programs.
    """
    threads, vector = WARP_SIZE * layout.num_warps, VECTOR_BYTES // itemsize
    vectors = layout.block_n // vector
    padded = layout.block_n * itemsize == BACKWARD_TILE_BYTES // 2 and layout.block_n > N
    if padded or vectors == threads // 2:
        return replace(layout, block_m=max(1, layout.block_m // 2), num_warps=layout.num_warps // 2), 1
    if vectors < threads <= layout.block_n:
        return replace(layout, block_n=threads // 2), -(-N // (threads // 2))
    return layout, 1


def backward_programs(M: int, layout: RowLayout, stages: int, multiprocessors: int) -> int:
    """Number of programs over which the rows are distributed, each with its own partial weight gradient.

    Several per SM where programs are small or where nothing is prefetched.
    """
    programs_per_sm = max(1, BACKWARD_WARPS // layout.num_warps)
    if stages == 1 and layout.num_splits == 1:
        programs_per_sm *= SCALAR_PROGRAMS_PER_SM
    return max(1, min(-(-M // layout.block_m), multiprocessors * programs_per_sm // layout.num_splits))


def backward_stages(
    M: int, layout: RowLayout, tiles: int, N: int, itemsizes: Sequence[int], weight_itemsize: int, shared_bytes: int
) -> int:
    """Pipeline stages of the row loop; 1 (no prefetch) where loads are scalar or a program has a single tile.

    Args:
        tiles: tiles per program.
        itemsizes: of the tensors that are loaded; all stages but one need shared memory for them and for the weight.
        weight_itemsize: bytes per element of the weight, 0 without.
    """
    if M <= FEW_ROWS or not all(is_vectorizable(N, itemsize) for itemsize in itemsizes):
        return 1
    return min(
        MAX_STAGES, 1 + shared_bytes // (tiles * layout.block_n * (layout.block_m * sum(itemsizes) + weight_itemsize))
    )


def should_reload(M: int, programs: int, read_bytes: int) -> bool:
    """Whether reading M rows again costs no more than the partial weight gradients of `programs`.

    Args:
        read_bytes: bytes per element that the second pass reads.
    """
    return programs > 1 and M <= MAX_RELOAD_ROWS and M * read_bytes <= programs * PARTIAL_BYTES
