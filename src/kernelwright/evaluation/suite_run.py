"""A folder of problems with candidates for them: first who is right, many beside each other, then who is faster, one by
one, since whoever is timed is alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import msgspec
import torch

from kernelwright.benchmark.bench import DEFAULT_PAIRS, MIN_PAIRS, bench
from kernelwright.benchmark.variants import BASELINE_NAMES, BASELINES, require_baselines
from kernelwright.benchmark.worker_pool import map_unordered, shared_fork_server
from kernelwright.core.cache import digest
from kernelwright.core.errors import KernelwrightError, UsageError
from kernelwright.core.machine import Machine
from kernelwright.core.progress import report_stage
from kernelwright.core.suite_run import CaseOutcome, CaseTiming, CaseVerdict, ResultLine, SuiteRun, compute_fast_p_curve
from kernelwright.core.throughput import Throughput
from kernelwright.core.timing import Device
from kernelwright.core.verdict import Reason
from kernelwright.evaluation.results_log import ResultsLog
from kernelwright.machines import machine as measured_machine
from kernelwright.machines import refresh_memory
from kernelwright.measure.clock import wall_s
from kernelwright.problems.suites import CandidatePair, find_pairs
from kernelwright.verification import BUILD_TIMEOUT_S, verify

RETRIED_CODES = ("crash",)
"""Rejections that somebody outside may have caused, who killed the process: these are made twice."""
RESULTS_SUFFIX = ".results.jsonl"


@dataclass(frozen=True)
class SuiteOptions:
    """How the candidates of a run are judged and timed.

    Attributes:
        tolerance: as `verify` takes it.
        call_timeout_s: the longest that a call of a candidate may take.
        build_timeout_s: the longest that loading it may take, with all that it compiles.
        pairs: of fresh processes for each comparison.
    """

    device: str = "cpu"
    baselines: tuple[str, ...] = BASELINES
    tolerance: tuple[float, float] | None = None
    own_kernels: bool = False
    call_timeout_s: float = 60.0
    build_timeout_s: float = BUILD_TIMEOUT_S
    memory_bytes: int | None = None
    pairs: int = DEFAULT_PAIRS


def run_suite(
    folder: str,
    candidates: str | None = None,
    *,
    results: str | None = None,
    workers: int = 1,
    options: SuiteOptions | None = None,
) -> SuiteRun:
    """Judges every candidate for the problems in a folder, and times those that are accepted.

    Args:
        folder: problems, as `kernelwright.problems.suites` finds them.
        candidates: the folder of what is judged; None where the problems' files hold a `ModelNew` each.
        results: where lines are kept, one for each verdict and one for each candidate that was timed; what lies there
            of the same files and manner is not done again. None is `NAME.results.jsonl` here, NAME the folder's.
        workers: judges beside each other.
    Raises:
        NotFoundError: no such folder, no problem, no candidate.
        UsageError: an unknown baseline, too few pairs or workers, results that cannot be written or are others'.
    """
    options = options or SuiteOptions()
    require_baselines(options.baselines)
    if options.pairs < MIN_PAIRS:
        raise UsageError(f"{options.pairs} process pairs say too little; {MIN_PAIRS} at least")
    if workers < 1:
        raise UsageError(f"{workers} workers judge nothing", next="--workers 1")
    start, found = wall_s(), find_pairs(folder, candidates)
    place = Path(results or f"{Path(folder).resolve().name}{RESULTS_SUFFIX}")
    with ResultsLog[ResultLine](place, ResultLine, option="--results") as journal:
        here = measured_machine(options.device)
        run = _SuiteRunner(journal, options, here)
        run.verify_all(found.pairs, workers)
        if options.baselines:
            run.time_accepted(found.pairs)
        outcomes = tuple(map(run.case_outcome, found.pairs))
    return SuiteRun(
        suite=str(folder),
        device=cast(Device, options.device),
        machine=here,
        baselines=tuple(BASELINE_NAMES[one] for one in options.baselines),
        outcomes=outcomes,
        curves=tuple(compute_fast_p_curve(outcomes, BASELINE_NAMES[one]) for one in options.baselines),
        results_file=str(place),
        problems_without_candidate=found.problems_without_candidate,
        candidates_without_problem=found.candidates_without_problem,
        unreadable_files=found.unreadable_files,
        reused_results=run.reused_results,
        throughput=run.throughput,
        time_s=wall_s() - start,
    )


class _SuiteRunner:
    """A run beside what earlier ones have left."""

    def __init__(self, results_log: ResultsLog[ResultLine], options: SuiteOptions, machine: Machine) -> None:
        self._results_log, self._options, self._machine = results_log, options, machine
        self._verdicts = {one.key: one for one in results_log.records if isinstance(one, CaseVerdict)}
        self._timings = {one.key: one for one in results_log.records if isinstance(one, CaseTiming)}
        self.reused_results = 0
        self.throughput: Throughput | None = None

    def verify_all(self, pairs: Sequence[CandidatePair], workers: int) -> None:
        start, todo = wall_s(), self._pending(pairs, self._verdict_key, self._verdicts)
        report_stage(f"0 of {len(todo)} judged")
        for i, (pair, answer) in enumerate(self._run_tasks(workers, _verify_task, todo), 1):
            report_stage(f"{i} of {len(todo)} judged, the last was {pair.candidate}")
            line = CaseVerdict(problem=pair.problem, candidate=pair.candidate, key=self._verdict_key(pair), **answer)
            self._verdicts[line.key] = line
            self._results_log.append(line)
        self.throughput = Throughput(verdicts=len(todo), time_s=wall_s() - start, workers=workers) if todo else None

    def time_accepted(self, pairs: Sequence[CandidatePair]) -> None:
        accepted = [pair for pair in pairs if self._is_accepted(pair)]
        todo = self._pending(accepted, self._time_key, self._timings)
        if todo:
            self._machine = refresh_memory(self._machine)
            report_stage(f"0 of {len(todo)} timed")
        for i, (pair, answer) in enumerate(self._run_tasks(1, _time_task, todo), 1):
            report_stage(f"{i} of {len(todo)} timed, the last was {pair.candidate}")
            line = CaseTiming(problem=pair.problem, candidate=pair.candidate, key=self._time_key(pair), **answer)
            self._timings[line.key] = line
            self._results_log.append(line)

    def case_outcome(self, pair: CandidatePair) -> CaseOutcome:
        judged, timed = self._verdicts[self._verdict_key(pair)], self._timings.get(self._time_key(pair))
        verdict = judged.verdict
        if verdict and timed and timed.rejection:
            verdict = msgspec.structs.replace(verdict, accepted=False, reason=timed.rejection)
        return CaseOutcome(
            problem=pair.problem,
            candidate=pair.candidate,
            verdict=verdict,
            variants=timed.variants if timed else (),
            comparisons=timed.comparisons if timed else (),
            error=judged.error or (timed.error if timed else None),
        )

    def _is_accepted(self, pair: CandidatePair) -> bool:
        verdict = self._verdicts[self._verdict_key(pair)].verdict
        return verdict is not None and verdict.accepted

    def _pending(
        self, pairs: Sequence[CandidatePair], key: Callable[[CandidatePair], str], done: dict[str, Any]
    ) -> list[CandidatePair]:
        """Those that are not done yet. An error was nobody's verdict: it is tried again."""
        todo = [pair for pair in pairs if (line := done.get(key(pair))) is None or line.error]
        self.reused_results += len(pairs) - len(todo)
        return todo

    def _run_tasks(
        self,
        workers: int,
        work: Callable[[tuple[CandidatePair, SuiteOptions, Machine]], dict[str, Any]],
        todo: Sequence[CandidatePair],
    ) -> Iterator[tuple[CandidatePair, dict[str, Any]]]:
        tasks = [(pair, self._options, self._machine) for pair in todo]
        for index, answer in map_unordered(min(workers, max(1, len(tasks))), work, tasks):
            if isinstance(answer, KernelwrightError):
                answer = {"error": Reason(code=answer.code, detail=answer.message)}
            yield todo[index], answer

    def _verdict_key(self, pair: CandidatePair) -> str:
        manner = self._options
        asked = (
            manner.device,
            manner.tolerance,
            manner.own_kernels,
            manner.call_timeout_s,
            manner.build_timeout_s,
            manner.memory_bytes,
        )
        files = pair.problem_file.read_bytes(), pair.candidate_file.read_bytes()
        return digest(pair.problem, pair.candidate, *files, repr(asked))

    def _time_key(self, pair: CandidatePair) -> str:
        beside = self._options.baselines, self._options.pairs, self._machine.name, torch.__version__
        return digest(self._verdict_key(pair), repr(beside))


