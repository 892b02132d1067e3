"""How long each kernel of a compiled program took, as torch's profiler saw it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch

from kernelwright.measure.operators import sum_device_us

os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # torch's profiler writes its progress to stderr otherwise
COMPILED_CALL_EVENT = "## Call CompiledFxGraph"
INDUCTOR_KERNEL_NAME = re.compile(r"(graph_\d+_)?cpp_fused|triton_\w*fused")
"""How Inductor names what it writes. The library too has operators with `fused` in their name: `aten::_fused_adam`."""
KERNEL_NAME_PREFIX = re.compile(r"^(aten::|(graph_\d+_)?cpp_(?=fused))")


@dataclass(frozen=True)
class KernelTime:
    """One kernel in the order of launches; `is_extern` when it is the library's and not the compiler's own."""

    name: str
    time_us: float
    is_extern: bool


def time_kernels(call: Callable[[], Any], device: str, passes: int = 5) -> list[KernelTime]:
    """Median time of each kernel of a compiled program over several runs; runs with other kernels are left out."""
    runs = [_profile_kernels(call, device) for _ in range(passes)]
    names = [[kernel.name for kernel in run] for run in runs]
    usual = max(names, key=names.count)
    alike = [run for run, seen in zip(runs, names, strict=True) if seen == usual]
    return [
        KernelTime(kernel.name, median(run[i].time_us for run in alike), kernel.is_extern)
        for i, kernel in enumerate(alike[0])
    ]


def _profile_kernels(call: Callable[[], Any], device: str) -> list[KernelTime]:
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
            name=KERNEL_NAME_PREFIX.sub("", event.name),
            time_us=sum_device_us(event) if device == "cuda" else float(event.cpu_time_total),
            is_extern=INDUCTOR_KERNEL_NAME.match(event.name) is None,
        )
        for event in events
    ]


def _is_kernel(event: Any) -> bool:
    """A kernel of the compiler's own, or what compiled code calls: an operator, or a Triton kernel of the person's."""
    if event.cpu_parent is None or not event.cpu_parent.name.startswith(COMPILED_CALL_EVENT):
        return False
    return INDUCTOR_KERNEL_NAME.match(event.name) is not None or "::" in event.name or sum_device_us(event) > 0
