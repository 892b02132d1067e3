"""Makes the moves that a diagnosis proposes, to see whether its predictions hold. One function for each kind of move.

Each is made in a fresh process and timed in rounds against the program as it was, one after the other where it takes
other inputs. A move that changes the result (dtype) is timed like the others: what it costs in accuracy is
`verify`'s business.
"""

from __future__ import annotations

import copy
import ctypes
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kernelwright.benchmark.variants import baseline_program
from kernelwright.core.progress import stage
from kernelwright.core.records import Diagnosis, Move, MoveOutcome
from kernelwright.diagnosis.recommendations import BATCH
from kernelwright.machines import machine as machine_here
from kernelwright.machines.floor import last_cache_bytes
from kernelwright.measure.clock import clock_for
from kernelwright.measure.paired import time_arms
from kernelwright.problems import Problem, load_candidate, load_problem
from kernelwright.sandbox import Limits, Nursery

Call = Callable[..., Any]
MAKE_LIMIT_S = 240.0
COMPILER = "torch.compile"
"""What fuses where no candidate lies beside the problem."""
M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4


def make_moves(path: Path, found: Diagnosis, device: str) -> list[MoveOutcome]:
    """Every move of a diagnosis for which there is a way to make it, with what it achieved. A candidate makes one, the
    first: what it does besides is not the doing of another."""
    outcomes, made = [], set()
    with Nursery() as nursery:
        for move in found.moves:
            by = maker(move, path, device)
            if by is None or by in made:
                continue
            made |= {by} if Path(by).is_file() else set()
            stage(f"making the move: {move.what}")
            payload = {"problem": str(path.resolve()), "device": device, "kind": move.kind, "by": by}
            answer = nursery.run(
                "kernelwright.evidence.recommendation_check:make_task", payload, Limits(time_s=MAKE_LIMIT_S)
            )
            outcomes.append(
                MoveOutcome(
                    kind=move.kind,
                    what=move.what,
                    before_us=answer["before_us"],
                    predicted_us=move.predicted_us,
                    achieved_us=answer["after_us"],
                    made_by=Path(by).name,
                )
            )
    return outcomes


def maker(move: Move, path: Path, device: str) -> str | None:
    """With what a move can be made: a candidate beside the problem, or a word for what this module does itself."""
    if move.kind in ("fuse", "split"):
        endings = ("_triton.py", "_compile.py") if device == "cuda" else (".cpp", "_compile.py")
        beside = [path.with_name(path.stem + ending) for ending in endings]
        otherwise = COMPILER if move.kind == "fuse" else None
        return next((str(file.resolve()) for file in beside if file.exists()), otherwise)
    return {"graph": "CUDA graph", "dtype": "bfloat16", "batch": f"{BATCH} rows", "reuse": "mallopt"}.get(move.kind)


def make_task(payload: dict) -> dict:
    """Runs in a nursery's child: times the program before and after one move."""
    import torch

    problem, device = load_problem(payload["problem"]), payload["device"]
    here = machine_here(device)
    program, inputs = problem.on(device), problem.inputs(device, seed=1)
    # One clock for both: a graph around a single kernel would hide the launch that the program pays for.
    clock = clock_for(device)
    options = {"device": device, "last_cache_bytes": last_cache_bytes(here), "budget_s": 3.0, "clock": clock}
    with torch.set_grad_enabled(problem.records_gradients(inputs)):
        made = _MAKERS[payload["kind"]](problem, program, inputs, payload["by"], device)
        if made is None:  # the move changes the process, not the program
            before = time_arms({"before": program}, inputs, **options).timings["before"].time_us
            _keep_freed_memory()
            return {"before_us": before, "after_us": time_arms({"a": program}, inputs, **options).timings["a"].time_us}
        after, after_inputs, shared_by = made
        before_us, after_us = _times_us(program, inputs, after, after_inputs, options)
    return {"before_us": before_us, "after_us": after_us / shared_by}


def _times_us(program: Call, inputs: Any, after: Call, after_inputs: Any, options: Any) -> tuple[float, float]:
    """In rounds where both take the same inputs, else one after the other."""
    if after_inputs is inputs:
        timings = time_arms({"before": program, "after": after}, inputs, **options).timings
        return timings["before"].time_us, timings["after"].time_us
    before = time_arms({"before": program}, inputs, **options).timings["before"]
    return before.time_us, time_arms({"after": after}, after_inputs, **options).timings["after"].time_us


def _by_candidate(problem: Problem, program: Call, inputs: Any, by: str, device: str) -> Any:
    if by == COMPILER:
        return baseline_program("compile", problem, device), inputs, 1
    return load_candidate(by, problem, device).program, inputs, 1


def _by_graph(problem: Problem, program: Call, inputs: Any, by: str, device: str) -> Any:
    from kernelwright.measure.clock import capture

    replay = capture(lambda: program(*inputs[0], **inputs[1])).replay
    return (lambda *args, **kwargs: replay()), inputs, 1


def _by_dtype(problem: Problem, program: Call, inputs: Any, by: str, device: str) -> Any:
    import torch
    from torch.utils import _pytree as pytree

    def narrow(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.bfloat16() if tensor.dtype == torch.float32 else tensor

    narrowed = copy.deepcopy(program).bfloat16() if isinstance(program, torch.nn.Module) else program
    return narrowed, pytree.tree_map_only(torch.Tensor, narrow, inputs), 1


def _by_batch(problem: Problem, program: Call, inputs: Any, by: str, device: str) -> Any:
    import torch
    from torch.utils import _pytree as pytree

    def widen(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.repeat(BATCH, *[1] * (tensor.dim() - 1)) if tensor.dim() > 1 and tensor.shape[0] == 1 else tensor

    return program, pytree.tree_map_only(torch.Tensor, widen, inputs), BATCH


def _by_reuse(problem: Problem, program: Call, inputs: Any, by: str, device: str) -> Any:
    return None


def _keep_freed_memory() -> None:
    """glibc: never give freed memory back to the system, so that no page is faulted in twice."""
    if sys.platform == "linux":
        libc = ctypes.CDLL(None)
        libc.mallopt(M_MMAP_MAX, 0)
        libc.mallopt(M_TRIM_THRESHOLD, 2**31 - 1)


_MAKERS: dict[str, Callable[[Problem, Call, Any, str, str], Any]] = {
    "fuse": _by_candidate,
    "split": _by_candidate,
    "graph": _by_graph,
    "dtype": _by_dtype,
    "batch": _by_batch,
    "reuse": _by_reuse,
}
