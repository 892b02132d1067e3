"""`Swizzle`: XORs bits of an offset with other bits of it, so that the rows of a column are in different banks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kernelwright.layouts.errors import LayoutError
from kernelwright.layouts.layout import Layout
from kernelwright.layouts.tuples import IntTuple, is_int


@dataclass(frozen=True, slots=True)
class Swizzle:
    """XORs the `bits` bits of an offset that start at bit `base` with the `bits` bits that are `shift` higher.

    CuTe's Swizzle<B, M, S>: the 128-byte swizzle of 16-bit elements is Swizzle(3, 3, 3), of bytes Swizzle(3, 4, 3).
    With a negative shift the lower bits are the source and the higher ones the target.

    Raises:
        LayoutError: negative bits or base, or a shift smaller than `bits`, so that source and target overlap.
    Source: cutlass/include/cute/swizzle.hpp.
    """

    bits: int
    base: int
    shift: int

    def __post_init__(self) -> None:
        if not all(map(is_int, (self.bits, self.base, self.shift))) or self.bits < 0 or self.base < 0:
            raise LayoutError(f"{self}: bits and base must be non-negative integers, the shift an integer")
        if abs(self.shift) < self.bits:
            raise LayoutError(f"{self}: the shift must be at least {self.bits} bits, or source and target overlap")
        if self.base + self.bits + abs(self.shift) > 63:
            raise LayoutError(f"{self}: more than 63 bits")

    @property
    def target_mask(self) -> int:
        """Mask of the bits that change."""
        return ((1 << self.bits) - 1) << (self.base - min(0, self.shift))

    @property
    def source_mask(self) -> int:
        """Mask of the bits that they are XORed with."""
        return ((1 << self.bits) - 1) << (self.base + max(0, self.shift))

    def __call__(self, offset: Any) -> Any:
        """The swizzled offset; NumPy arrays return arrays. Self-inverse."""
        source = offset & self.source_mask
        return offset ^ (source >> self.shift if self.shift >= 0 else source << -self.shift)

    def __str__(self) -> str:
        return f"Sw<{self.bits},{self.base},{self.shift}>"


@dataclass(frozen=True, slots=True)
class ComposedLayout:
    """CuTe's ComposedLayout: the function swizzle(base_offset + layout(c))."""

    swizzle: Swizzle
    base_offset: int
    layout: Layout

    def __post_init__(self) -> None:
        if not is_int(self.base_offset) or self.base_offset < 0:
            raise LayoutError(f"base offset {self.base_offset!r}: must be a non-negative integer")

    @property
    def shape(self) -> IntTuple:
        """Shape of the inner layout."""
        return self.layout.shape

    def __len__(self) -> int:
        return len(self.layout)

    def __getitem__(self, mode: int) -> ComposedLayout:
        return self.with_layout(self.layout[mode])

    def __call__(self, *coordinate: Any) -> Any:
        """As for a layout; with open modes, a composed layout that starts at the offset of the other modes."""
        result = self.layout(*coordinate)
        if isinstance(result, Layout):
            return ComposedLayout(self.swizzle, self.base_offset + self.layout.offset(*coordinate), result)
        return self.swizzle(self.base_offset + result)

    def offsets(self) -> list[int]:
        """All offsets by index."""
        return [self.swizzle(self.base_offset + offset) for offset in self.layout.offsets()]

    def with_layout(self, layout: Layout) -> ComposedLayout:
        """The same swizzle and base offset with another layout."""
        return ComposedLayout(self.swizzle, self.base_offset, layout)

    def flatten(self) -> ComposedLayout:
        """The composed layout without nested modes."""
        return self.with_layout(self.layout.flatten())

    def size(self) -> int:
        """Number of coordinates."""
        return self.layout.size()

    def cosize(self) -> int:
        """One more than the largest offset; enumerates all of them."""
        return 1 + max(self.offsets())

    def __str__(self) -> str:
        return f"{self.swizzle} o {self.base_offset} o {self.layout}"
