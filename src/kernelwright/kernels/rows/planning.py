"""Collect the kernels that an op would launch on a GPU that is not present, without launching them.

Inside `plan_launches`, ops take CPU tensors, and device properties are those of a `Target`. The results are
uninitialized memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple


@dataclass(frozen=True)
class Target:
    """A GPU to plan for.

    Attributes:
        shared_bytes: maximum shared memory of one block.
        capability: major and minor.
    """

    multiprocessors: int
    shared_bytes: int
    capability: tuple[int, int]


class TritonLaunch(NamedTuple):
    """A Triton kernel with its arguments, and its constants and compile options by name."""

    kernel: Any
    arguments: tuple[Any, ...]
    options: dict[str, Any]


class CudaLaunch(NamedTuple):
    """A CUDA C++ kernel with the macros it is compiled with."""

    source: Path
    name: str
    macros: Mapping[str, str]
    include: Path


@dataclass
class LaunchPlan:
    """The collected launches, in order."""

    target: Target
    launches: list[TritonLaunch | CudaLaunch] = field(default_factory=list)

    def add_triton(self, kernel: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> None:
        """Add the launch of a Triton kernel."""
        uses_pdl = getattr(kernel, "programmatic_launch", False) and self.target.capability >= (9, 0)
        self.launches.append(TritonLaunch(kernel, arguments, options | {"launch_pdl": uses_pdl}))

    def add_cuda(self, source: Path, name: str, macros: Mapping[str, str], include: Path) -> None:
        """Add the launch of a CUDA C++ kernel."""
        self.launches.append(CudaLaunch(source, name, macros, include))


ACTIVE_PLAN: LaunchPlan | None = None


@contextmanager
def plan_launches(target: Target) -> Iterator[LaunchPlan]:
    """Collect launches for a target; not thread-safe."""
    global ACTIVE_PLAN
    previous, ACTIVE_PLAN = ACTIVE_PLAN, LaunchPlan(target)
    try:
        yield ACTIVE_PLAN
    finally:
        ACTIVE_PLAN = previous
