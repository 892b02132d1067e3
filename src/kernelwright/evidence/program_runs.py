"""Measures a suite of programs on one machine: compiled in parallel processes, then timed sequentially.

Every row is written as soon as it is measured, so that an interrupted run can be resumed.
"""

from __future__ import annotations

import difflib
import functools
import gc
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec
import torch._inductor.config as inductor

from kernelwright.compiler.backends import backend_for
from kernelwright.compiler.precompile import is_device_alive, precompile_suite, release_memory
from kernelwright.compiler.program_suite import load_programs, run_program
from kernelwright.compiler.tuning import Tuner
from kernelwright.core.errors import CrashError, NotFoundError
from kernelwright.core.evidence import EvidenceRow, encode_result
from kernelwright.core.machine import Machine
from kernelwright.core.optimization import ProgramSuiteRow
from kernelwright.core.progress import report_stage
from kernelwright.evidence import instruments
from kernelwright.evidence.kinds import BuildResult, MeasureRequest
from kernelwright.evidence.rows import current_commit, current_date, read_rows
from kernelwright.evidence.source_digests import machine_slug
from kernelwright.machines import machine as measured_machine
from kernelwright.machines import refresh_memory
from kernelwright.problems import Problem

SUITE = "examples/suite"
NUM_INPUT_SETS = 2
PROGRAM_BUDGET_S, REGION_BUDGET_S = {"cuda": 0.4, "cpu": 0.8}, {"cuda": 0.3, "cpu": 0.6}
"""Budgets for timing a program and each of its regions. The suite takes less than nine minutes on an H200; CPUs have
twice the budget because other processes disturb them."""
INTERRUPTED = "the run ended in this program"
INTERRUPTED_TWICE = "the run ended in this program, twice"
CLOCKS = {"cuda": ("event clock", "graph clock"), "cpu": ("host clock",)}
INSTRUMENTS = ("paired comparison", "work", "verification")
ProgramRunner = Callable[[Problem], ProgramSuiteRow]


def measure_programs(
    request: MeasureRequest,
    build: Callable[[Problem, ProgramSuiteRow, str, str], BuildResult],
    sources: Callable[[EvidenceRow, Path], str],
    *,
    run: ProgramRunner | None = None,
    prepare: bool = True,
) -> Iterator[EvidenceRow]:
    """Optimize and time the programs that have no current row.

    Args:
        build: builds the code of a program with the configs of its row.
        sources: digest of the sources of a row.
        run: measures one program; `run_program` with this module's budgets by default.
        prepare: compile everything first, in parallel processes.
    Raises:
        NotFoundError: no such suite, or no such program in it.
        CrashError: the CUDA context of this process is lost; the same call resumes after the failed program.
    """
    suite_folder, device = Path(request.suite) if request.suite else request.root / SUITE, request.device
    suite, target_machine = list(load_programs(str(suite_folder), device)), measured_machine(device)
    chosen = _select_programs(suite, request.names, suite_folder)
    name = machine_slug(suite_folder.resolve().name)
    known = {row.workload: row for row in read_rows(request.folder, "optimize") if row.machine == target_machine.name}

    def make_row(problem: Problem, result: ProgramSuiteRow) -> EvidenceRow:
        code = build(problem, result, device, target_machine.name) if result.times_us else BuildResult()
        if result.times_us and not code.artifact:  # its row could never be compared with later code
            reason = code.failure or "no code can be built with its configs"
            result = ProgramSuiteRow(name=problem.name, accepted=False, reason=f"timed, but {reason}")
            code = BuildResult()
        row = EvidenceRow(
            kind="optimize",
            workload=f"{name}/{problem.name}",
            machine=target_machine.name,
            device=target_machine.device,
            problem=code.problem,
            artifact=code.artifact,
            toolchain=code.toolchain,
            sources="",
            instruments=instruments.current_versions([*CLOCKS[device], *INSTRUMENTS]),
            environment=target_machine.software,
            commit=current_commit(request.root),
            date=current_date(),
            result=encode_result(result),
        )
        return msgspec.structs.replace(row, sources=sources(row, request.root))

    def was_interrupted(problem: Problem) -> bool:
        row = known.get(f"{name}/{problem.name}")
        return row is not None and row.decode_result(ProgramSuiteRow).reason == INTERRUPTED

    def needs_row(problem: Problem) -> bool:
        row = known.get(f"{name}/{problem.name}")
        if row is None or request.fresh or was_interrupted(problem):
            return True
        is_unchanged = row.sources == sources(row, request.root) and row.environment == target_machine.software
        return not is_unchanged or bool(instruments.changes_since(row.instruments))

    # Programs that interrupted a run come last, so that all others have their rows by then.
    todo = sorted((problem for problem in chosen if needs_row(problem)), key=was_interrupted)
    if todo and prepare:
        release_memory(device)
        precompile_suite(str(suite_folder), [problem.name for problem in todo], device)
    run = run or _make_runner(device, refresh_memory(target_machine)) if todo else run
    with inductor.patch(compile_threads=1):  # everything is compiled; compile workers would only disturb the timing
        for number, problem in enumerate(todo, 1):
            report_stage(f"{problem.name}, {number} of {len(todo)}")
            reason = INTERRUPTED_TWICE if was_interrupted(problem) else INTERRUPTED
            yield make_row(problem, ProgramSuiteRow(name=problem.name, accepted=False, reason=reason))
            assert run
            yield make_row(problem, run(problem))
            gc.collect()
            release_memory(device)
            if not is_device_alive(device):
                message = f"the CUDA context of this process was lost in {problem.name}; the next call goes on after it"
                raise CrashError(message, next="kw evidence record --kind optimize --device cuda")


def _make_runner(device: str, machine: Machine) -> ProgramRunner:
    tuner = Tuner(backend_for(device), device, machine, budget_s=REGION_BUDGET_S[device])
    return functools.partial(
        run_program,
        device=device,
        machine=machine,
        num_input_sets=NUM_INPUT_SETS,
        budget_s=PROGRAM_BUDGET_S[device],
        tuner=tuner,
    )


def _select_programs(suite: Sequence[Problem], names: Sequence[str], suite_folder: Path) -> list[Problem]:
    known = [problem.name for problem in suite]
    files = dict.fromkeys(name.partition(":")[0] for name in known)
    if not suite:
        raise NotFoundError(
            f"no suite of programs in {suite_folder}", next="use an evidence folder next to examples/, or --suite"
        )
    for name in names:
        if name not in known and name not in files:
            functions = {one.partition(":")[2]: one for one in known}
            near = [functions.get(one, one) for one in difflib.get_close_matches(name, [*known, *files, *functions])]
            near = list(dict.fromkeys(near)) or list(files)
            raise NotFoundError(f"no program {name!r} in the suite", next=f"did you mean {', '.join(near)}?")
    wanted = set(names or known)
    return [problem for problem in suite if wanted & {problem.name, problem.name.partition(":")[0]}]
