"""Makes, names and times the variants of a benchmark; `time_task` runs in a child of the fork server."""

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
    """Raise a UsageError if a name is not a baseline."""
    if unknown := sorted(set(names) - set(BASELINES)):
        message = f"unknown baseline {', '.join(map(repr, unknown))}; available: {', '.join(BASELINES)}"
        raise UsageError(message, next=f"--baseline {','.join(BASELINES)}")


def name_candidates(candidates: Sequence[Any]) -> dict[str, Any]:
    """Candidates by their names in the report.

    A single file is `candidate`, several files have their file names, live objects their own names. A name that repeats
    or is a baseline's gets a number.
    """
    single_file = len(candidates) == 1 and isinstance(candidates[0], str)
    names = ["candidate"] if single_file else [_candidate_name(c, index) for index, c in enumerate(candidates, 1)]
    taken = {*BASELINE_NAMES.values(), *(name for name in names if names.count(name) > 1)}
    named: dict[str, Any] = {}
    for index, (name, candidate) in enumerate(zip(names, candidates, strict=True), 1):
        numbered = (f"{name} ({number})" for number in count(index))
        named[next(one for one in chain([name], numbered) if one not in taken and one not in named)] = candidate
    return named


def _candidate_name(candidate: Any, index: int) -> str:
    if isinstance(candidate, str):
        return source_stem(candidate)
    return getattr(candidate, "name", None) or getattr(candidate, "__name__", f"candidate {index}")


def make_baseline(baseline: str, problem: Problem, device: str) -> Callable[..., Any]:
    """The reference run by torch: `eager`, or `compile` for `torch.compile` with static shapes."""
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
    """Time trusted programs interleaved in this process on inputs drawn with `seed`.

    Gradients are recorded only if the problem needs them.
    """
    import torch

    inputs = problem.inputs(device, seed)
    with torch.set_grad_enabled(problem.needs_grad(inputs)):
        return time_variants(programs, inputs, device=device, last_cache_bytes=cache_bytes, budget_s=budget_s)


def time_task(payload: dict) -> dict:
    """Load the problem and the named baselines or one candidate, and time them. Runs in a child of the fork server."""
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
