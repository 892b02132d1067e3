"""The loops of a sweep along a row, or a part of one, as Triton text."""

from __future__ import annotations

from collections.abc import Callable

from kernelwright.compiler.triton.source_lines import used
from kernelwright.compiler.triton.tile import Tile


class Loops:
    """Over the steps of a tile: first those of a loop, then those that are held in registers."""

    def __init__(self, tile: Tile, stages: int) -> None:
        self.tile, self.stages = tile, stages

    @property
    def first(self) -> str:
        """Where a sweep of a program begins."""
        return "start_of_part" if self.tile.parts > 1 else "0"

    @property
    def size(self) -> str:
        """How many elements a part has."""
        return f"tl.minimum(PART, N - {self.first})" if self._uneven else "PART"

    def over(self, inside: Callable[[], list[str]], backwards: bool, apart: bool) -> list[str]:
        """What is `inside` a loop, at each step that is not held.

        Args:
            apart: where a row ends within a step, that step is printed apart, and the others need no mask.
        """
        tile = self.tile
        if not (apart and tile.ragged_n) or (tile.held and tile.parts > 1):
            return [*self._loop(backwards), *self.at_each_start(inside)]
        with tile.within_the_row():
            full = self.at_each_start(inside)
        if tile.held:  # the step in which the row ends is among them
            return [*self._loop(backwards), *full]
        last = self.at_each_start(inside)
        if tile.parts > 1:
            ends = [f"tl.minimum({self.first} + PART, {end})" for end in ("FULL", "N")]
            return [self._range(self.first, ends[0]), *full, f"for start in range({', '.join(ends)}, BLOCK_N):", *last]
        last = ["start = FULL", *(line.removeprefix("    ") for line in last)]
        if backwards:
            return [*last, *self._backwards(tile.steps - 1), *full]
        return [self._range("0", "FULL"), *full, *last]

    def alone(self, inside: Callable[[], list[str]]) -> list[str]:
        """The one step that is not held, without its loop."""
        if self.tile.parts > 1:
            step = self.at_each_start(inside)
        else:
            with self.tile.within_the_row():
                step = self.at_each_start(inside)
        return [f"start = {self.first}", *(line.removeprefix("    ") for line in step)]

    def over_held(self, inside: Callable[[], list[str]]) -> list[str]:
        """What is inside at each step that is held."""
        before = (self.tile.steps - self.tile.held) * self.tile.block_n
        terms = ["start_of_part"] * (self.tile.parts > 1) + [str(before)] * (before > 0) + ["step * BLOCK_N"]
        steps = ["for step in tl.static_range(HELD):", f"    start = {' + '.join(terms)}"]
        return [*steps, *self.at_each_start(inside)]

    def at_each_start(self, inside: Callable[[], list[str]]) -> list[str]:
        """The lines of a loop, with the indices that they need."""
        lines = inside()
        return [f"    {line}" for line in [*used(self.tile.columns_from("start"), lines), *lines]]

    @property
    def _uneven(self) -> bool:
        """Whether the last part is shorter."""
        return self.tile.columns % self.tile.part_size > 0

    def _loop(self, backwards: bool) -> list[str]:
        steps = self.tile.steps - self.tile.held
        if backwards:
            return self._backwards(steps)
        last = str(steps * self.tile.block_n) if self.tile.held else "N" if self.tile.parts == 1 else "PART"
        if self.tile.parts > 1:
            last = f"start_of_part + {last}"
            last = f"tl.minimum({last}, N)" if self._uneven else last
        return [self._range(self.first, last)]

    def _backwards(self, steps: int) -> list[str]:
        """From the last step to the first. Of a range down to -1 Triton 3.6 no longer sees that each start is a whole
        number of tiles, and reads and writes one element at a time."""
        size = self.tile.block_n
        return [f"for done in range(0, {steps * size}, BLOCK_N):", f"    start = {(steps - 1) * size} - done"]

    def _range(self, first: str, last: str) -> str:
        if self.stages > 1:
            return f"for start in tl.range({first}, {last}, BLOCK_N, num_stages={self.stages}):"
        return f"for start in range({first}, {last}, BLOCK_N):"