def _verify_task(task: tuple[CandidatePair, SuiteOptions, Machine]) -> dict[str, Any]:
    pair, manner, _ = task

    def once() -> Any:
        return verify(
            str(pair.problem_file),
            str(pair.candidate_file),
            device=manner.device,
            tolerance=manner.tolerance,
            call_timeout_s=manner.call_timeout_s,
            build_timeout_s=manner.build_timeout_s,
            memory_bytes=manner.memory_bytes,
            fork_server=shared_fork_server(),
            own_kernels=manner.own_kernels,
            check_problem=True,
        )

    verdict = once()
    if verdict.reason and verdict.reason.code in RETRIED_CODES:
        verdict = once()
    return {"verdict": verdict}


def _time_task(task: tuple[CandidatePair, SuiteOptions, Machine]) -> dict[str, Any]:
    pair, manner, here = task
    given = {"device": manner.device, "pairs": manner.pairs, "tolerance": manner.tolerance, "machine": here}
    given["build_timeout_s"] = manner.build_timeout_s
    files = str(pair.problem_file), str(pair.candidate_file)
    found = bench(*files, baselines=manner.baselines, check=False, **given)
    caught = next((verdict.reason for verdict in found.verdicts if verdict.reason), None)
    return {"variants": found.variants, "comparisons": found.comparisons, "rejection": caught}
