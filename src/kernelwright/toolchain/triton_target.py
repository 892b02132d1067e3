"""Compilation of Triton kernels for a GPU that this machine does not have."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any


@contextmanager
def compiling_for(target: Any) -> Iterator[None]:
    """Make Triton's driver report this target, so that a kernel compiles the same with and without a GPU.

    Args:
        target: Triton's `GPUTarget`.
    """
    from triton.runtime import driver

    previous = driver._active
    stub: Any = SimpleNamespace(get_current_target=lambda: target)
    driver.set_active(stub)
    try:
        yield
    finally:
        driver._active = previous
