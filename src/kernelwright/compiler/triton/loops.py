"""The loops of a pass along a row or a split of one."""

from __future__ import annotations

from collections.abc import Callable

from kernelwright.compiler.triton.source_lines import select_definitions
from kernelwright.compiler.triton.tile import Tile


class RowLoops:
    """Loops over the tiles of a row: first those that are loaded in a loop, then those kept in registers."""

    def __init__(self, tile: Tile, num_stages: int) -> None:
        self.tile, self.num_stages = tile, num_stages

    @property
    def split_start(self) -> str:
        """The first element of a program's pass."""
        return "split_start" if self.tile.num_splits > 1 else "0"

    @property
    def split_length(self) -> str:
        """The number of elements of a split."""
        return f"tl.minimum(SPLIT_SIZE, N - {self.split_start})" if self._has_short_split else "SPLIT_SIZE"

    def emit_loop(self, body: Callable[[], list[str]], backwards: bool, peel_last: bool) -> list[str]:
        """The loop over the tiles that are not register-resident.

        Args:
            body: generates the lines for one tile.
            backwards: from the last tile to the first.
            peel_last: emit a partial last tile separately, so that the other tiles need no mask.
        """
        tile = self.tile
        if not (peel_last and tile.needs_mask_n) or (tile.register_tiles and tile.num_splits > 1):
            return [*self._loop_head(backwards), *self.emit_body(body)]
        with tile.omit_row_mask():
            full = self.emit_body(body)
        if tile.register_tiles:  # the partial tile is register-resident
            return [*self._loop_head(backwards), *full]
        last = self.emit_body(body)
        if tile.num_splits > 1:
            full_end, end = (f"tl.minimum({self.split_start} + SPLIT_SIZE, {size})" for size in ("FULL_N", "N"))
            return [
                self._range_head(self.split_start, full_end),
                *full,
                f"for start_n in range({full_end}, {end}, BLOCK_N):",
                *last,
            ]
        last = ["start_n = FULL_N", *(line.removeprefix("    ") for line in last)]
        if backwards:
            return [*last, *self._reverse_loop_head(tile.num_steps - 1), *full]
        return [self._range_head("0", "FULL_N"), *full, *last]

    def emit_single_step(self, body: Callable[[], list[str]]) -> list[str]:
        """The only tile that is not register-resident, without a loop."""
        if self.tile.num_splits > 1:
            step = self.emit_body(body)
        else:
            with self.tile.omit_row_mask():
                step = self.emit_body(body)
        return [f"start_n = {self.split_start}", *(line.removeprefix("    ") for line in step)]

    def emit_register_tile_loop(self, body: Callable[[], list[str]]) -> list[str]:
        """The unrolled loop over the register-resident tiles."""
        offset = (self.tile.num_steps - self.tile.register_tiles) * self.tile.block_n
        terms = ["split_start"] * (self.tile.num_splits > 1) + [str(offset)] * (offset > 0) + ["tile * BLOCK_N"]
        head = ["for tile in tl.static_range(REGISTER_TILES):", f"    start_n = {' + '.join(terms)}"]
        return [*head, *self.emit_body(body)]

    def emit_body(self, body: Callable[[], list[str]]) -> list[str]:
        """The lines of a loop body, preceded by the indices that they use."""
        lines = body()
        return [
            f"    {line}" for line in [*select_definitions(self.tile.row_index_definitions("start_n"), lines), *lines]
        ]

    @property
    def _has_short_split(self) -> bool:
        """Whether the last split is shorter."""
        return self.tile.size_n % self.tile.split_size > 0

    def _loop_head(self, backwards: bool) -> list[str]:
        steps = self.tile.num_steps - self.tile.register_tiles
        if backwards:
            return self._reverse_loop_head(steps)
        if self.tile.register_tiles:
            end = str(steps * self.tile.block_n)
        else:
            end = "N" if self.tile.num_splits == 1 else "SPLIT_SIZE"
        if self.tile.num_splits > 1:
            end = f"split_start + {end}"
            end = f"tl.minimum({end}, N)" if self._has_short_split else end
        return [self._range_head(self.split_start, end)]

    def _reverse_loop_head(self, steps: int) -> list[str]:
        """From the last tile to the first. The loop counts up: in a range down to -1, Triton 3.6 does not see that each
        start is a multiple of the tile size, and loads and stores single elements."""
        size = self.tile.block_n
        return [f"for n_done in range(0, {steps * size}, BLOCK_N):", f"    start_n = {(steps - 1) * size} - n_done"]

    def _range_head(self, begin: str, end: str) -> str:
        if self.num_stages > 1:
            return f"for start_n in tl.range({begin}, {end}, BLOCK_N, num_stages={self.num_stages}):"
        return f"for start_n in range({begin}, {end}, BLOCK_N):"
