"""A suite of programs measured on one machine: compiled by many processes, then timed one after another.

Every row is written as soon as it is measured, so that a run that was ended goes on.
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
from kernelwright.evidence.digests import machine_slug
from kernelwright.evidence.kinds import BuildResult, MeasureRequest
from kernelwright.evidence.rows import current_commit, current_date, read_rows
from kernelwright.machines import machine as machine_here
from kernelwright.machines import refresh_memory
from kernelwright.problems import Problem

SUITE = "examples/suite"
NUM_INPUT_SETS = 2
PROGRAM_BUDGET_S, REGION_BUDGET_S = {"cuda": 0.4, "cpu": 0.8}, {"cuda": 0.3, "cpu": 0.6}
"""For timing a program and each of its regions: all of the suite within nine minutes on an H200, and on a CPU twice as
long for each, which neighbours disturb."""
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
    """Optimises and times the programs that have no current row.

    Args:
        build: the code of a program for the choices of its row.
        sources: digest of the sources behind a row.
        run: measures one program, in place of `run_program` with this module's budgets.
        prepare: compile everything first, in many processes.
    Raises:
        NotFoundError: no such suite, or no such program in it.
        CrashError: the CUDA device is lost to this process; the same call goes on after the program.
    """
    home, device = Path(request.suite) if request.suite else request.root / SUITE, request.device
    suite, here = list(load_programs(str(home), device)), machine_here(device)
    chosen = _select_programs(suite, request.names, home)
    name = machine_slug(home.resolve().name)
    known = {row.workload: row for row in read_rows(request.folder, "optimize") if row.machine == here.name}

    def row_of(problem: Problem, found: ProgramSuiteRow) -> EvidenceRow:
        code = build(problem, found, device, here.name) if found.times_us else BuildResult()
        row = EvidenceRow(
            kind="optimize",
            workload=f"{name}/{problem.name}",
            machine=here.name,
            device=here.device,
            problem=code.problem,
            artifact=code.artifact,
            toolchain=code.toolchain,
            sources="",
            instruments=instruments.current_versions([*CLOCKS[device], *INSTRUMENTS]),
            environment=here.software,
            commit=current_commit(request.root),
            date=current_date(),
            result=encode_result(found),
        )
        return msgspec.structs.replace(row, sources=sources(row, request.root))

    def ended(problem: Problem) -> bool:
        row = known.get(f"{name}/{problem.name}")
        return row is not None and row.decode_result(ProgramSuiteRow).reason == INTERRUPTED

    def lacks(problem: Problem) -> bool:
        row = known.get(f"{name}/{problem.name}")
        if row is None or request.fresh or ended(problem):
            return True
        same = row.sources == sources(row, request.root) and row.environment == here.software
        return not same or bool(instruments.changes_since(row.instruments))

    # What ended a run comes last: everything else has its row by then.
    todo = sorted((problem for problem in chosen if lacks(problem)), key=ended)
    if todo and prepare:
        release_memory(device)
        precompile_suite(str(home), [problem.name for problem in todo], device)
    run = run or _make_runner(device, refresh_memory(here)) if todo else run
    with inductor.patch(compile_threads=1):  # all is compiled: workers would only stand beside what is timed
        for at, problem in enumerate(todo, 1):
            report_stage(f"{problem.name}, {at} of {len(todo)}")
            reason = INTERRUPTED_TWICE if ended(problem) else INTERRUPTED
            yield row_of(problem, ProgramSuiteRow(name=problem.name, accepted=False, reason=reason))
            assert run
            yield row_of(problem, run(problem))
            gc.collect()
            release_memory(device)
            if not is_device_alive(device):
                message = f"the CUDA device is lost to this process since {problem.name}; the next call goes on after"
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


def _select_programs(suite: Sequence[Problem], names: Sequence[str], home: Path) -> list[Problem]:
    known = [problem.name for problem in suite]
    files = dict.fromkeys(name.partition(":")[0] for name in known)
    if not suite:
        raise NotFoundError(
            f"no suite of programs in {home}", next="name an evidence folder beside examples/, or --suite"
        )
    for name in names:
        if name not in known and name not in files:
            functions = {one.partition(":")[2]: one for one in known}
            near = [functions.get(one, one) for one in difflib.get_close_matches(name, [*known, *files, *functions])]
            near = list(dict.fromkeys(near)) or list(files)
            raise NotFoundError(f"no program {name!r} in the suite", next=f"did you mean {', '.join(near)}?")
    wanted = set(names or known)
    return [problem for problem in suite if wanted & {problem.name, problem.name.partition(":")[0]}]
