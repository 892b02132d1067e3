"""Times arms inside a process of its own: the task that a bench runs in a nursery, twice for each pair."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import chain, count
from typing import Any

import msgspec

from kernelwright.core.errors import UsageError
from kernelwright.measure.paired import InterleavedTimings, time_variants
from kernelwright.problems import Problem
from kernelwright.problems.problem import source_stem

BASELINES = ("eager", "compile")
BASELINE_NAMES = {"eager": "eager", "compile": "torch.compile"}


def require_baselines(names: Iterable[str]) -> None:
    """Raises a UsageError where one of these is no baseline."""
    if unknown := sorted(set(names) - set(BASELINES)):
        message = f"no baseline {', '.join(map(repr, unknown))}; there are {' and '.join(BASELINES)}"
        raise UsageError(message, next=f"--baseline {','.join(BASELINES)}")


def name_candidates(candidates: Sequence[Any]) -> dict[str, Any]:
    """Candidates by the names in the report: one file is `candidate`, several have their file names, live objects
    their own; a name that repeats, or is a baseline's, is numbered."""
    alone = len(candidates) == 1 and isinstance(candidates[0], str)
    names = ["candidate"] if alone else [_candidate_name(c, index) for index, c in enumerate(candidates, 1)]
    taken = {*BASELINE_NAMES.values(), *(name for name in names if names.count(name) > 1)}
    found: dict[str, Any] = {}
    for index, (name, candidate) in enumerate(zip(names, candidates, strict=True), 1):
        numbered = (f"{name} ({number})" for number in count(index))
        found[next(one for one in chain([name], numbered) if one not in taken and one not in found)] = candidate
    return found


def _candidate_name(candidate: Any, index: int) -> str:
    if isinstance(candidate, str):
        return source_stem(candidate)
    return getattr(candidate, "name", None) or getattr(candidate, "__name__", f"candidate {index}")


def make_baseline(baseline: str, problem: Problem, device: str) -> Callable[..., Any]:
    """The reference as torch runs it: `eager`, or `compile` with static shapes, as a person would call it."""
    program = problem.program_on(device)
    if baseline == "eager":
        return program
    import torch

    torch._dynamo.reset()
    return torch.compile(program, dynamic=False)


def time_in_process(
    programs: dict[str, Callable[..., Any]],
    problem: Problem,
    *,
    device: str,
    seed: int,
    cache_bytes: int,
    budget_s: float,
) -> InterleavedTimings:
    """Rounds over programs that may share this process, on inputs drawn with `seed`, without recording gradients."""
    import torch

    inputs = problem.inputs(device, seed)
    with torch.set_grad_enabled(problem.needs_grad(inputs)):
        return time_variants(programs, inputs, device=device, last_cache_bytes=cache_bytes, budget_s=budget_s)


def time_task(payload: dict) -> dict:
    """Runs in a nursery's child: loads the problem, then the named baselines or one candidate, and times them."""
    from kernelwright.problems import load_candidate, load_problem

    device, problem = payload["device"], load_problem(payload["problem"])
    if payload.get("candidate"):
        program = load_candidate(payload["candidate"], problem, device).program
        programs = {payload["name"]: program}
    else:
        programs = {BASELINE_NAMES[w]: make_baseline(w, problem, device) for w in payload["baselines"]}
    rounds = time_in_process(
        programs,
        problem,
        device=device,
        seed=payload["seed"],
        cache_bytes=payload["cache_bytes"],
        budget_s=payload["budget_s"] * len(programs),
    )
    return msgspec.to_builtins(rounds.timings)
