"""The tile of a contraction that one program computes: its position, its masks, and the number of tiles."""

from __future__ import annotations

from math import prod

from kernelwright.compiler.regions.contraction import Contraction, Windows
from kernelwright.compiler.triton.operand_packing import INT32_ELEMENTS, power_of_two
from kernelwright.core.record import Record

GROUP_M = 8
"""Rows of tiles that run together, so that their operands stay in the L2 cache."""


class Masks(Record, frozen=True, kw_only=True):
    """Which rows and which columns of a tile are in the result, as vectors; empty where all are."""

    rows: str
    columns: str

    @property
    def both(self) -> str:
        """Which elements of the tile are."""
        expanded = (f"({self.rows})[:, None]" * bool(self.rows), f"{self.columns}[None, :]" * bool(self.columns))
        return " & ".join(filter(None, expanded))


class Tile(Record, frozen=True, kw_only=True):
    """`BLOCK_M` rows and `BLOCK_N` columns of one batch and phase of a contraction.

    Attributes:
        joins_phases: the columns are of all phases of the last dimension in turn, so that stores write whole lines.
    """

    contraction: Contraction
    BLOCK_M: int
    BLOCK_N: int
    joins_phases: bool = False

    @property
    def windows(self) -> Windows | None:
        """The images of a convolution."""
        right = self.contraction.right
        return right if isinstance(right, Windows) else None

    @property
    def phases(self) -> tuple[int, ...]:
        """The phases in each dimension that are in tiles of their own."""
        phases = self.windows.phases if self.windows else ()
        return phases[:-1] if self.joins_phases else phases

    @property
    def num_phases(self) -> int:
        """1 but for transposed convolutions with a stride."""
        return prod(self.phases)

    @property
    def lanes(self) -> int:
        """Columns for each pixel of the grid: a power of two, the last of them unused if there are fewer phases."""
        return power_of_two(self.windows.phases[-1]) if self.windows and self.joins_phases else 1

    @property
    def num_columns(self) -> int:
        """The columns of one phase."""
        return prod(self.windows.grid) * self.lanes if self.windows else self.contraction.n

    @property
    def num_tiles(self) -> tuple[int, int]:
        """Tiles along the rows and columns of one batch and phase."""
        return -(-self.contraction.m // self.BLOCK_M), -(-self.num_columns // self.BLOCK_N)

    @property
    def num_programs(self) -> int:
        """All tiles."""
        return self.contraction.batch * self.num_phases * self.num_tiles[0] * self.num_tiles[1]

    def position(self, program: str = "tl.program_id(0)") -> list[str]:
        """The batch, and the offsets of a tile's rows and columns; groups of rows run column by column.

        Args:
            program: the index of the tile among all of them.
        """
        one, (tiles_m, tiles_n) = self.contraction, self.num_tiles
        lines = [f"tile = {program}"]
        if self.num_phases > 1:
            lines += [f"phase = tile % {self.num_phases}", f"tile = tile // {self.num_phases}"]
        if one.batch > 1:
            lines += [f"batch = tile // {tiles_m * tiles_n}", f"tile = tile % {tiles_m * tiles_n}"]
        if self.windows or min(tiles_m, tiles_n) == 1:
            lines += [f"tile_m, tile_n = tile % {tiles_m}, tile // {tiles_m}"]
        else:
            lines += [
                f"group = tile // {GROUP_M * tiles_n} * {GROUP_M}",
                f"group_rows = tl.minimum({tiles_m} - group, {GROUP_M})",
                f"tile_m = group + tile % {GROUP_M * tiles_n} % group_rows",
                f"tile_n = tile % {GROUP_M * tiles_n} // group_rows",
            ]
        rows = f"batch * {one.m} + offs_m" if one.batch > 1 else "offs_m"
        wide = ".to(tl.int64)" if one.batch * one.m * one.n > INT32_ELEMENTS else ""
        lines += [
            f"offs_m = tile_m * {self.BLOCK_M} + tl.arange(0, {self.BLOCK_M})",
            f"offs_n = tile_n * {self.BLOCK_N} + tl.arange(0, {self.BLOCK_N})",
            f"rows = ({rows}){wide}" if wide else f"rows = {rows}",
        ]
        return [*lines, *self._output_pixels()]

    def _output_pixels(self) -> list[str]:
        """The column of the result of each column of a tile: pixels of one phase are apart."""
        one = self.windows
        if one is None or max(one.phases) == 1:
            return ["columns = offs_n", f"in_columns = offs_n < {self.num_columns}"]
        lines, terms, masks = [], [], [f"(offs_n < {self.num_columns})"]
        for dim, length in enumerate(one.output_size):
            pixel, phases = self._pixel(dim, one), one.phases[dim]
            if dim < len(self.phases) and phases > 1:
                lines.append(f"phase_{dim} = phase // {prod(self.phases[dim + 1 :])} % {phases}")
            lines.append(f"pixel_{dim} = {pixel}")
            terms.append(f"pixel_{dim} * {prod(one.output_size[dim + 1 :])}")
            if length % phases:
                masks.append(f"(pixel_{dim} < {length})")
        if self._has_unused_lanes:
            masks.append(f"(offs_n % {self.lanes} < {one.phases[-1]})")
        return [*lines, f"columns = {' + '.join(terms)}", f"in_columns = {' & '.join(masks)}"]

    def _pixel(self, dim: int, one: Windows) -> str:
        """The index of the output pixel of each column, without remainders of its phase where Triton should see that
        pixels are contiguous."""
        inner, size, phases = prod(one.grid[dim + 1 :]) * self.lanes, one.grid[dim], one.phases[dim]
        if dim < len(self.phases):
            phase = f" * {phases} + phase_{dim}" if phases > 1 else ""
            return f"offs_n // {inner} % {size}{phase}"
        if not self._has_unused_lanes:
            return f"offs_n % {size * phases}"
        return f"offs_n // {inner} % {size} * {phases} + offs_n % {self.lanes}"

    @property
    def _has_unused_lanes(self) -> bool:
        return self.windows is not None and self.joins_phases and self.lanes != self.windows.phases[-1]

    def masks(self) -> Masks:
        """Those of the tile's accesses."""
        one = self.contraction
        phases_end = self._has_unused_lanes or (
            self.windows
            and any(size % phases for size, phases in zip(self.windows.output_size, self.windows.phases, strict=True))
        )
        return Masks(
            rows=f"offs_m < {one.m}" if one.m % self.BLOCK_M else "",
            columns="in_columns" if phases_end or self.num_columns % self.BLOCK_N else "",
        )
