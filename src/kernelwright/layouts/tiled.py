"""Atoms repeated over warps and values: which thread holds what of a whole tile.

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
"""The two of (M, N, K) that an operand has."""


ONE_WARP = Layout((1, 1, 1))


@dataclass(frozen=True)
class TiledMma:
    """An atom repeated over the warps of a block, and over the values of each thread.

    Args:
        atom: the instruction.
        atom_layout: how many atoms side by side along (M, N, K), and which group of threads does which.
        permutation: the order in which a mode of (M, N, K) is dealt out: a layout, or None for as it is.
    Raises:
        LayoutError: more than three modes of warps, or a tile that is no permutation of whole atoms of all warps.
    """

    atom: MmaAtom
    atom_layout: Layout = ONE_WARP
    permutation: tuple[Any, Any, Any] = (None, None, None)

    def __post_init__(self) -> None:
        if len(self.atom_layout) > 3:
            raise LayoutError(f"warps {self.atom_layout}: more than the three modes M, N and K")
        for extent, count, tile in zip(self.atom.shape, self._atom_counts(), self.permutation, strict=True):
            if tile is not None and (size(tile) % (extent * count) or not _is_bijective(as_layout(tile))):
                raise LayoutError(f"tile {tile}: no permutation of a multiple of {extent} x {count} elements")

    @property
    def shape(self) -> tuple[int, int, int]:
        """What one instruction of every warp covers, in (M, N, K); what `permutation` names where it is larger."""
        # Three of three, which a comprehension does not tell the type checker; so it is in `_counts`.
        spans = zip(self.atom.shape, self._atom_counts(), self.permutation, strict=True)
        return tuple(max(extent * count, size(tile) if tile else 1) for extent, count, tile in spans)  # type: ignore[return-value]

    @property
    def threads(self) -> Layout:
        """(thread of an atom, M, N, K) -> number of the thread in the block."""
        return tiled_product(self.atom.threads, append(self.atom_layout, *[Layout(1, 0)] * (3 - len(self.atom_layout))))

    def thread_values(self, operand: str, tensor: Layout | None = None) -> Layout:
        """(thread, value) -> offset in a tensor; of an operand as a compact column-major tile when none is given.

        The first mode counts threads by number; where the numbers have gaps, as in a quadpair, in the order of
        `threads`.

        Args:
            operand: A (M, K), B (N, K) or C (M, N).
        Raises:
            LayoutError: the tile does not divide the tensor, or threads do not hold that operand.
        """
        held, extents = self.atom.operand(operand)
        modes = OPERAND_MODES[operand]
        tensor = tensor or Layout(tuple(self.shape[mode] for mode in modes))
        _require_divisible(tensor, tuple(self.shape[mode] for mode in modes))
        dealt = logical_divide(tensor, tuple(self.permutation[mode] for mode in modes))
        inner, outer = zipped_divide(dealt, extents)
        thread, value = composition(inner, held)
        counts = self._atom_counts()
        across, along = zipped_divide(outer, tuple(counts[mode] for mode in modes))
        warps = [Layout(count, 0) for count in counts]
        for at, mode in enumerate(modes):
            warps[mode] = across[at]
        everyone = make_layout(thread, *warps)
        if _is_bijective(self.threads):
            everyone = composition(everyone, right_inverse(self.threads))
        return make_layout(everyone, make_layout(value, along))

    def partition(self, operand: str, tensor: Layout, thread: int) -> tuple[Layout, int]:
        """What of a tensor one thread holds: the layout of its values and the offset at which they begin.

        Raises:
            LayoutError: as for `thread_values`, or no thread has that number.
        """
        whole, numbers = self.thread_values(operand, tensor), self.threads.offsets()
        if thread not in numbers:
            raise LayoutError(f"thread {thread!r}: the threads of {self.atom.name} are {self.threads}")
        return whole[1], whole[0](thread if _is_bijective(self.threads) else numbers.index(thread))

    def _atom_counts(self) -> tuple[int, int, int]:
        counts = [size(mode) for mode in self.atom_layout]
        return tuple(counts + [1] * (3 - len(counts)))  # type: ignore[return-value]


@dataclass(frozen=True)
class TiledCopy:
    """Threads over a tile, each with a few values.

    Args:
        threads: (rows, columns) -> thread.
        values: (rows, columns) -> value of a thread.
    Raises:
        LayoutError: they do not number threads and values from 0 on, each once.
    """

    threads: Layout
    values: Layout

    def __post_init__(self) -> None:
        if not _is_bijective(self.threads) or not _is_bijective(self.values):
            raise LayoutError(f"threads {self.threads} and values {self.values} do not number a tile one by one")

    @property
    def shape(self) -> tuple[int, ...]:
        """The (rows, columns) of all values of all threads once."""
        return tuple(size(mode) for mode in raked_product(self.threads, self.values))

    def thread_values(self, tensor: Layout | None = None) -> Layout:
        """(thread, value) -> offset in a tensor, or in the compact column-major tile when none is given.

        Raises:
            LayoutError: the tile does not divide the tensor.
        """
        tile = raked_product(self.threads, self.values)
        held = composition(right_inverse(tile), Layout((size(self.threads), size(self.values))))
        if tensor is None:
            return held
        _require_divisible(tensor, self.shape)
        inner, outer = zipped_divide(tensor, self.shape)
        thread, value = composition(inner, held)
        return make_layout(thread, make_layout(value, outer))

    def partition(self, tensor: Layout, thread: int) -> tuple[Layout, int]:
        """What of a tensor one thread copies: the layout of its values and the offset at which they begin.

        Raises:
            LayoutError: the tile does not divide the tensor, or no such thread.
        """
        whole = self.thread_values(tensor)
        if not is_int(thread) or not 0 <= thread < size(self.threads):
            raise LayoutError(f"thread {thread!r}: there are {size(self.threads)}")
        return whole[1], whole[0](thread)


def _is_bijective(layout: Layout) -> bool:
    """Whether it gives 0, 1, 2 ... each to one coordinate."""
    return sorted(layout.offsets()) == list(range(size(layout)))


def _require_divisible(tensor: Layout, tile: tuple[int, ...]) -> None:
    if len(tensor) != len(tile) or any(size(mode) % extent for mode, extent in zip(tensor, tile, strict=True)):
        raise LayoutError(f"tiles of {format_tuple(tile)} do not divide {tensor}")
