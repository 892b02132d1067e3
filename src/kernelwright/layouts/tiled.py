"""Atoms tiled over warps and values: the TV layout of a whole tile.

Source: cutlass/media/docs/cpp/cute/0t_mma_atom.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kernelwright.layouts.algebra import composition, right_inverse
from kernelwright.layouts.atoms import MmaAtom
from kernelwright.layouts.errors import LayoutError
from kernelwright.layouts.layout import Layout, append, as_layout, make_layout, size
from kernelwright.layouts.tiling import logical_divide, raked_product, tiled_product, zipped_divide
from kernelwright.layouts.tuples import format_tuple, is_int

OPERAND_MODES = {"A": (0, 2), "B": (1, 2), "C": (0, 1)}
"""The modes of (M, N, K) of each operand."""


ONE_WARP = Layout((1, 1, 1))


@dataclass(frozen=True)
class TiledMma:
    """An MMA atom tiled over the warps of a block and over the values of each thread.

    Args:
        atom: the instruction.
        atom_layout: layout of the atoms along (M, N, K): their number, and the group of threads of each.
        permutation: the order in which the elements of a mode of (M, N, K) are distributed: a layout, or None for no
            permutation.
    Raises:
        LayoutError: more than three modes in `atom_layout`, or a layout that is not a permutation of a multiple of the
            atoms.
    """

    atom: MmaAtom
    atom_layout: Layout = ONE_WARP
    permutation: tuple[Any, Any, Any] = (None, None, None)

    def __post_init__(self) -> None:
        if len(self.atom_layout) > 3:
            raise LayoutError(f"atom layout {self.atom_layout}: more than the three modes M, N and K")
        for extent, count, tile in zip(self.atom.shape, self._atom_counts(), self.permutation, strict=True):
            if tile is not None and (size(tile) % (extent * count) or not _is_bijective(as_layout(tile))):
                raise LayoutError(f"permutation {tile}: not a permutation of a multiple of {extent} x {count} elements")

    @property
    def shape(self) -> tuple[int, int, int]:
        """Tile covered by one instruction of every warp in (M, N, K), or by `permutation` where that is larger."""
        # The type checker cannot infer a tuple of three from a comprehension, here and in `_atom_counts`.
        spans = zip(self.atom.shape, self._atom_counts(), self.permutation, strict=True)
        return tuple(max(extent * count, size(tile) if tile else 1) for extent, count, tile in spans)  # type: ignore[return-value]

    @property
    def threads(self) -> Layout:
        """(thread of an atom, M, N, K) -> thread of the block."""
        return tiled_product(self.atom.threads, append(self.atom_layout, *[Layout(1, 0)] * (3 - len(self.atom_layout))))

    def thread_values(self, operand: str, tensor: Layout | None = None) -> Layout:
        """(thread, value) -> offset in a tensor.

        The first mode indexes threads by number; if the numbers have gaps, as in a quadpair, by the order of `threads`.

        Args:
            operand: A (M, K), B (N, K) or C (M, N).
            tensor: layout of the operand; a compact column-major tile by default.
        Raises:
            LayoutError: the tile does not divide the tensor, or the operand is not in registers.
        """
        tv_layout, extents = self.atom.operand(operand)
        modes = OPERAND_MODES[operand]
        tensor = tensor or Layout(tuple(self.shape[mode] for mode in modes))
        _require_divisible(tensor, tuple(self.shape[mode] for mode in modes))
        permuted = logical_divide(tensor, tuple(self.permutation[mode] for mode in modes))
        inner, outer = zipped_divide(permuted, extents)
        thread, value = composition(inner, tv_layout)
        counts = self._atom_counts()
        over_warps, over_values = zipped_divide(outer, tuple(counts[mode] for mode in modes))
        warps = [Layout(count, 0) for count in counts]
        for i, mode in enumerate(modes):
            warps[mode] = over_warps[i]
        all_threads = make_layout(thread, *warps)
        if _is_bijective(self.threads):
            all_threads = composition(all_threads, right_inverse(self.threads))
        return make_layout(all_threads, make_layout(value, over_values))

    def partition(self, operand: str, tensor: Layout, thread: int) -> tuple[Layout, int]:
        """The partition of a tensor held by one thread: the layout of its values and their start offset.

        Raises:
            LayoutError: as in `thread_values`, or an unknown thread.
        """
        tv_layout, numbers = self.thread_values(operand, tensor), self.threads.offsets()
        if thread not in numbers:
            raise LayoutError(f"thread {thread!r}: the threads of {self.atom.name} are {self.threads}")
        return tv_layout[1], tv_layout[0](thread if _is_bijective(self.threads) else numbers.index(thread))

    def _atom_counts(self) -> tuple[int, int, int]:
        counts = [size(mode) for mode in self.atom_layout]
        return tuple(counts + [1] * (3 - len(counts)))  # type: ignore[return-value]


@dataclass(frozen=True)
class TiledCopy:
    """A copy of a tile by threads with several values each.

    Args:
        threads: (rows, columns) -> thread.
        values: (rows, columns) -> value index of a thread.
    Raises:
        LayoutError: threads or values are not numbered from 0, each once.
    """

    threads: Layout
    values: Layout

    def __post_init__(self) -> None:
        if not _is_bijective(self.threads) or not _is_bijective(self.values):
            raise LayoutError(
                f"threads {self.threads} and values {self.values} must each number a tile from 0, every element once"
            )

    @property
    def shape(self) -> tuple[int, ...]:
        """The (rows, columns) of the tile that all threads copy at once."""
        return tuple(size(mode) for mode in raked_product(self.threads, self.values))

    def thread_values(self, tensor: Layout | None = None) -> Layout:
        """(thread, value) -> offset in a tensor; in the compact column-major tile by default.

        Raises:
            LayoutError: the tile does not divide the tensor.
        """
        tile = raked_product(self.threads, self.values)
        tv_layout = composition(right_inverse(tile), Layout((size(self.threads), size(self.values))))
        if tensor is None:
            return tv_layout
        _require_divisible(tensor, self.shape)
        inner, outer = zipped_divide(tensor, self.shape)
        thread, value = composition(inner, tv_layout)
        return make_layout(thread, make_layout(value, outer))

    def partition(self, tensor: Layout, thread: int) -> tuple[Layout, int]:
        """The partition of a tensor copied by one thread: the layout of its values and their start offset.

        Raises:
            LayoutError: the tile does not divide the tensor, or an unknown thread.
        """
        tv_layout = self.thread_values(tensor)
        if not is_int(thread) or not 0 <= thread < size(self.threads):
            raise LayoutError(f"thread {thread!r}: the copy has {size(self.threads)} threads")
        return tv_layout[1], tv_layout[0](thread)


def _is_bijective(layout: Layout) -> bool:
    """Whether the layout is a bijection onto 0, 1, ..., size - 1."""
    return sorted(layout.offsets()) == list(range(size(layout)))


def _require_divisible(tensor: Layout, tile: tuple[int, ...]) -> None:
    if len(tensor) != len(tile) or any(size(mode) % extent for mode, extent in zip(tensor, tile, strict=True)):
        raise LayoutError(f"tiles of {format_tuple(tile)} do not divide {tensor}")
