"""Which kernels ran on the device, and how long each took there, as CUPTI saw it through torch's profiler."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # torch's profiler writes its progress to stderr otherwise


@contextlib.contextmanager
def device_trace() -> Iterator[list[tuple[str, float]]]:
    """Kernels, copies and fills that ran within the block, by name, and their microseconds; there when it is left."""
    found: list[tuple[str, float]] = []
    with profile(activities=[ProfilerActivity.CUDA], acc_events=True) as seen:
        yield found
        torch.cuda.synchronize()
    assert seen.profiler and seen.profiler.kineto_results
    events = seen.profiler.kineto_results.events()
    found += [(one.name(), one.duration_ns() / 1e3) for one in events if one.device_type() == DeviceType.CUDA]
