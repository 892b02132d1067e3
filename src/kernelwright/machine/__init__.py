"""The ceilings of a device: measured here and kept, or read from a datasheet for a machine that is not here."""

from __future__ import annotations

import sys

from kernelwright.core.deed import callable_package
from kernelwright.core.errors import DeviceError
from kernelwright.core.records import Machine
from kernelwright.machine.specs import names, predicted_machine, spec_named

__all__ = ["machine", "names", "predicted_machine", "spec_named"]
_INSTEAD = "--spec h200 answers for a GPU that is not here; --device cpu measures this CPU"


def machine(device: str = "cpu", *, spec: str | None = None, remeasure: bool = False) -> Machine:
    """The ceilings of `device`, measured once per device, thread count and software, then kept in the cache folder.

    Args:
        device: `cpu` or `cuda` (the current CUDA device).
        spec: the name of a datasheet instead; then nothing is measured, and no GPU and no torch is needed.
        remeasure: measure again even if it is known.
    Raises:
        NotFoundError: no datasheet is named `spec`.
        DeviceError: no such device here.
    Cost: the CPU takes about four seconds, an H200 about five; from the cache milliseconds.
    """
    if spec is not None:
        return predicted_machine(spec)
    if device not in ("cpu", "cuda"):
        raise DeviceError(f"there are no ceilings of device {device!r}, only of cpu and cuda", next=_INSTEAD)
    return _measured(device, remeasure)


def _measured(device: str, remeasure: bool) -> Machine:
    import msgspec

    from kernelwright.machine import store

    software = _software(device)
    key = {"method": store.method_digest(), **_identity(device), **software}
    known = None if remeasure else store.load(key)
    if known is None:
        known = msgspec.structs.replace(_measure(device), software=software)
        store.save(key, known)
    return known


def _identity(device: str) -> dict[str, str]:
    """Which device it is: its name, and how much of it this process has."""
    if device == "cuda":
        from kernelwright.machine.cuda import cuda_identity

        return cuda_identity()
    from kernelwright.machine.cpu import cpu_identity

    return cpu_identity()


def _measure(device: str) -> Machine:
    if device == "cuda":
        from kernelwright.machine.cuda import measure_cuda

        return measure_cuda()
    from kernelwright.machine.cpu import measure_cpu

    return measure_cpu()


def _software(device: str) -> dict[str, str]:
    """The versions and policies that a measurement depends on."""
    import torch

    shared = {"torch": str(torch.__version__), "kernelwright": sys.modules["kernelwright"].__version__}
    if device == "cpu":
        from kernelwright.measure.conditions import allocation_policy

        return shared | {"allocation": allocation_policy()}
    if not torch.cuda.is_available():
        raise DeviceError("torch sees no CUDA device here", next=_INSTEAD)
    from kernelwright.machine.cuda import cuda_software

    return shared | cuda_software()


callable_package(__name__)
