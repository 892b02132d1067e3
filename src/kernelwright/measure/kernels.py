"""How long each kernel of a compiled program took, as torch's profiler saw it."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch

from kernelwright.measure.operators import device_us

os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # torch's profiler writes its progress to stderr otherwise
CALL = "## Call CompiledFxGraph"


@dataclass(frozen=True)
class KernelTime:
    """One kernel in the order of launches; `called` when it is the library's and not the compiler's own."""

    name: str
    time_us: float
    called: bool


def kernel_times(call: Callable[[], Any], device: str, passes: int = 5) -> list[KernelTime]:
    """Median time of each kernel of a compiled program over several runs."""
    runs = [_profiled(call, device) for _ in range(passes)]
    names = [kernel.name for kernel in runs[-1]]
    alike = [run for run in runs if [kernel.name for kernel in run] == names]
    return [
        KernelTime(kernel.name, median(run[i].time_us for run in alike), kernel.called)
        for i, kernel in enumerate(runs[-1])
    ]


def _profiled(call: Callable[[], Any], device: str) -> list[KernelTime]:
    activities = [torch.profiler.ProfilerActivity.CPU]
    if device == "cuda":
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    with torch.profiler.profile(activities=activities, acc_events=True) as profile:
        call()
        if device == "cuda":
            torch.cuda.synchronize()
    events = [e for e in profile.events() or [] if _is_kernel(e)]
    events.sort(key=lambda event: event.time_range.start)
    return [
        KernelTime(
            name=event.name.removeprefix("aten::").partition("_cpp_")[2] or event.name.removeprefix("aten::"),
            time_us=device_us(event) if device == "cuda" else float(event.cpu_time_total),
            called="fused" not in event.name,
        )
        for event in events
    ]


def _is_kernel(event: Any) -> bool:
    """A kernel of the compiler's own, or an operator of the library that compiled code calls."""
    inside = event.cpu_parent is not None and event.cpu_parent.name.startswith(CALL)
    return inside and ("fused" in event.name or event.name.startswith(("aten::", "triton_", "extern")))
