"""How the rows of a norm lie on the chip."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

from kernelwright.kernels.rows.cluster_launch import MOST_CLUSTER_WARPS, THREADS_AT_ONCE, ClusterLayout
from kernelwright.kernels.rows.layout import (
    MOST_WARPS,
    VECTOR_BYTES,
    WARP,
    RowLayout,
    in_tiles,
    in_vectors,
    power_of_two,
    row_layout,
)

BACKWARD_TILE_BYTES, BACKWARD_WARPS = 2**14, 8
"""Of a multiprocessor, whose loads run ahead of it through shared memory."""
BACKWARD_PART_BYTES = 2**15
TILES_ROWS = 64
"""Of a program that has several tiles beside each other."""
FEW_ROWS, FEW_ROWS_WARPS, FEW_ROWS_ELEMENTS = 8, (4, 16), 32
"""Too few for the tiles of many, and alone on the machine: a variant of their own, of so many warps at least and
at most, and so many elements a thread."""
MOST_STAGES = 3
"""Tiles of a program that are under way or in use."""
READ_AGAIN_BYTES = 2**14
"""Of a row that is read twice, the second time from the cache."""
CENTRED_AT_ONCE, CENTRED_IN_FEW_AT_ONCE, FEW_PARTS = 640, 512, 2
"""Threads of a multiprocessor where a cluster has the row, or one of few blocks: moments need more registers than a
sum."""
ADDED_AT_ONCE = 1024
"""And where a residual is added in the largest blocks, of which there would be only one."""
BACKWARD_AT_ONCE = 512
"""And for a gradient, whose threads have the weight's in registers too."""
PROGRAMS_ONE_BY_ONE = 3
"""Of a multiprocessor, where elements come one by one."""
SHARES_COLUMNS, SHARES_ROWS, SHARES_WARPS = 16, 64, 4
"""Of a tile of what programs add up down the columns."""
GRADIENT_ROWS, GRADIENT_TILE, GRADIENT_TILE_OF_BOTH, MOST_READ_AGAIN = 32, (128, 2), (64, 1), 128
"""Rows, then columns and warps, of a tile that is read again for the gradient of the weight, and of the bias too; and
how many rows are: one program has all rows of its columns."""
SHARE_BYTES = 16
"""What a weight's place in a program's share of its gradient costs: 8 written and read, and registers all the while."""


def forward_layout(M: int, N: int, itemsize: int, centred: bool, added: bool) -> RowLayout:
    """As measured: rows of a power of two in more threads than the skeleton gives them, since a multiprocessor has no
    more programs of one warp than would be half of it; moments of short rows in small tiles of large programs; long
    rows for one sum read again, so that more of them are under way."""
    return _forward_layout(M <= FEW_ROWS, N, itemsize, centred, added)


@lru_cache(maxsize=4096)
def _forward_layout(few: bool, N: int, itemsize: int, centred: bool, added: bool) -> RowLayout:
    layout = row_layout(N, itemsize)
    if few and layout.rows > FEW_ROWS:
        return replace(layout, rows=FEW_ROWS, warps=min(layout.warps, FEW_ROWS_WARPS[0]))
    if layout.parts > 1 or layout.columns != N or not in_vectors(N, itemsize):
        return layout
    if layout.rows <= 2 and layout.warps < MOST_WARPS:
        return replace(layout, warps=2 * layout.warps)
    if centred and N * itemsize == WARP * VECTOR_BYTES // 2:
        return replace(layout, rows=2 * layout.rows, warps=4 * layout.warps)
    if N * itemsize == READ_AGAIN_BYTES and not centred and not added:
        return replace(layout, warps=2 * layout.warps, again=True)
    return layout


def weights_ahead(M: int, layout: RowLayout, centred: bool) -> bool:
    """Whether weights are loaded with the row, not when they are wanted: registers are left for them, or are not short
    where few programs run."""
    return layout.parts == 1 and (not centred or M <= FEW_ROWS)


