"""CUDA graph replay for programs whose launch overhead exceeds their kernel time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from statistics import median
from typing import Any

import torch

from kernelwright.core.machine import Machine
from kernelwright.core.progress import report_stage
from kernelwright.core.units import time_text
from kernelwright.machines.floor import last_cache_bytes
from kernelwright.measure.clock import BenchFn, EventClock, GraphClock
from kernelwright.measure.paired import time_variants
from kernelwright.problems import Problem

NUM_CALLS, NUM_SAMPLES = 100, 5
MIN_GRAPH_SPEEDUP = 1.1
"""Least speedup that justifies the static input and output buffers of a graph."""


def suggest_cuda_graph(problem: Problem, load: Callable[[], Callable[..., Any]], machine: Machine) -> str:
    """Return a note with both times if replaying a CUDA graph is faster than calling the program, else an empty string.

    Args:
        load: returns a fresh instance of the program, because graph capture modifies it.
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
        except Exception:  # the program synchronises or calls something that capture forbids: suggest nothing
            _end_capture()
            return ""
        variants: dict[str, Callable[..., Any]] = {"calls": load(), "graph": graphed}
        cache_bytes = last_cache_bytes(machine)
        rounds = time_variants(
            variants, (args, {}), device="cuda", last_cache_bytes=cache_bytes, budget_s=0.5, clock=EventClock()
        )
    calls, graph = (rounds.timings[name].time_us for name in ("calls", "graph"))
    if calls < graph * MIN_GRAPH_SPEEDUP:
        return ""
    return (
        f"a call costs more than its kernels: torch.cuda.make_graphed_callables(model, inputs) replays a captured CUDA "
        f"graph in {time_text(graph)} instead of {time_text(calls)}, and returns the same tensors every time"
    )


def measure_in_graph_us(call: BenchFn) -> float | None:
    """Time a call without launch overhead, as one of many in a CUDA graph, in microseconds; None if capture fails."""
    clock = GraphClock()
    try:
        return median(clock.time_us(call, NUM_CALLS) for _ in range(NUM_SAMPLES))
    except Exception:  # as above; if the capture cannot be ended either, the next CUDA call fails
        with suppress(RuntimeError):
            _end_capture()
        return None


def _end_capture() -> None:
    """Reset torch's CUDA generator: a failed capture leaves it in capture mode, a successful one resets it."""
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        torch.zeros(1, device="cuda")


def _mutates_args(program: Callable[..., Any], args: Sequence[torch.Tensor]) -> bool:
    """Whether a program writes into its arguments; a graph would write into its static copies of them."""
    copies = [arg.clone() for arg in args]
    program(*copies)
    return not all(map(torch.equal, copies, args))
