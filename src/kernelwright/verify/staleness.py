"""Whether a wrong output is the right answer to an earlier call."""

from __future__ import annotations

from collections import deque
from typing import Any

import torch
from torch import Tensor

KEPT_SETS, KEPT_BYTES = 8, 256 << 20
MOSTLY, HARDLY = 0.5, 0.1


class Memory:
    """What a candidate gave so far, the last few sets of it."""

    def __init__(self) -> None:
        self._kept: deque[dict[str, Tensor]] = deque(maxlen=KEPT_SETS)

    def keep(self, leaves: dict[str, Any]) -> None:
        held = {path: leaf.detach() for path, leaf in leaves.items() if isinstance(leaf, Tensor) and leaf.numel()}
        if held and sum(leaf.nbytes for leaf in held.values()) <= KEPT_BYTES // KEPT_SETS:
            self._kept.append(held)

    def repeats(self, leaves: dict[str, Any], right: dict[str, Tensor]) -> bool:
        """Whether much of an output is what an earlier call gave, bit by bit, where the right one hardly is."""
        return any(
            _share(leaf, earlier[path]) > MOSTLY and _share(right[path], earlier[path]) < HARDLY
            for earlier in self._kept
            for path, leaf in leaves.items()
            if path in earlier and path in right
        )


def _share(one: Any, other: Tensor) -> float:
    """The share of elements that are the same number, of tensors of one kind."""
    if not isinstance(one, Tensor) or one.shape != other.shape or one.dtype != other.dtype:
        return 0.0
    return float((one == other).to(torch.float32).mean())
