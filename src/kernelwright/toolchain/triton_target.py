"""Compiles Triton kernels for a GPU that is not here."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any


@contextmanager
def compiling_for(target: Any) -> Iterator[None]:
    """Answers a kernel that asks for its device, so that it compiles alike with one and without.

    Args:
        target: Triton's `GPUTarget`.
    """
    from triton.runtime import driver

    before = driver._active
    stand_in: Any = SimpleNamespace(get_current_target=lambda: target)
    driver.set_active(stand_in)
    try:
        yield
    finally:
        driver._active = before
