"""`Swizzle`: bits of an offset turned by other bits of it, so that columns of a tile lie in different banks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kernelwright.layouts.errors import LayoutError
from kernelwright.layouts.layout import Layout
from kernelwright.layouts.tuples import IntTuple, is_int


@dataclass(frozen=True, slots=True)
class Swizzle:
    """XORs `bits` bits of an offset, from bit `base` on, with the `bits` bits that stand `shift` higher.

    In the words of CuTe Swizzle<B, M, S>: the 128-byte swizzle of 16-bit elements is Swizzle(3, 3, 3), of bytes
    Swizzle(3, 4, 3). A negative shift takes the lower bits to turn the higher ones.

    Raises:
        LayoutError: negative bits or base, or a shift that is smaller than the bits, so that they would overlap.
    Source: cutlass/include/cute/swizzle.hpp.
    """

    bits: int
    base: int
    shift: int

    def __post_init__(self) -> None:
        if not all(map(is_int, (self.bits, self.base, self.shift))) or self.bits < 0 or self.base < 0:
            raise LayoutError(f"{self}: bits and base are integers from 0 on, the shift is an integer")
        if abs(self.shift) < self.bits:
            raise LayoutError(f"{self}: the shift must be at least {self.bits} bits, or the bits overlap")
        if self.base + self.bits + abs(self.shift) > 63:
            raise LayoutError(f"{self}: beyond 63 bits")

    @property
    def target_mask(self) -> int:
        """The mask of the bits that change."""
        return ((1 << self.bits) - 1) << (self.base - min(0, self.shift))

    @property
    def source_mask(self) -> int:
        """The mask of the bits that decide how."""
        return ((1 << self.bits) - 1) << (self.base + max(0, self.shift))

    def __call__(self, offset: Any) -> Any:
        """The swizzled offset; NumPy arrays give arrays. Its own inverse."""
        chosen = offset & self.source_mask
        return offset ^ (chosen >> self.shift if self.shift >= 0 else chosen << -self.shift)

    def __str__(self) -> str:
        return f"Sw<{self.bits},{self.base},{self.shift}>"


@dataclass(frozen=True, slots=True)
class ComposedLayout:
    """Swizzle o offset o layout: the function swizzle(offset + layout(c)). CuTe's ComposedLayout."""

    swizzle: Swizzle
    base_offset: int
    layout: Layout

    def __post_init__(self) -> None:
        if not is_int(self.base_offset) or self.base_offset < 0:
            raise LayoutError(f"a layout that begins at {self.base_offset!r}: an offset is an integer from 0 on")

    @property
    def shape(self) -> IntTuple:
        return self.layout.shape

    def __len__(self) -> int:
        return len(self.layout)

    def __getitem__(self, mode: int) -> ComposedLayout:
        return self.with_layout(self.layout[mode])

    def __call__(self, *coordinate: Any) -> Any:
        """As for a layout; an open mode gives a composed layout that begins at the offset of the others."""
        found = self.layout(*coordinate)
        if isinstance(found, Layout):
            return ComposedLayout(self.swizzle, self.base_offset + self.layout.offset(*coordinate), found)
        return self.swizzle(self.base_offset + found)

    def offsets(self) -> list[int]:
        return [self.swizzle(self.base_offset + offset) for offset in self.layout.offsets()]

    def with_layout(self, layout: Layout) -> ComposedLayout:
        """The same swizzle over other coordinates."""
        return ComposedLayout(self.swizzle, self.base_offset, layout)

    def flatten(self) -> ComposedLayout:
        return self.with_layout(self.layout.flatten())

    def size(self) -> int:
        return self.layout.size()

    def cosize(self) -> int:
        """One more than the largest offset, which takes a look at all of them."""
        return 1 + max(self.offsets())

    def __str__(self) -> str:
        return f"{self.swizzle} o {self.base_offset} o {self.layout}"
