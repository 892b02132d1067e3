"""Runs a folder of problems with candidates: verifies all candidates in parallel, then times the accepted ones one at a
time, because timing needs an otherwise idle machine."""

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
from kernelwright.core.fast_p import compute_fast_p_curve
from kernelwright.core.machine import Machine
from kernelwright.core.progress import report_stage
from kernelwright.core.suite_run import CaseOutcome, CaseTiming, CaseVerdict, ResultLine, SuiteRun
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
"""Rejections that another process may have caused by killing the candidate: verified a second time."""
RESULTS_SUFFIX = ".results.jsonl"


@dataclass(frozen=True)
class SuiteOptions:
    """Options for verifying and timing the candidates of a run.

    Attributes:
        tolerance: as in `verify`.
        call_timeout_s: time limit of one call of a candidate.
        build_timeout_s: time limit for loading it, including all compilation.
        pairs: number of process pairs per comparison.
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
    """Verify every candidate for the problems in a folder, and time the accepted ones.

    Args:
        folder: problems, as found by `kernelwright.problems.suites`.
        candidates: folder of the candidates; None if each problem file contains a `ModelNew`.
        results: results file with one line per verdict and per timed candidate. Results of the same files and options
            are reused. By default `NAME.results.jsonl` in the working directory, with the folder's name.
        workers: number of candidates verified in parallel.
    Raises:
        NotFoundError: no such folder, no problem, or no candidate.
        UsageError: an unknown baseline, too few pairs or workers, or a results file that cannot be written or belongs
            to another kind of run.
    """
    options = options or SuiteOptions()
    require_baselines(options.baselines)
    if options.pairs < MIN_PAIRS:
        raise UsageError(f"{options.pairs} process pairs are too few; the minimum is {MIN_PAIRS}")
    if workers < 1:
        raise UsageError(f"{workers} workers: at least 1 is needed", next="--workers 1")
    start, suite = wall_s(), find_pairs(folder, candidates)
    results_path = Path(results or f"{Path(folder).resolve().name}{RESULTS_SUFFIX}")
    with ResultsLog[ResultLine](results_path, ResultLine, option="--results") as results_log:
        machine = measured_machine(options.device)
        run = _SuiteRunner(results_log, options, machine)
        run.verify_all(suite.pairs, workers)
        if options.baselines:
            run.time_accepted(suite.pairs)
        outcomes = tuple(map(run.case_outcome, suite.pairs))
    return SuiteRun(
        suite=str(folder),
        device=cast(Device, options.device),
        machine=machine,
        baselines=tuple(BASELINE_NAMES[one] for one in options.baselines),
        outcomes=outcomes,
        curves=tuple(compute_fast_p_curve(outcomes, BASELINE_NAMES[one]) for one in options.baselines),
        results_file=str(results_path),
        problems_without_candidate=suite.problems_without_candidate,
        candidates_without_problem=suite.candidates_without_problem,
        unreadable_files=suite.unreadable_files,
        reused_results=run.reused_results,
        throughput=run.throughput,
        time_s=wall_s() - start,
    )


class _SuiteRunner:
    """One run, which reuses stored results of earlier runs."""

    def __init__(self, results_log: ResultsLog[ResultLine], options: SuiteOptions, machine: Machine) -> None:
        self._results_log, self._options, self._machine = results_log, options, machine
        self._verdicts = {one.key: one for one in results_log.records if isinstance(one, CaseVerdict)}
        self._timings = {one.key: one for one in results_log.records if isinstance(one, CaseTiming)}
        self.reused_results = 0
        self.throughput: Throughput | None = None

    def verify_all(self, pairs: Sequence[CandidatePair], workers: int) -> None:
        """Verify every pair without a stored verdict."""
        start, todo = wall_s(), self._pending(pairs, self._verdict_key, self._verdicts)
        report_stage(f"0 of {len(todo)} verified")
        for i, (pair, answer) in enumerate(self._run_tasks(workers, _verify_task, todo), 1):
            report_stage(f"{i} of {len(todo)} verified, the last was {pair.candidate}")
            line = CaseVerdict(problem=pair.problem, candidate=pair.candidate, key=self._verdict_key(pair), **answer)
            self._verdicts[line.key] = line
            self._results_log.append(line)
        self.throughput = Throughput(verdicts=len(todo), time_s=wall_s() - start, workers=workers) if todo else None

    def time_accepted(self, pairs: Sequence[CandidatePair]) -> None:
        """Time every accepted pair without a stored timing."""
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
        """Combine the verdict and the timing of a pair."""
        verified, timed = self._verdicts[self._verdict_key(pair)], self._timings.get(self._time_key(pair))
        verdict = verified.verdict
        if verdict and timed and timed.rejection:
            verdict = msgspec.structs.replace(verdict, accepted=False, reason=timed.rejection)
        return CaseOutcome(
            problem=pair.problem,
            candidate=pair.candidate,
            verdict=verdict,
            variants=timed.variants if timed else (),
            comparisons=timed.comparisons if timed else (),
            error=verified.error or (timed.error if timed else None),
        )

    def _is_accepted(self, pair: CandidatePair) -> bool:
        verdict = self._verdicts[self._verdict_key(pair)].verdict
        return verdict is not None and verdict.accepted

    def _pending(
        self, pairs: Sequence[CandidatePair], key: Callable[[CandidatePair], str], stored: dict[str, Any]
    ) -> list[CandidatePair]:
        """Pairs without a stored result; pairs with an error are tried again."""
        todo = [pair for pair in pairs if (line := stored.get(key(pair))) is None or line.error]
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
        options = self._options
        verify_options = (
            options.device,
            options.tolerance,
            options.own_kernels,
            options.call_timeout_s,
            options.build_timeout_s,
            options.memory_bytes,
        )
        files = pair.problem_file.read_bytes(), pair.candidate_file.read_bytes()
        return digest(pair.problem, pair.candidate, *files, repr(verify_options))

    def _time_key(self, pair: CandidatePair) -> str:
        timing_options = self._options.baselines, self._options.pairs, self._machine.name, torch.__version__
        return digest(self._verdict_key(pair), repr(timing_options))


def _verify_task(task: tuple[CandidatePair, SuiteOptions, Machine]) -> dict[str, Any]:
    pair, options, _ = task

    def verify_once() -> Any:
        return verify(
            str(pair.problem_file),
            str(pair.candidate_file),
            device=options.device,
            tolerance=options.tolerance,
            call_timeout_s=options.call_timeout_s,
            build_timeout_s=options.build_timeout_s,
            memory_bytes=options.memory_bytes,
            fork_server=shared_fork_server(),
            own_kernels=options.own_kernels,
            check_problem=True,
        )

    verdict = verify_once()
    if verdict.reason and verdict.reason.code in RETRIED_CODES:
        verdict = verify_once()
    return {"verdict": verdict}


def _time_task(task: tuple[CandidatePair, SuiteOptions, Machine]) -> dict[str, Any]:
    pair, options, machine = task
    result = bench(
        str(pair.problem_file),
        str(pair.candidate_file),
        baselines=options.baselines,
        check=False,
        device=options.device,
        pairs=options.pairs,
        tolerance=options.tolerance,
        machine=machine,
        build_timeout_s=options.build_timeout_s,
    )
    rejection = next((verdict.reason for verdict in result.verdicts if verdict.reason), None)
    return {"variants": result.variants, "comparisons": result.comparisons, "rejection": rejection}
