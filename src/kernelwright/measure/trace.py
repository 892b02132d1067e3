"""Kernels that ran on the device and their times, from CUPTI through torch's profiler."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # torch's profiler writes its progress to stderr otherwise


class DeviceKernel(NamedTuple):
    """A kernel, copy or fill; `operator` is the `aten` operator that launched it, empty if none did."""

    name: str
    time_us: float
    operator: str


@contextlib.contextmanager
def trace_device() -> Iterator[list[DeviceKernel]]:
    """Trace the device inside the block; the yielded list is filled when the block ends."""
    kernels: list[DeviceKernel] = []
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], acc_events=True) as profiler:
        yield kernels
        torch.cuda.synchronize()
    assert profiler.profiler and profiler.profiler.kineto_results
    events = profiler.profiler.kineto_results.events()
    operators = {event.correlation_id(): event.name() for event in events if event.name().startswith("aten::")}
    for event in events:
        if event.device_type() == DeviceType.CUDA:
            operator = operators.get(event.linked_correlation_id(), "")
            kernels.append(DeviceKernel(event.name(), event.duration_ns() / 1e3, operator))
