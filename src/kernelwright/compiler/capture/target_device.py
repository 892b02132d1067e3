"""The device that a captured program will run on, where it differs from the device of the captured tensors.

torch accumulates in other dtypes on a CPU than on a GPU, so that the graph of a program depends on its device.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch

_TARGET: ContextVar[str] = ContextVar("target device", default="")


@contextmanager
def capturing_for(device: str) -> Iterator[None]:
    """Capture and partition programs in the block as if their tensors were on a device, `cpu` or `cuda`."""
    token = _TARGET.set(device)
    try:
        yield
    finally:
        _TARGET.reset(token)


def runs_on_cpu(tensor: torch.Tensor) -> bool:
    """Whether a captured tensor will be on a CPU."""
    return (_TARGET.get() or tensor.device.type) == "cpu"
