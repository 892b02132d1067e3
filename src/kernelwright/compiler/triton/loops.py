"""The loops of a sweep along a row, or a part of one, as Triton text."""

from __future__ import annotations

from collections.abc import Callable

from kernelwright.compiler.triton.source_lines import select_definitions
from kernelwright.compiler.triton.tile import Tile


class RowLoops:
    """Over the steps of a tile: first those of a loop, then those that are held in registers."""

    def __init__(self, tile: Tile, stages: int) -> None:
        self.tile, self.num_stages = tile, stages

    @property
    def split_start(self) -> str:
        """Where a sweep of a program begins."""
        return "start_of_part" if self.tile.num_splits > 1 else "0"

    @property
    def split_length(self) -> str:
        """How many elements a part has."""
        return f"tl.minimum(PART, N - {self.split_start})" if self._has_short_split else "PART"

    def emit_loop(self, body: Callable[[], list[str]], backwards: bool, peel_last: bool) -> list[str]:
        """What is `body` a loop, at each step that is not held.

        Args:
            peel_last: where a row ends within a step, that step is printed apart, and the others need no mask.
        """
        tile = self.tile
        if not (peel_last and tile.needs_mask_n) or (tile.register_tiles and tile.num_splits > 1):
            return [*self._loop_head(backwards), *self.emit_body(body)]
        with tile.omit_row_mask():
            full = self.emit_body(body)
        if tile.register_tiles:  # the step in which the row ends is among them
            return [*self._loop_head(backwards), *full]
        last = self.emit_body(body)
        if tile.num_splits > 1:
            ends = [f"tl.minimum({self.split_start} + PART, {end})" for end in ("FULL", "N")]
            return [
                self._range_head(self.split_start, ends[0]),
                *full,
                f"for start in range({', '.join(ends)}, BLOCK_N):",
                *last,
            ]
        last = ["start = FULL", *(line.removeprefix("    ") for line in last)]
        if backwards:
            return [*last, *self._reverse_loop_head(tile.num_steps - 1), *full]
        return [self._range_head("0", "FULL"), *full, *last]

    def emit_single_step(self, body: Callable[[], list[str]]) -> list[str]:
        """The one step that is not held, without its loop."""
        if self.tile.num_splits > 1:
            step = self.emit_body(body)
        else:
            with self.tile.omit_row_mask():
                step = self.emit_body(body)
        return [f"start = {self.split_start}", *(line.removeprefix("    ") for line in step)]

    def emit_register_tile_loop(self, body: Callable[[], list[str]]) -> list[str]:
        """What is inside at each step that is held."""
        before = (self.tile.num_steps - self.tile.register_tiles) * self.tile.block_n
        terms = ["start_of_part"] * (self.tile.num_splits > 1) + [str(before)] * (before > 0) + ["step * BLOCK_N"]
        steps = ["for step in tl.static_range(HELD):", f"    start = {' + '.join(terms)}"]
        return [*steps, *self.emit_body(body)]

    def emit_body(self, body: Callable[[], list[str]]) -> list[str]:
        """The lines of a loop, with the indices that they need."""
        lines = body()
        return [
            f"    {line}" for line in [*select_definitions(self.tile.row_index_definitions("start"), lines), *lines]
        ]

    @property
    def _has_short_split(self) -> bool:
        """Whether the last part is shorter."""
        return self.tile.size_n % self.tile.split_size > 0

    def _loop_head(self, backwards: bool) -> list[str]:
        steps = self.tile.num_steps - self.tile.register_tiles
        if backwards:
            return self._reverse_loop_head(steps)
        last = (
            str(steps * self.tile.block_n) if self.tile.register_tiles else "N" if self.tile.num_splits == 1 else "PART"
        )
        if self.tile.num_splits > 1:
            last = f"start_of_part + {last}"
            last = f"tl.minimum({last}, N)" if self._has_short_split else last
        return [self._range_head(self.split_start, last)]

    def _reverse_loop_head(self, steps: int) -> list[str]:
        """From the last step to the first. Of a range down to -1 Triton 3.6 no longer sees that each start is a whole
        number of tiles, and reads and writes one element at a time."""
        size = self.tile.block_n
        return [f"for done in range(0, {steps * size}, BLOCK_N):", f"    start = {(steps - 1) * size} - done"]

    def _range_head(self, first: str, last: str) -> str:
        if self.num_stages > 1:
            return f"for start in tl.range({first}, {last}, BLOCK_N, num_stages={self.num_stages}):"
        return f"for start in range({first}, {last}, BLOCK_N):"
