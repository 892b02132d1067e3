"""Applies the recommendations of a diagnosis to check its predictions, one function per kind of recommendation.

Each is applied in a new process and timed interleaved with the unchanged program, or sequentially if it needs other
inputs. A recommendation that changes the result (dtype) is timed like the others; its accuracy is checked by `verify`.
"""

from __future__ import annotations

import copy
import ctypes
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kernelwright.benchmark.variants import make_baseline
from kernelwright.core.diagnosis import Diagnosis, Recommendation, RecommendationOutcome
from kernelwright.core.progress import report_stage
from kernelwright.diagnosis.recommendations import BATCH_SIZE
from kernelwright.machines import machine as measured_machine
from kernelwright.machines.floor import last_cache_bytes
from kernelwright.measure.clock import clock_for
from kernelwright.measure.paired import time_variants
from kernelwright.problems import Problem, load_candidate, load_problem
from kernelwright.sandbox import ForkServer, Limits

Call = Callable[..., Any]
APPLY_LIMIT_S = 240.0
COMPILER = "torch.compile"
"""Implementation of `fuse` if there is no candidate next to the problem."""
M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4


def apply_recommendations(path: Path, diagnosis: Diagnosis, device: str) -> list[RecommendationOutcome]:
    """Apply every recommendation that has an implementation and return the achieved times.

    A candidate implements only the first of its recommendations: its time must not count for another one.
    """
    outcomes, used_candidates = [], set()
    with ForkServer() as fork_server:
        for recommendation in diagnosis.recommendations:
            by = find_implementation(recommendation, path, device)
            if by is None or by in used_candidates:
                continue
            used_candidates |= {by} if Path(by).is_file() else set()
            report_stage(f"applying: {recommendation.action}")
            payload = {"problem": str(path.resolve()), "device": device, "kind": recommendation.kind, "by": by}
            times = fork_server.run(
                "kernelwright.evidence.recommendation_check:apply_task", payload, Limits(call_timeout_s=APPLY_LIMIT_S)
            )
            outcomes.append(
                RecommendationOutcome(
                    kind=recommendation.kind,
                    action=recommendation.action,
                    before_us=times["before_us"],
                    predicted_us=recommendation.predicted_us,
                    achieved_us=times["after_us"],
                    implemented_by=Path(by).name,
                )
            )
    return outcomes


def find_implementation(recommendation: Recommendation, path: Path, device: str) -> str | None:
    """The implementation of a recommendation: a candidate next to the problem, or the name of one in this module."""
    if recommendation.kind in ("fuse", "split"):
        endings = ("_triton.py", "_compile.py") if device == "cuda" else (".cpp", "_compile.py")
        candidates = [path.with_name(path.stem + ending) for ending in endings]
        fallback = COMPILER if recommendation.kind == "fuse" else None
        return next((str(file.resolve()) for file in candidates if file.exists()), fallback)
    return {"graph": "CUDA graph", "dtype": "bfloat16", "batch": f"{BATCH_SIZE} rows", "reuse": "mallopt"}.get(
        recommendation.kind
    )


def apply_task(payload: dict) -> dict:
    """Time the program before and after one recommendation. Runs in a child of the fork server."""
    import torch

    problem, device = load_problem(payload["problem"]), payload["device"]
    machine = measured_machine(device)
    program, inputs = problem.program_on(device), problem.inputs(device, seed=1)
    # One clock for both: a graph around a single kernel would hide the launch that the program pays for.
    clock = clock_for(device)
    options = {"device": device, "last_cache_bytes": last_cache_bytes(machine), "budget_s": 3.0, "clock": clock}
    with torch.set_grad_enabled(problem.needs_grad(inputs)):
        applied = _IMPLEMENTATIONS[payload["kind"]](problem, program, inputs, payload["by"], device)
        if applied is None:  # changes the process, not the program
            before = time_variants({"before": program}, inputs, **options).timings["before"].time_us
            _disable_memory_trim()
            return {
                "before_us": before,
                "after_us": time_variants({"a": program}, inputs, **options).timings["a"].time_us,
            }
        after, after_inputs, shared_by = applied
        before_us, after_us = _time_before_after(program, inputs, after, after_inputs, options)
    return {"before_us": before_us, "after_us": after_us / shared_by}


def _time_before_after(program: Call, inputs: Any, after: Call, after_inputs: Any, options: Any) -> tuple[float, float]:
    """Time interleaved if both use the same inputs, else sequentially."""
    if after_inputs is inputs:
        timings = time_variants({"before": program, "after": after}, inputs, **options).timings
        return timings["before"].time_us, timings["after"].time_us
    before = time_variants({"before": program}, inputs, **options).timings["before"]
    return before.time_us, time_variants({"after": after}, after_inputs, **options).timings["after"].time_us


def _apply_candidate(problem: Problem, program: Call, inputs: Any, by: str, device: str) -> Any:
    if by == COMPILER:
        return make_baseline("compile", problem, device), inputs, 1
    return load_candidate(by, problem, device).program, inputs, 1


def _apply_cuda_graph(problem: Problem, program: Call, inputs: Any, by: str, device: str) -> Any:
    from kernelwright.measure.clock import capture_graph

    replay = capture_graph(lambda: program(*inputs[0], **inputs[1])).replay
    return (lambda *args, **kwargs: replay()), inputs, 1


def _apply_dtype(problem: Problem, program: Call, inputs: Any, by: str, device: str) -> Any:
    import torch
    from torch.utils import _pytree as pytree

    def narrow(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.bfloat16() if tensor.dtype == torch.float32 else tensor

    narrowed = copy.deepcopy(program).bfloat16() if isinstance(program, torch.nn.Module) else program
    return narrowed, pytree.tree_map_only(torch.Tensor, narrow, inputs), 1


def _apply_batching(problem: Problem, program: Call, inputs: Any, by: str, device: str) -> Any:
    import torch
    from torch.utils import _pytree as pytree

    def widen(tensor: torch.Tensor) -> torch.Tensor:
        return (
            tensor.repeat(BATCH_SIZE, *[1] * (tensor.dim() - 1))
            if tensor.dim() > 1 and tensor.shape[0] == 1
            else tensor
        )

    return program, pytree.tree_map_only(torch.Tensor, widen, inputs), BATCH_SIZE


def _apply_memory_reuse(problem: Problem, program: Call, inputs: Any, by: str, device: str) -> Any:
    return None


def _disable_memory_trim() -> None:
    """glibc: never return freed memory to the system, so that no page is faulted in twice."""
    if sys.platform == "linux":
        libc = ctypes.CDLL(None)
        libc.mallopt(M_MMAP_MAX, 0)
        libc.mallopt(M_TRIM_THRESHOLD, 2**31 - 1)


_IMPLEMENTATIONS: dict[str, Callable[[Problem, Call, Any, str, str], Any]] = {
    "fuse": _apply_candidate,
    "split": _apply_candidate,
    "graph": _apply_cuda_graph,
    "dtype": _apply_dtype,
    "batch": _apply_batching,
    "reuse": _apply_memory_reuse,
}
