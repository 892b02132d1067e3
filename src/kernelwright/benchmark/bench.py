"""Is a candidate faster than what people have now, by how much, and how far from the floor.

A candidate from a file is a stranger: it is verified first, and then timed in fresh processes beside fresh processes of
the baselines, from outside where that can be (`outside`), and judged there too. Live Python objects share this process
and alternate in rounds.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any, cast

import msgspec

from kernelwright.benchmark.bounds import LowerBounds
from kernelwright.benchmark.external_timing import ExternalBenchmark
from kernelwright.benchmark.pairs import PairedTimings, exclude_rejected, time_pairs
from kernelwright.benchmark.predicted import predict_bench
from kernelwright.benchmark.variants import (
    BASELINE_NAMES,
    make_baseline,
    name_candidates,
    require_baselines,
    time_in_process,
)
from kernelwright.core.bench import Bench, VariantTiming
from kernelwright.core.errors import KernelwrightError, UsageError
from kernelwright.core.machine import Machine
from kernelwright.core.progress import report_stage
from kernelwright.core.timing import Device, Timing
from kernelwright.core.units import time_text
from kernelwright.core.verdict import Reason, Verdict
from kernelwright.machines import machine as measured_machine
from kernelwright.machines import refresh_memory
from kernelwright.machines.floor import last_cache_bytes
from kernelwright.measure.paired import InterleavedTimings
from kernelwright.problems import Candidate, Problem, load_problem
from kernelwright.problems.importing import absolute_target, split_target
from kernelwright.problems.problem import source_stem
from kernelwright.sandbox import ForkServer, Limits
from kernelwright.verification import BUILD_TIMEOUT_S, verify
from kernelwright.verification.output_checker import to_reason
from kernelwright.verification.transport.runners import PRELOAD_MODULES, can_inspect_memory
from kernelwright.verification.verdict import SEED_BITS
from kernelwright.work import count_work
from kernelwright.work.counting import ProgramWork

MIN_PAIRS, DEFAULT_PAIRS = 5, 7
SAMPLING_BUDGET_S = 0.6
PROCESS_LIMIT_S = 300.0
NOT_RECHECKED = "check the outputs of the timed calls"


def bench(
    problem: Problem | str,
    *candidates: Candidate | Callable[..., Any] | str,
    baselines: Sequence[str] = ("eager",),
    device: str = "cpu",
    pairs: int = DEFAULT_PAIRS,
    check: bool = True,
    spec: str | None = None,
    machine: Machine | None = None,
    tolerance: tuple[float, float] | None = None,
    build_timeout_s: float = BUILD_TIMEOUT_S,
    seed: int | None = None,
) -> Bench:
    """Times candidates against baselines, beside the floor and the hard bound of the problem.

    Args:
        candidates: paths (each timed in `pairs` fresh processes, twice as many where a claim is narrow) or live
            callables (timed in this process).
        baselines: any of `eager`, `compile`.
        check: verify each candidate first; a rejected one is not timed, nor is anything where all are rejected.
        spec: the name of a datasheet: nothing is timed, every time is predicted for that machine.
        machine: the device with its ceilings, if somebody has just measured them.
        tolerance, build_timeout_s: as `verify` takes them, before the timing and in it.
        seed: as `verify` takes it; for the timed calls, too, that of a verdict on a candidate that was caught in one.
    Raises:
        UsageError: an unknown baseline, fewer than five pairs, a path beside a live problem.
        NotFoundError: no datasheet is named `spec`.
    """
    require_baselines(baselines)
    if pairs < MIN_PAIRS:
        raise UsageError(f"{pairs} process pairs say too little; {MIN_PAIRS} at least")
    if device == "cpu" and (emulated := [one for one in candidates if _is_emulated(one)]) and not spec:
        message = f"{emulated[0]} runs by emulation on the CPU: its time says nothing"
        raise UsageError(message, next="kw bench ... --device cuda, or kw verify ... --device emulated")
    loaded = load_problem(problem) if isinstance(problem, str) else problem
    here = machine or refresh_memory(measured_machine(device, spec=spec))
    judged = {"device": device, "tolerance": tolerance, "build_timeout_s": build_timeout_s, "seed": seed}
    with loaded.restore_buffers():
        verdicts = dict(enumerate(_verify_all(problem, candidates, **judged))) if check else {}
        left = [at for at in range(len(candidates)) if not check or verdicts[at].accepted]
        if candidates and not left:
            return Bench(
                problem=loaded.name, machine=here, variants=(), comparisons=(), verdicts=_in_candidate_order(verdicts)
            )
        timed = [candidates[at] for at in left]
        if spec:
            return predict_bench(loaded, here, name_candidates(timed), baselines, _in_candidate_order(verdicts))
        calls_us = [verdicts[at].call_us for at in left if at in verdicts]
        timing_seed = secrets.randbits(SEED_BITS) if seed is None else seed
        known = {"call_us": min(filter(None, calls_us), default=None), "tolerance": tolerance, "seed": timing_seed}
        least = LowerBounds(here, _count_work(loaded, device))
        measured = _time_all(loaded, timed, baselines, device, pairs, least, build_timeout_s=build_timeout_s, **known)
        for at, name in zip(left, name_candidates(timed), strict=True):
            if reason := measured.rejections.get(name):
                verdict = verdicts.get(at) or _unverified_verdict(loaded, str(candidates[at]), device)
                verdicts[at] = msgspec.structs.replace(verdict, accepted=False, reason=reason, seed=timing_seed)
        return _make_bench(loaded.name, least, measured, _in_candidate_order(verdicts))


def _count_work(problem: Problem, device: str) -> ProgramWork:
    report_stage("counting the work", 120)
    return count_work(problem.program_on(device), *problem.inputs(device, seed=0))


def _in_candidate_order(verdicts: dict[int, Verdict]) -> tuple[Verdict, ...]:
    return tuple(verdicts[at] for at in sorted(verdicts))


def _unverified_verdict(problem: Problem, candidate: str, device: str) -> Verdict:
    """Of a candidate that was timed without having been verified."""
    about = {"device": cast(Device, device), "input_sets": 0, "golden": ""}
    return Verdict(accepted=True, reason=None, problem=problem.name, candidate=source_stem(candidate), **about)


def _is_emulated(candidate: Any) -> bool:
    return isinstance(candidate, str) and split_target(candidate)[0].endswith(".cu")


def _verify_all(problem: Problem | str, candidates: Sequence[Any], **options: Any) -> tuple[Verdict, ...]:
    with ForkServer(PRELOAD_MODULES) as nursery:
        return tuple(verify(problem, one, fork_server=nursery, **options) for one in candidates)


def _time_all(
    problem: Problem,
    candidates: list[Any],
    baselines: Sequence[str],
    device: str,
    pairs: int,
    bounds: LowerBounds,
    *,
    call_us: float | None,
    tolerance: tuple[float, float] | None,
    build_timeout_s: float,
    seed: int,
) -> PairedTimings:
    live = [c for c in candidates if not isinstance(c, str)]
    if live and len(live) < len(candidates):
        raise UsageError("live candidates and files cannot be timed in one bench", next="bench them one kind at a time")
    cache_bytes = last_cache_bytes(bounds.machine)
    if live or (not candidates and problem.source is None):
        return _time_live(problem, live, baselines, device, cache_bytes)
    if problem.source is None:
        raise UsageError("a candidate from a file needs a problem from a file", next="save the problem as a file")
    ours = {name: absolute_target(candidate) for name, candidate in name_candidates(candidates).items()}
    if can_inspect_memory(device):
        known = {"device": device, "cache_bytes": cache_bytes, "expected_call_us": call_us, "tolerance": tolerance}
        limits = Limits(PROCESS_LIMIT_S, build_timeout_s=build_timeout_s)
        with ExternalBenchmark(problem, ours, baselines, limits=limits, seed=seed, **known) as outside:
            measured = time_pairs(outside.time_pair, ours, baselines, pairs)
            doubted = [one.name for one in measured.timings if one.name in ours and bounds.is_implausible(one.time_us)]
            again = outside.recheck(doubted) if doubted else {}
            return exclude_rejected(measured, outside.rejections, ours, again)
    with ForkServer() as nursery:
        inside = _SelfTimedBenchmark(nursery, problem.source, ours, baselines, device, cache_bytes)
        return replace(time_pairs(inside, ours, baselines, pairs), rejections=inside.rejections)


def _time_live(
    problem: Problem, candidates: list[Any], baselines: Sequence[str], device: str, cache_bytes: int
) -> PairedTimings:
    programs = {BASELINE_NAMES[b]: make_baseline(b, problem, device) for b in baselines}
    ours = {name: getattr(candidate, "program", candidate) for name, candidate in name_candidates(candidates).items()}
    rounds: InterleavedTimings = time_in_process(
        ours | programs,
        problem,
        device=device,
        seed=secrets.randbits(31),
        cache_bytes=cache_bytes,
        budget_s=2.0 * (len(ours) + len(programs)),
    )
    return PairedTimings(list(rounds.timings.values()), [rounds.compare(a, b) for a, b in product(ours, programs)])


@dataclass
class _SelfTimedBenchmark:
    """Fresh processes that time themselves, candidates and baselines in turns: where nobody can look into them."""

    nursery: ForkServer
    source: str
    candidates: dict[str, str]
    baselines: Sequence[str]
    device: str
    cache_bytes: int
    rejections: dict[str, Reason] = field(default_factory=dict)
    _num_pairs: int = 0

    def __call__(self, what: str) -> dict[str, Timing]:
        shared = {
            "problem": absolute_target(self.source),
            "device": self.device,
            "cache_bytes": self.cache_bytes,
            "budget_s": SAMPLING_BUDGET_S,
            "seed": secrets.randbits(31),
        }
        left = {name: target for name, target in self.candidates.items() if name not in self.rejections}
        groups: list[dict[str, Any]] = [{"candidate": target, "name": name} for name, target in left.items()]
        groups.append({"baselines": list(self.baselines)})
        self._num_pairs += 1
        found: dict[str, Timing] = {}
        for group in groups if self._num_pairs % 2 else reversed(groups):
            report_stage(f"{what}: {group.get('name', 'baselines')}")
            try:
                answer = self.nursery.run(
                    "kernelwright.benchmark.variants:time_task", shared | group, Limits(PROCESS_LIMIT_S)
                )
            except KernelwrightError as fault:
                if "name" not in group:
                    raise
                self.rejections[group["name"]] = to_reason(fault)
                continue
            found |= {name: msgspec.convert(timing, Timing) for name, timing in answer.items()}
        return found


def _make_bench(name: str, bounds: LowerBounds, measured: PairedTimings, verdicts: tuple[Verdict, ...]) -> Bench:
    timings = sorted(measured.timings, key=lambda t: t.time_us)
    return Bench(
        problem=name,
        machine=bounds.machine,
        variants=tuple(
            _make_variant(timing, bounds, measured.recheck_notes.get(timing.name, NOT_RECHECKED)) for timing in timings
        ),
        comparisons=tuple(measured.comparisons),
        verdicts=verdicts,
    )


def _make_variant(timing: Timing, bounds: LowerBounds, recheck_note: str) -> VariantTiming:
    suspicious = None
    if bounds.is_implausible(timing.time_us):
        suspicious = f"{time_text(timing.time_us)} is less than {bounds.datasheet_bound_text}: {recheck_note}"
    return VariantTiming(
        name=timing.name,
        time_us=timing.time_us,
        low_us=timing.low_us,
        high_us=timing.high_us,
        floor_us=bounds.floor_us(cold=timing.conditions.cache == "cold"),
        datasheet_bound_us=bounds.datasheet_bound_us,
        suspicious=suspicious,
        timing=timing,
    )
