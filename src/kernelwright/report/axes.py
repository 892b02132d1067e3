"""Scales that turn numbers into places on paper."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class LogScale:
    """Maps [`low`, `high`] by decades to [`start`, `end`] in the drawing's units."""

    low: float
    high: float
    start: float
    end: float

    def position(self, value: float) -> float:
        """The place of a value, kept inside the scale; NaN stands at its start."""
        value = min(max(self.low, value), self.high)
        share = math.log10(value / self.low) / math.log10(self.high / self.low)
        return round(self.start + share * (self.end - self.start), 2)

    def decades(self) -> list[float]:
        """Every power of ten inside the scale; every second or third of them where they would stand too close."""
        first, last = math.ceil(math.log10(self.low) - 1e-9), math.floor(math.log10(self.high) + 1e-9)
        step = 1 + (last - first) // 8
        return [10.0**power for power in range(first, last + 1, step)]

    @property
    def per_decade(self) -> float:
        return (self.end - self.start) / math.log10(self.high / self.low)


@dataclass(frozen=True)
class LinearScale:
    """Maps [`low`, `high`] to [`start`, `end`]."""

    low: float
    high: float
    start: float
    end: float

    def position(self, value: float) -> float:
        value = min(max(self.low, value), self.high)
        return round(self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start), 3)


def padded_range(values: list[float], *, decades: float = 0.2) -> tuple[float, float]:
    """The least and greatest of positive values with a margin of `decades` on both sides; (1, 10) for none."""
    kept = [value for value in values if value > 0 and math.isfinite(value)]
    if not kept:
        return 1.0, 10.0
    margin = 10**decades
    return min(kept) / margin, max(kept) * margin


# ---- ticks

CHAR_WIDTH, MIN_LABEL_GAP = 7.4, 6.0
"""Pixels: the widest digit of a tick's label, rounded up, and the least room between two labels."""
MIN_PAGE_WIDTH = 284
"""The width of a drawing on a page of 320 px, the narrowest phone."""


@dataclass(frozen=True)
class Tick:
    """A label under an axis; `anchor` is the class that says which end of it stands at `position`."""

    position: float
    text: str
    anchor: str


def text_width(text: str) -> float:
    """The pixels that a label of 11.5 px takes at most."""
    return CHAR_WIDTH * len(text)


def place_ticks(
    places: Iterable[tuple[float, str]], start: float, end: float, *, pixels: float = 1.0, overhang: float = 0.0
) -> list[Tick]:
    """The labels that fit side by side between `start` and `end`: one that would touch the last is left out.

    Args:
        places: where each stands, ascending, and what it says.
        pixels: the width of one unit of the places on the narrowest paper.
        overhang: how many units a label may reach beyond the axis; else it begins or ends at its tick.
    """
    kept: list[Tick] = []
    edge = -math.inf
    for at, text in places:
        width = text_width(text) / pixels
        anchor = "start" if at - width / 2 < start - overhang else "end" if at + width / 2 > end + overhang else "mid"
        left = at - {"start": 0.0, "mid": width / 2, "end": width}[anchor]
        if left >= edge:
            kept.append(Tick(at, text, anchor))
            edge = left + width + MIN_LABEL_GAP / pixels
    return kept
