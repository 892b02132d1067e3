"""Finds the fastest of many programs: a quick pass over all, then the best ones interleaved."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from kernelwright.measure.buffers import RotatingBuffers
from kernelwright.measure.clock import GraphClock, choose_repetitions
from kernelwright.measure.paired import time_variants

MIN_SAMPLE_US, NUM_SAMPLES = 300.0, 2
"""Of the first pass."""
FINALISTS = 5


def time_fastest(
    programs: Mapping[str, Callable[..., Any]], inputs: tuple[Any, ...], budget_s: float
) -> dict[str, float]:
    """The times of the fastest programs in us, the fastest first.

    Args:
        programs: by name, on a CUDA device.
        budget_s: of the interleaved timing.
    """
    cache_bytes = torch.cuda.get_device_properties(torch.cuda.current_device()).L2_cache_size
    buffers = RotatingBuffers((inputs, {}), cache_bytes)
    times = {name: _time_quickly_us(buffers.bind(program)) for name, program in programs.items()}
    finalists = {name: programs[name] for name in sorted(programs, key=times.__getitem__)[:FINALISTS]}
    timings = time_variants(
        finalists, (inputs, {}), device="cuda", last_cache_bytes=cache_bytes, budget_s=budget_s, clock=GraphClock()
    ).timings
    return dict(sorted(((name, timings[name].time_us) for name in finalists), key=lambda one: one[1]))


def _time_quickly_us(call: Callable[[], Any]) -> float:
    clock = GraphClock()
    repetitions = choose_repetitions(call, clock, MIN_SAMPLE_US)
    return min(clock.time_us(call, repetitions) for _ in range(NUM_SAMPLES))
