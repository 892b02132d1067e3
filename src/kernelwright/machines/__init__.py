"""Performance ceilings of a device: measured and cached, or from a datasheet for a machine that is not available."""

from __future__ import annotations

import math
import sys

from kernelwright.core.errors import DeviceError
from kernelwright.core.machine import Machine
from kernelwright.core.progress import report_stage
from kernelwright.machines.specs import get_spec, machine_from_spec, spec_names

__all__ = ["get_spec", "machine", "machine_from_spec", "refresh_memory", "spec_names"]
_DEVICE_HINT = "use --spec h200 for the datasheet of an absent GPU, or --device cpu to measure this CPU"
_MEASURED_KEYS: list[dict[str, str]] = []
"""Keys that this process has measured itself: on a machine that is always disturbed, once per process is enough."""
_MEASURED_AT_S: dict[str, float] = {}
"""When this process last measured a device; its DRAM bandwidth counts as current for `MEMORY_MAX_AGE_S`."""
MEMORY_MAX_AGE_S = 15.0
ESTIMATE_PARTS, NUM_DRAM_PASSES = 16, 4 * 7
"""Part of the working set of main memory that is written for an estimate, and how often a measurement reads or writes
the whole: four patterns, each with a warm-up, a trial and five samples."""


def machine(
    device: str = "cpu", *, spec: str | None = None, remeasure: bool = False, accept_disturbed: bool = False
) -> Machine:
    """The ceilings of `device`, measured once per device, thread count and software version, then cached on disk.

    A disturbed measurement is marked and repeated by the next process; the better of the two values is kept, because
    interference can only lower a ceiling.

    Args:
        device: `cpu` or `cuda` (the current CUDA device).
        spec: name of a datasheet to use instead; nothing is measured, and neither a GPU nor torch is needed.
        remeasure: measure even if there is a cached result.
        accept_disturbed: do not repeat a disturbed measurement; for a caller that has little time.
    Raises:
        NotFoundError: no datasheet is named `spec`.
        DeviceError: the device is not available.
    Cost: about five seconds on a CPU or an H200; milliseconds from the cache.
    """
    import kernelwright.report  # noqa: F401 - registers how a machine is printed and drawn

    if spec is not None:
        return machine_from_spec(spec)
    if device not in ("cpu", "cuda"):
        raise DeviceError(f"unknown device {device!r}, expected cpu or cuda", next=_DEVICE_HINT)
    return _load_or_measure(device, remeasure, accept_disturbed)


def refresh_memory(known: Machine, limit_s: float = math.inf) -> Machine:
    """The machine with the DRAM bandwidth, and on the CPU the page fault cost, measured again; a datasheet unchanged.

    The DRAM bandwidth is not repeated if this process measured the CPU within seconds.

    The bandwidth available to one process varies on a shared machine: a virtual machine with two cores reached 81, 44
    and then 81 GB/s within half an hour. Call this before comparing a time with a floor in the same run.

    Args:
        limit_s: a CPU that is estimated to take longer is returned as it is known.

    Cost: one second on most CPUs, 3.5 s with a last-level cache of 480 MiB (9 to 36 s if other processes use the
    cores), 0.4 s on an H200; the cached file is not changed.
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

    if math.isfinite(limit_s) and _estimate_dram_s(last_cache_bytes) > limit_s:
        return known
    fault_us = cpu.measure_fault_us_per_mib()
    if wall_s() - _MEASURED_AT_S.get("cpu", -math.inf) < MEMORY_MAX_AGE_S:
        return msgspec.structs.replace(known, page_fault_us_per_mib=fault_us)
    memory, _ = cpu.measure_dram(last_cache_bytes, budget_s=0.15)
    levels = make_bandwidths_monotonic((*known.levels[:-1], memory))
    return msgspec.structs.replace(known, levels=levels, page_fault_us_per_mib=fault_us)


def _estimate_dram_s(last_cache_bytes: int) -> float:
    """About the time of `cpu.measure_dram`, from a part of its working set."""
    import psutil

    from kernelwright.machines import cpu, probes
    from kernelwright.measure.clock import wall_s

    size = cpu.dram_working_set_bytes(last_cache_bytes, psutil.virtual_memory().available)
    start_s = wall_s()
    values = probes.allocate_working_set(size // ESTIMATE_PARTS, "cpu")
    allocated_s = wall_s()
    values.fill_(1.0)
    return ESTIMATE_PARTS * (allocated_s - start_s + NUM_DRAM_PASSES * (wall_s() - allocated_s))


def _load_or_measure(device: str, remeasure: bool, accept_disturbed: bool) -> Machine:
    import msgspec

    from kernelwright.machines import store
    from kernelwright.measure.clock import wall_s

    software = _software_versions(device)
    key = {"method": store.method_digest(), **_device_identity(device), **software}
    known = None if remeasure else store.load(key)
    repeated = known is not None and store.is_provisional(known) and not accept_disturbed
    if known is None or (repeated and key not in _MEASURED_KEYS):
        measured = msgspec.structs.replace(_measure(device), software=software)
        known = store.merge_best(known, measured) if known else measured
        store.save(key, known)
        _MEASURED_KEYS.append(key)
        _MEASURED_AT_S[device] = wall_s()
    return known


def _device_identity(device: str) -> dict[str, str]:
    """Name of the device, and which part of it this process can use."""
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
    """Check that torch can use the device.

    Raises:
        DeviceError: it cannot.
    """
    import torch

    if device == "cuda" and not torch.cuda.is_available():
        raise DeviceError("torch found no CUDA device on this machine", next=next)


def _software_versions(device: str) -> dict[str, str]:
    """Versions and policies that a measurement depends on."""
    import torch

    versions = {"torch": str(torch.__version__), "kernelwright": sys.modules["kernelwright"].__version__}
    if device == "cpu":
        from kernelwright.measure.conditions import allocation_policy

        return versions | {"allocation": allocation_policy()}
    require_device(device)
    from kernelwright.machines.cuda import cuda_software

    return versions | cuda_software()
