"""What a CUDA graph would make of a program whose calls cost more than its kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from statistics import median
from typing import Any

import torch

from kernelwright.core.progress import report_stage
from kernelwright.core.records import Machine
from kernelwright.core.units import time_text
from kernelwright.machines.floor import last_cache_bytes
from kernelwright.measure.clock import BenchFn, EventClock, GraphClock
from kernelwright.measure.paired import time_variants
from kernelwright.problems import Problem

NUM_CALLS, NUM_SAMPLES = 100, 5
MIN_GRAPH_SPEEDUP = 1.1
"""A graph that is not this much faster is not worth its fixed buffers."""


def suggest_cuda_graph(problem: Problem, load: Callable[[], Callable[..., Any]], machine: Machine) -> str:
    """A sentence with both times where replaying a captured graph is faster than calling, else nothing.

    Args:
        load: gives the program anew: capture changes it.
    """
    args, kwargs = problem.inputs("cuda", 0)
    if kwargs or not args or not all(isinstance(arg, torch.Tensor) for arg in args):
        return ""
    report_stage("capturing a CUDA graph")
    with torch.no_grad():
        if _mutates_args(load(), args):
            return ""
        try:
            graphed = torch.cuda.make_graphed_callables(load(), tuple(args))
        except Exception:  # it waits for the device, asks for what capture forbids: no offer, and no harm
            _end_capture()
            return ""
        arms: dict[str, Callable[..., Any]] = {"calls": load(), "graph": graphed}
        cache_bytes = last_cache_bytes(machine)
        rounds = time_variants(
            arms, (args, {}), device="cuda", last_cache_bytes=cache_bytes, budget_s=0.5, clock=EventClock()
        )
    calls, graph = (rounds.timings[name].time_us for name in ("calls", "graph"))
    if calls < graph * MIN_GRAPH_SPEEDUP:
        return ""
    return (
        f"a call costs more than its kernels: torch.cuda.make_graphed_callables(model, inputs) replays a captured CUDA "
        f"graph in {time_text(graph)} instead of {time_text(calls)}, and returns the same tensors every time"
    )


def measure_in_graph_us(call: BenchFn) -> float | None:
    """The device's time for one of many calls, in microseconds; None where capture fails."""
    clock = GraphClock()
    try:
        return median(clock.time_us(call, NUM_CALLS) for _ in range(NUM_SAMPLES))
    except Exception:  # as above; a capture that cannot be ended either shows in whatever runs next
        with suppress(RuntimeError):
            _end_capture()
        return None


def _end_capture() -> None:
    """Random numbers again: a capture that failed leaves torch's generator in it, one that succeeds takes it out."""
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        torch.zeros(1, device="cuda")


def _mutates_args(program: Callable[..., Any], args: Sequence[torch.Tensor]) -> bool:
    """Whether a program writes into its arguments, of which a graph only has copies."""
    given = [arg.clone() for arg in args]
    program(*given)
    return not all(map(torch.equal, given, args))
