"""Which kernels ran on the device, and how long each took there, as CUPTI saw it through torch's profiler."""

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
    """A kernel, a copy or a fill; `operator` is that of torch's `aten` that launched it, empty for none."""

    name: str
    time_us: float
    operator: str


@contextlib.contextmanager
def trace_device() -> Iterator[list[DeviceKernel]]:
    """What ran on the device within the block; there when it is left."""
    found: list[DeviceKernel] = []
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], acc_events=True) as seen:
        yield found
        torch.cuda.synchronize()
    assert seen.profiler and seen.profiler.kineto_results
    events = seen.profiler.kineto_results.events()
    operators = {one.correlation_id(): one.name() for one in events if one.name().startswith("aten::")}
    for one in events:
        if one.device_type() == DeviceType.CUDA:
            operator = operators.get(one.linked_correlation_id(), "")
            found.append(DeviceKernel(one.name(), one.duration_ns() / 1e3, operator))
