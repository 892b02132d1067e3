"""Finds whether a program requires a stable order, so that the order of equal values is defined."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

SORTS = ("aten::sort", "aten::argsort")


class _StableSorts(TorchDispatchMode):
    """Records the shapes of all stable orders."""

    def __init__(self) -> None:
        super().__init__()
        self.shapes: set[tuple[int, ...]] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func._schema.name in SORTS and (kwargs or {}).get("stable"):
            order = result if isinstance(result, Tensor) else result[1]
            self.shapes.add(tuple(order.shape))
        return result


def find_stable_outputs(run: Callable[[], object], outputs: Mapping[str, Any]) -> frozenset[str]:
    """Paths of the integer outputs that have the shape of an order that the program requests with `stable=True`.

    Args:
        run: runs the program.
        outputs: the leaves that it returns, by path.
    """
    integers = {
        path: tuple(leaf.shape)
        for path, leaf in outputs.items()
        if isinstance(leaf, Tensor) and leaf.dtype in (torch.int32, torch.int64)
    }
    if not integers:
        return frozenset()
    with _StableSorts() as sorts:
        run()
    return frozenset(path for path, shape in integers.items() if shape in sorts.shapes)
