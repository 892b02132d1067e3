"""Time per kernel of a compiled program, from torch's profiler."""

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
"""Names of Inductor's generated kernels. Library operators can contain `fused` too: `aten::_fused_adam`."""
KERNEL_NAME_PREFIX = re.compile(r"^(aten::|(graph_\d+_)?cpp_(?=fused))")


@dataclass(frozen=True)
class KernelTime:
    """One kernel in launch order; `is_extern` if Inductor calls it from a library instead of generating it."""

    name: str
    time_us: float
    is_extern: bool


def time_kernels(call: Callable[[], Any], device: str, passes: int = 5) -> list[KernelTime]:
    """Median time of each kernel of a compiled program over several runs; runs with different kernels are ignored."""
    runs = [_profile_kernels(call, device) for _ in range(passes)]
    names = [[kernel.name for kernel in run] for run in runs]
    most_common = max(names, key=names.count)
    matching = [run for run, kernels in zip(runs, names, strict=True) if kernels == most_common]
    return [
        KernelTime(kernel.name, median(run[i].time_us for run in matching), kernel.is_extern)
        for i, kernel in enumerate(matching[0])
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
    """Whether the event is a generated kernel, or an operator or user-written Triton kernel called by compiled code."""
    if event.cpu_parent is None or not event.cpu_parent.name.startswith(COMPILED_CALL_EVENT):
        return False
    return INDUCTOR_KERNEL_NAME.match(event.name) is not None or "::" in event.name or sum_device_us(event) > 0
