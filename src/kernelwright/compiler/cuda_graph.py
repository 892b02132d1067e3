"""The time of a call without its launches: one of many in a CUDA graph."""

from __future__ import annotations

from contextlib import suppress
from statistics import median

import torch

from kernelwright.measure.clock import BenchFn, GraphClock

NUM_CALLS, NUM_SAMPLES = 100, 5


def measure_in_graph_us(call: BenchFn) -> float | None:
    """Time a call without launch overhead, as one of many in a CUDA graph, in microseconds; None if capture fails."""
    clock = GraphClock()
    try:
        return median(clock.time_us(call, NUM_CALLS) for _ in range(NUM_SAMPLES))
    except Exception:  # as above; if the capture cannot be ended either, the next CUDA call fails
        with suppress(RuntimeError):
            end_capture()
        return None


def end_capture() -> None:
    """Reset torch's CUDA generator: a failed capture leaves it in capture mode, a successful one resets it."""
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        torch.zeros(1, device="cuda")
