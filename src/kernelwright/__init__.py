"""Kernelwright: find what limits a PyTorch program or GPU kernel, write a faster version, verify it and time it.

Importing this is cheap: torch is imported when a name is used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"

if TYPE_CHECKING:
    from kernelwright.benchmark import bench
    from kernelwright.compiler import optimize
    from kernelwright.core.diagnosis import Diagnosis, Floor
    from kernelwright.core.errors import KernelwrightError
    from kernelwright.core.machine import Machine
    from kernelwright.core.timing import Timing
    from kernelwright.core.verdict import Verdict
    from kernelwright.core.work import Work
    from kernelwright.diagnosis import watch, why
    from kernelwright.machines import machine
    from kernelwright.models.patching import patch, unpatch
    from kernelwright.problems import Candidate, Problem
    from kernelwright.verification import verify

_EXPORTS = {
    "Machine": "core.machine",
    "Work": "core.work",
    "Floor": "core.diagnosis",
    "Verdict": "core.verdict",
    "Timing": "core.timing",
    "Diagnosis": "core.diagnosis",
    "Problem": "problems",
    "Candidate": "problems",
    "KernelwrightError": "core.errors",
    "machine": "machines",
    "why": "diagnosis",
    "watch": "diagnosis",
    "verify": "verification",
    "bench": "benchmark",
    "optimize": "compiler",
    "patch": "models.patching",
    "unpatch": "models.patching",
}
__all__ = [
    "Candidate",
    "Diagnosis",
    "Floor",
    "KernelwrightError",
    "Machine",
    "Problem",
    "Timing",
    "Verdict",
    "Work",
    "__version__",
    "bench",
    "machine",
    "optimize",
    "patch",
    "unpatch",
    "verify",
    "watch",
    "why",
]


def __getattr__(name: str) -> Any:
    if name not in _EXPORTS:
        raise AttributeError(f"module 'kernelwright' has no attribute {name!r}")
    return getattr(import_module(f"kernelwright.{_EXPORTS[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