def forward_at_once(layout: ClusterLayout, centred: bool, added: bool) -> int:
    """Threads of a multiprocessor that have registers, where a cluster has the row."""
    if added and layout.warps == MOST_CLUSTER_WARPS:
        return ADDED_AT_ONCE
    if not centred or added:
        return THREADS_AT_ONCE
    return CENTRED_IN_FEW_AT_ONCE if layout.parts <= FEW_PARTS else CENTRED_AT_ONCE


def backward_layout(M: int, N: int, itemsize: int) -> tuple[RowLayout, int]:
    """The layout, and how many tiles a program has beside each other."""
    columns = power_of_two(N)
    if columns * itemsize > BACKWARD_PART_BYTES:
        columns = BACKWARD_PART_BYTES // itemsize
        return RowLayout(1, columns, -(-N // columns), BACKWARD_WARPS, again=True), 1
    bytes_at_once = BACKWARD_TILE_BYTES if in_vectors(N, itemsize) else BACKWARD_TILE_BYTES // 2
    rows = max(1, bytes_at_once // (columns * itemsize))
    if M <= FEW_ROWS:
        few = FEW_ROWS if rows > FEW_ROWS else 1
        warps, (least, most) = few * columns // WARP, FEW_ROWS_WARPS
        return RowLayout(few, columns, 1, max(1, min(warps, most, max(least, warps // FEW_ROWS_ELEMENTS)))), 1
    layout = RowLayout(rows, columns, 1, BACKWARD_WARPS * max(1, columns * itemsize // BACKWARD_TILE_BYTES))
    if in_vectors(N, itemsize):
        return _beside_the_weight(layout, N, itemsize)
    return in_tiles(layout, N, itemsize, TILES_ROWS, BACKWARD_WARPS)


def _beside_the_weight(layout: RowLayout, N: int, itemsize: int) -> tuple[RowLayout, int]:
    """The layout, and how many tiles a program has beside each other, so that a thread has the same columns of the
    weight as of the rows: the weight has a vector for each thread, or fewer elements than there are threads. Between,
    Triton computes the whole tile as the weight lies, element by element.
    Where the weight has a vector for every second thread, or rows of half a tile do not fill it, half as many threads
    take half as many rows, in twice as many programs."""
    threads, vector = WARP * layout.warps, VECTOR_BYTES // itemsize
    vectors = layout.columns // vector
    padded = layout.columns * itemsize == BACKWARD_TILE_BYTES // 2 and layout.columns > N
    if padded or vectors == threads // 2:
        return replace(layout, rows=max(1, layout.rows // 2), warps=layout.warps // 2), 1
    if vectors < threads <= layout.columns:
        return replace(layout, columns=threads // 2), -(-N // (threads // 2))
    return layout, 1


def backward_groups(M: int, layout: RowLayout, stages: int, multiprocessors: int) -> int:
    """Programs that share the rows out, each keeping its own sum of the weight's gradient: where they are small, or
    where nothing is fetched ahead, several to a multiprocessor."""
    each = max(1, BACKWARD_WARPS // layout.warps)
    if stages == 1 and layout.parts == 1:
        each *= PROGRAMS_ONE_BY_ONE
    return max(1, min(-(-M // layout.rows), multiprocessors * each // layout.parts))


def backward_stages(
    M: int, layout: RowLayout, tiles: int, N: int, itemsizes: Sequence[int], along: int, shared_bytes: int
) -> int:
    """How many times the tiles of all tensors together, one of each itemsize, are under way or in use; all but one need
    room, and so does the weight, of `along` bytes an element, with each. Where elements come one by one, or where a
    program has no other tile, none is fetched ahead."""
    if M <= FEW_ROWS or not all(in_vectors(N, itemsize) for itemsize in itemsizes):
        return 1
    return min(MOST_STAGES, 1 + shared_bytes // (tiles * layout.columns * (layout.rows * sum(itemsizes) + along)))


def reads_again(M: int, programs: int, read_bytes: int) -> bool:
    """Whether M rows, of so many bytes an element, are no more to read again than the shares of so many programs."""
    return programs > 1 and M <= MOST_READ_AGAIN and M * read_bytes <= programs * SHARE_BYTES
