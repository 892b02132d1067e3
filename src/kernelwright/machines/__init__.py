"""The ceilings of a device: measured here and kept, or read from a datasheet for a machine that is not here."""

from __future__ import annotations

import math
import sys

from kernelwright.core.errors import DeviceError
from kernelwright.core.progress import report_stage
from kernelwright.core.records import Machine
from kernelwright.machines.specs import get_spec, machine_from_spec, spec_names

__all__ = ["get_spec", "machine", "machine_from_spec", "refresh_memory", "spec_names"]
_DEVICE_HINT = "--spec h200 answers for a GPU that is not here; --device cpu measures this CPU"
_MEASURED_KEYS: list[dict[str, str]] = []
"""What this process measured itself: where other programs disturb every measurement, once per process is enough."""
_MEASURED_AT_S: dict[str, float] = {}
"""When this process last measured a device. Main memory of `MEMORY_MAX_AGE_S` ago is what it is now."""
MEMORY_MAX_AGE_S = 15.0


def machine(device: str = "cpu", *, spec: str | None = None, remeasure: bool = False) -> Machine:
    """The ceilings of `device`, measured once per device, thread count and software, then kept in the cache folder.

    A measurement that other programs disturbed is noted as such and made again by the next process; figure by figure
    the better one stays, because a ceiling can only be seen too low.

    Args:
        device: `cpu` or `cuda` (the current CUDA device).
        spec: the name of a datasheet instead; then nothing is measured, and no GPU and no torch is needed.
        remeasure: measure again even if it is known.
    Raises:
        NotFoundError: no datasheet is named `spec`.
        DeviceError: no such device here.
    Cost: the CPU takes about five seconds, an H200 about five; from the cache milliseconds.
    """
    import kernelwright.report  # noqa: F401 - so that the machine prints and draws itself

    if spec is not None:
        return machine_from_spec(spec)
    if device not in ("cpu", "cuda"):
        raise DeviceError(f"there are no ceilings of device {device!r}, only of cpu and cuda", next=_DEVICE_HINT)
    return _load_or_measure(device, remeasure)


def refresh_memory(known: Machine) -> Machine:
    """The same machine with main memory, and on the CPU page faults, measured again now; a datasheet as it is. Main
    memory stays as it is where this process has measured the CPU within seconds.

    On a shared machine the bandwidth that one process gets moves: a virtual machine with two cores gave 81, 44 and
    then 81 GB/s within half an hour. Whoever compares a time with a floor does so within one run: call this first.

    Cost: a second on most CPUs, 3.5 s where the last cache has 480 MiB, 0.4 s on an H200; the kept file stays as it is.
    """
    if known.provenance == "datasheet":
        return known
    import msgspec

    from kernelwright.machines.probes import make_bandwidths_monotonic
    from kernelwright.measure.clock import wall_s

    last_cache_bytes = max((level.capacity_bytes or 0 for level in known.levels[:-1]), default=0)
    report_stage("the bandwidth of main memory")
    if known.device == "cuda":
        from kernelwright.machines import cuda

        memory, _ = cuda.measure_dram(last_cache_bytes)
        return msgspec.structs.replace(known, levels=make_bandwidths_monotonic((*known.levels[:-1], memory)))
    from kernelwright.machines import cpu

    fault_us = cpu.measure_fault_us_per_mib()
    if wall_s() - _MEASURED_AT_S.get("cpu", -math.inf) < MEMORY_MAX_AGE_S:
        return msgspec.structs.replace(known, page_fault_us_per_mib=fault_us)
    memory, _ = cpu.measure_dram(last_cache_bytes, budget_s=0.15)
    levels = make_bandwidths_monotonic((*known.levels[:-1], memory))
    return msgspec.structs.replace(known, levels=levels, page_fault_us_per_mib=fault_us)


def _load_or_measure(device: str, remeasure: bool) -> Machine:
    import msgspec

    from kernelwright.machines import store
    from kernelwright.measure.clock import wall_s

    software = _software_versions(device)
    key = {"method": store.method_digest(), **_device_identity(device), **software}
    known = None if remeasure else store.load(key)
    if known is None or (store.is_provisional(known) and key not in _MEASURED_KEYS):
        fresh = msgspec.structs.replace(_measure(device), software=software)
        known = store.merge_best(known, fresh) if known else fresh
        store.save(key, known)
        _MEASURED_KEYS.append(key)
        _MEASURED_AT_S[device] = wall_s()
    return known


def _device_identity(device: str) -> dict[str, str]:
    """Which device it is: its name, and how much of it this process has."""
    if device == "cuda":
        from kernelwright.machines.cuda import cuda_identity

        return cuda_identity()
    from kernelwright.machines.cpu import cpu_identity

    return cpu_identity()


def _measure(device: str) -> Machine:
    if device == "cuda":
        from kernelwright.machines.cuda import measure_cuda

        return measure_cuda()
    from kernelwright.machines.cpu import measure_cpu

    return measure_cpu()


def require_device(device: str, *, next: str = _DEVICE_HINT) -> None:
    """Raises a DeviceError where torch sees no such device."""
    import torch

    if device == "cuda" and not torch.cuda.is_available():
        raise DeviceError("torch sees no CUDA device here", next=next)


def _software_versions(device: str) -> dict[str, str]:
    """The versions and policies that a measurement depends on."""
    import torch

    shared = {"torch": str(torch.__version__), "kernelwright": sys.modules["kernelwright"].__version__}
    if device == "cpu":
        from kernelwright.measure.conditions import allocation_policy

        return shared | {"allocation": allocation_policy()}
    require_device(device)
    from kernelwright.machines.cuda import cuda_software

    return shared | cuda_software()
