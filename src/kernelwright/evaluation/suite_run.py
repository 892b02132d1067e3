"""A folder of problems with candidates for them: first who is right, many beside each other, then who is faster, one by
one, since whoever is timed is alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import msgspec
import torch

from kernelwright.benchmark.bench import LEAST_PAIRS, PAIRS, bench
from kernelwright.benchmark.variants import BASELINE_NAMES, BASELINES, require_baselines
from kernelwright.benchmark.worker_pool import done_by, warm_nursery
from kernelwright.core.cache import digest
from kernelwright.core.errors import KernelwrightError, UsageError
from kernelwright.core.progress import stage
from kernelwright.core.records import Device, Machine, Reason
from kernelwright.core.suite_run import Judged, Line, Outcome, SuiteRun, Timed, curve
from kernelwright.core.throughput import Pace
from kernelwright.evaluation.results_log import Journal
from kernelwright.machines import machine as measured_machine
from kernelwright.machines import refresh_memory
from kernelwright.measure.clock import wall_s
from kernelwright.problems.suites import Pair, pairs_in
from kernelwright.verification import BUILD_S, verify

AGAIN = ("crash",)
"""Rejections that somebody outside may have caused, who killed the process: these are made twice."""
RESULTS = ".results.jsonl"


@dataclass(frozen=True)
class Manner:
    """How the candidates of a run are judged and timed.

    Attributes:
        tolerance: as `verify` takes it.
        time_s: the longest that a call of a candidate may take.
        build_s: the longest that loading it may take, with all that it compiles.
        pairs: of fresh processes for each comparison.
    """

    device: str = "cpu"
    baselines: tuple[str, ...] = BASELINES
    tolerance: tuple[float, float] | None = None
    own_kernels: bool = False
    time_s: float = 60.0
    build_s: float = BUILD_S
    memory_bytes: int | None = None
    pairs: int = PAIRS


def run_suite(
    folder: str,
    candidates: str | None = None,
    *,
    results: str | None = None,
    workers: int = 1,
    manner: Manner | None = None,
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
    manner = manner or Manner()
    require_baselines(manner.baselines)
    if manner.pairs < LEAST_PAIRS:
        raise UsageError(f"{manner.pairs} process pairs say too little; {LEAST_PAIRS} at least")
    if workers < 1:
        raise UsageError(f"{workers} workers judge nothing", next="--workers 1")
    start, found = wall_s(), pairs_in(folder, candidates)
    place = Path(results or f"{Path(folder).resolve().name}{RESULTS}")
    with Journal[Line](place, Line, option="--results") as journal:
        here = measured_machine(manner.device)
        run = _Run(journal, manner, here)
        run.judge(found.pairs, workers)
        if manner.baselines:
            run.time(found.pairs)
        outcomes = tuple(map(run.outcome, found.pairs))
    return SuiteRun(
        suite=str(folder),
        device=cast(Device, manner.device),
        machine=here,
        baselines=tuple(BASELINE_NAMES[one] for one in manner.baselines),
        outcomes=outcomes,
        curves=tuple(curve(outcomes, BASELINE_NAMES[one]) for one in manner.baselines),
        results=str(place),
        idle=found.idle,
        lost=found.lost,
        unread=found.unread,
        kept=run.kept,
        pace=run.pace,
        time_s=wall_s() - start,
    )


class _Run:
    """A run beside what earlier ones have left."""

    def __init__(self, journal: Journal[Line], manner: Manner, here: Machine) -> None:
        self._journal, self._manner, self._here = journal, manner, here
        self._judged = {one.key: one for one in journal.lines if isinstance(one, Judged)}
        self._timed = {one.key: one for one in journal.lines if isinstance(one, Timed)}
        self.kept = 0
        self.pace: Pace | None = None

    def judge(self, pairs: Sequence[Pair], workers: int) -> None:
        start, todo = wall_s(), self._without(pairs, self._verdict_key, self._judged)
        stage(f"0 of {len(todo)} judged")
        for i, (pair, answer) in enumerate(self._answers(workers, _judged, todo), 1):
            stage(f"{i} of {len(todo)} judged, the last was {pair.candidate}")
            line = Judged(problem=pair.problem, candidate=pair.candidate, key=self._verdict_key(pair), **answer)
            self._judged[line.key] = line
            self._journal.append(line)
        self.pace = Pace(verdicts=len(todo), time_s=wall_s() - start, workers=workers) if todo else None

    def time(self, pairs: Sequence[Pair]) -> None:
        accepted = [pair for pair in pairs if self._is_accepted(pair)]
        todo = self._without(accepted, self._time_key, self._timed)
        if todo:
            self._here = refresh_memory(self._here)
            stage(f"0 of {len(todo)} timed")
        for i, (pair, answer) in enumerate(self._answers(1, _timed, todo), 1):
            stage(f"{i} of {len(todo)} timed, the last was {pair.candidate}")
            line = Timed(problem=pair.problem, candidate=pair.candidate, key=self._time_key(pair), **answer)
            self._timed[line.key] = line
            self._journal.append(line)

    def outcome(self, pair: Pair) -> Outcome:
        judged, timed = self._judged[self._verdict_key(pair)], self._timed.get(self._time_key(pair))
        verdict = judged.verdict
        if verdict and timed and timed.caught:
            verdict = msgspec.structs.replace(verdict, accepted=False, reason=timed.caught)
        return Outcome(
            problem=pair.problem,
            candidate=pair.candidate,
            verdict=verdict,
            arms=timed.arms if timed else (),
            comparisons=timed.comparisons if timed else (),
            error=judged.error or (timed.error if timed else None),
        )

    def _is_accepted(self, pair: Pair) -> bool:
        verdict = self._judged[self._verdict_key(pair)].verdict
        return verdict is not None and verdict.accepted

    def _without(self, pairs: Sequence[Pair], key: Callable[[Pair], str], done: dict[str, Any]) -> list[Pair]:
        """Those that are not done yet. An error was nobody's verdict: it is tried again."""
        todo = [pair for pair in pairs if (line := done.get(key(pair))) is None or line.error]
        self.kept += len(pairs) - len(todo)
        return todo

    def _answers(
        self, workers: int, work: Callable[[tuple[Pair, Manner, Machine]], dict[str, Any]], todo: Sequence[Pair]
    ) -> Iterator[tuple[Pair, dict[str, Any]]]:
        tasks = [(pair, self._manner, self._here) for pair in todo]
        for index, answer in done_by(min(workers, max(1, len(tasks))), work, tasks):
            if isinstance(answer, KernelwrightError):
                answer = {"error": Reason(code=answer.code, detail=answer.message)}
            yield todo[index], answer

    def _verdict_key(self, pair: Pair) -> str:
        manner = self._manner
        asked = manner.device, manner.tolerance, manner.own_kernels, manner.time_s, manner.build_s, manner.memory_bytes
        files = pair.problem_file.read_bytes(), pair.candidate_file.read_bytes()
        return digest(pair.problem, pair.candidate, *files, repr(asked))

    def _time_key(self, pair: Pair) -> str:
        beside = self._manner.baselines, self._manner.pairs, self._here.name, torch.__version__
        return digest(self._verdict_key(pair), repr(beside))


def _judged(task: tuple[Pair, Manner, Machine]) -> dict[str, Any]:
    pair, manner, _ = task

    def once() -> Any:
        return verify(
            str(pair.problem_file),
            str(pair.candidate_file),
            device=manner.device,
            tolerance=manner.tolerance,
            time_s=manner.time_s,
            build_s=manner.build_s,
            memory_bytes=manner.memory_bytes,
            nursery=warm_nursery(),
            own_kernels=manner.own_kernels,
            question=True,
        )

    verdict = once()
    if verdict.reason and verdict.reason.code in AGAIN:
        verdict = once()
    return {"verdict": verdict}


def _timed(task: tuple[Pair, Manner, Machine]) -> dict[str, Any]:
    pair, manner, here = task
    given = {"device": manner.device, "pairs": manner.pairs, "tolerance": manner.tolerance, "machine": here}
    given["build_s"] = manner.build_s
    files = str(pair.problem_file), str(pair.candidate_file)
    found = bench(*files, baselines=manner.baselines, check=False, **given)
    caught = next((verdict.reason for verdict in found.verdicts if verdict.reason), None)
    return {"arms": found.arms, "comparisons": found.comparisons, "caught": caught}
