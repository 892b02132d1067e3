"""Whether a wrong output is the right answer to an earlier call."""

from __future__ import annotations

from collections import deque
from typing import Any

from torch import Tensor

KEPT_SETS, KEPT_BYTES = 8, 256 << 20
MOSTLY, ENOUGH = 0.5, 0.1


class Memory:
    """What a candidate gave so far, the last few sets of it."""

    def __init__(self) -> None:
        self._kept: deque[dict[str, Tensor]] = deque(maxlen=KEPT_SETS)

    def keep(self, leaves: dict[str, Any]) -> None:
        held = {path: leaf.detach() for path, leaf in leaves.items() if isinstance(leaf, Tensor) and leaf.numel()}
        if held and sum(leaf.nbytes for leaf in held.values()) <= KEPT_BYTES // KEPT_SETS:
            self._kept.append(held)

    def repeats(self, leaves: dict[str, Any], right: dict[str, Tensor]) -> bool:
        """Whether an output is mostly what an earlier call gave, bit by bit, where that is not right now."""
        return any(
            _repeats(leaf, right[path], earlier[path])
            for earlier in self._kept
            for path, leaf in leaves.items()
            if path in earlier and path in right
        )


def _repeats(now: Any, right: Tensor, earlier: Tensor) -> bool:
    if not isinstance(now, Tensor) or not _alike(now, earlier) or not _alike(right, earlier):
        return False
    telling = right != earlier
    return float(telling.float().mean()) >= ENOUGH and float((now == earlier)[telling].float().mean()) > MOSTLY


def _alike(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and one.dtype == other.dtype
