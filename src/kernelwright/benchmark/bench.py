"""Benchmark candidates against baselines: speedup with a confidence interval, and distance to the floor.

A candidate from a file is untrusted: it is verified first, then timed in new processes against new processes of the
baselines. Where process memory can be inspected, the timing is external (`external_timing`) and outputs of the timed
calls are checked too. Live Python objects run in this process, interleaved in rounds.
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
    """Time candidates against baselines, with the floor and the datasheet bound of the problem.

    Args:
        candidates: paths (each timed in `pairs` new processes, twice as many if a result is close) or live callables
            (timed in this process).
        baselines: any of `eager`, `compile`.
        check: verify each candidate first. Rejected candidates are not timed; if all are rejected, nothing is timed.
        spec: the name of a datasheet: nothing is timed, every time is predicted for that machine.
        machine: the device with its ceilings, if already measured.
        tolerance, build_timeout_s: as in `verify`; used before and during the timing.
        seed: as in `verify`; also seeds the timed calls, and is recorded in the verdict on a candidate rejected there.
    Raises:
        UsageError: an unknown baseline, fewer than five pairs, or a candidate path with a live problem.
        NotFoundError: no datasheet is named `spec`.
    """
    require_baselines(baselines)
    if pairs < MIN_PAIRS:
        raise UsageError(f"{pairs} process pairs are too few; the minimum is {MIN_PAIRS}")
    if device == "cpu" and (emulated := [c for c in candidates if _is_emulated(c)]) and not spec:
        message = f"{emulated[0]} is emulated on the CPU, so its time is meaningless"
        raise UsageError(message, next="kw bench ... --device cuda, or kw verify ... --device emulated")
    loaded = load_problem(problem) if isinstance(problem, str) else problem
    target_machine = machine or refresh_memory(measured_machine(device, spec=spec))
    verify_options = {"device": device, "tolerance": tolerance, "build_timeout_s": build_timeout_s, "seed": seed}
    with loaded.restore_buffers():
        verdicts = dict(enumerate(_verify_all(problem, candidates, **verify_options))) if check else {}
        accepted = [i for i in range(len(candidates)) if not check or verdicts[i].accepted]
        if candidates and not accepted:
            return Bench(
                problem=loaded.name,
                machine=target_machine,
                variants=(),
                comparisons=(),
                verdicts=_in_candidate_order(verdicts),
            )
        timed = [candidates[i] for i in accepted]
        if spec:
            return predict_bench(
                loaded, target_machine, name_candidates(timed), baselines, _in_candidate_order(verdicts)
            )
        calls_us = [verdicts[i].call_us for i in accepted if i in verdicts]
        timing_seed = secrets.randbits(SEED_BITS) if seed is None else seed
        options = {"call_us": min(filter(None, calls_us), default=None), "tolerance": tolerance, "seed": timing_seed}
        bounds = LowerBounds(target_machine, count_problem(loaded, device))
        measured = _time_all(
            loaded, timed, baselines, device, pairs, bounds, build_timeout_s=build_timeout_s, **options
        )
        for i, name in zip(accepted, name_candidates(timed), strict=True):
            if reason := measured.rejections.get(name):
                verdict = verdicts.get(i) or _unverified_verdict(loaded, str(candidates[i]), device)
                verdicts[i] = msgspec.structs.replace(verdict, accepted=False, reason=reason, seed=timing_seed)
        return _make_bench(loaded.name, bounds, measured, _in_candidate_order(verdicts))


def count_problem(problem: Problem, device: str) -> ProgramWork:
    """The work of one run of a problem."""
    report_stage("counting the work", 120)
    return count_work(problem.program_on(device), *problem.inputs(device, seed=0))


def _in_candidate_order(verdicts: dict[int, Verdict]) -> tuple[Verdict, ...]:
    return tuple(verdicts[i] for i in sorted(verdicts))


def _unverified_verdict(problem: Problem, candidate: str, device: str) -> Verdict:
    """Placeholder verdict for a candidate that was timed with `check=False`."""
    metadata = {"device": cast(Device, device), "input_sets": 0, "golden": ""}
    return Verdict(accepted=True, reason=None, problem=problem.name, candidate=source_stem(candidate), **metadata)


def _is_emulated(candidate: Any) -> bool:
    return isinstance(candidate, str) and split_target(candidate)[0].endswith(".cu")


def _verify_all(problem: Problem | str, candidates: Sequence[Any], **options: Any) -> tuple[Verdict, ...]:
    with ForkServer(PRELOAD_MODULES) as fork_server:
        return tuple(verify(problem, candidate, fork_server=fork_server, **options) for candidate in candidates)


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
        raise UsageError(
            "live candidates and files cannot be timed in one benchmark", next="benchmark each kind separately"
        )
    cache_bytes = last_cache_bytes(bounds.machine)
    if live or (not candidates and problem.source is None):
        return _time_live(problem, live, baselines, device, cache_bytes)
    if problem.source is None:
        raise UsageError("a candidate from a file needs a problem from a file", next="save the problem as a file")
    ours = {name: absolute_target(candidate) for name, candidate in name_candidates(candidates).items()}
    if can_inspect_memory(device):
        options = {"device": device, "cache_bytes": cache_bytes, "expected_call_us": call_us, "tolerance": tolerance}
        limits = Limits(PROCESS_LIMIT_S, build_timeout_s=build_timeout_s)
        with ExternalBenchmark(problem, ours, baselines, limits=limits, seed=seed, **options) as external:
            measured = time_pairs(external.time_pair, ours, baselines, pairs)
            implausible = [t.name for t in measured.timings if t.name in ours and bounds.is_implausible(t.time_us)]
            recheck_notes = external.recheck(implausible) if implausible else {}
            return exclude_rejected(measured, external.rejections, ours, recheck_notes)
    with ForkServer() as fork_server:
        self_timed = _SelfTimedBenchmark(fork_server, problem.source, ours, baselines, device, cache_bytes)
        return replace(time_pairs(self_timed, ours, baselines, pairs), rejections=self_timed.rejections)


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
    """New processes that time themselves, candidates and baselines alternating.

    Used where process memory cannot be inspected.
    """

    fork_server: ForkServer
    source: str
    candidates: dict[str, str]
    baselines: Sequence[str]
    device: str
    cache_bytes: int
    rejections: dict[str, Reason] = field(default_factory=dict)
    _num_pairs: int = 0

    def __call__(self, stage: str) -> dict[str, Timing]:
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
        timings: dict[str, Timing] = {}
        for group in groups if self._num_pairs % 2 else reversed(groups):
            report_stage(f"{stage}: {group.get('name', 'baselines')}")
            try:
                answer = self.fork_server.run(
                    "kernelwright.benchmark.variants:time_task", shared | group, Limits(PROCESS_LIMIT_S)
                )
            except KernelwrightError as error:
                if "name" not in group:
                    raise
                self.rejections[group["name"]] = to_reason(error)
                continue
            timings |= {name: msgspec.convert(timing, Timing) for name, timing in answer.items()}
        return timings


def summarize_rounds(
    problem: Problem,
    machine: Machine,
    device: str,
    rounds: InterleavedTimings,
    names: Sequence[tuple[str, str]],
    verdicts: Sequence[Verdict],
    work: ProgramWork | None = None,
) -> Bench:
    """The benchmark of a trusted candidate that was timed interleaved with its baselines in this process.

    Args:
        names: of the candidate, then of its baselines: the name of the timing and that in the benchmark.
        work: the program's work, if it was counted before.
    """
    timed = [(old, new) for old, new in names if old in rounds.timings]
    timings = [msgspec.structs.replace(rounds.timings[old], name=new) for old, new in timed]
    (candidate, name), *baselines = timed
    comparisons = [
        msgspec.structs.replace(rounds.compare(candidate, old), variant=name, baseline=new) for old, new in baselines
    ]
    bounds = LowerBounds(machine, work or count_problem(problem, device))
    return _make_bench(problem.name, bounds, PairedTimings(timings, comparisons), tuple(verdicts))


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
