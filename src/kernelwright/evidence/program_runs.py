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

from kernelwright.compiler.backends import generator_for
from kernelwright.compiler.precompile import alive, prepare_all, release
from kernelwright.compiler.program_suite import programs, run_one
from kernelwright.compiler.tuning import Tuner
from kernelwright.core.errors import CrashError, NotFoundError
from kernelwright.core.evidence import EvidenceRow, raw
from kernelwright.core.optimization import SuiteRow
from kernelwright.core.progress import stage
from kernelwright.core.records import Machine
from kernelwright.evidence import instruments
from kernelwright.evidence.digests import slug
from kernelwright.evidence.kinds import Built, Request
from kernelwright.evidence.rows import current_commit, read_rows, today
from kernelwright.machines import machine as machine_here
from kernelwright.machines import refresh_memory
from kernelwright.problems import Problem

SUITE = "examples/suite"
SETS = 2
PROGRAM_S, REGION_S = {"cuda": 0.4, "cpu": 0.8}, {"cuda": 0.3, "cpu": 0.6}
"""For timing a program and each of its regions: all of the suite within nine minutes on an H200, and on a CPU twice as
long for each, which neighbours disturb."""
ENDED = "the run ended in this program"
ENDED_AGAIN = "the run ended in this program, twice"
CLOCKS = {"cuda": ("event clock", "graph clock"), "cpu": ("host clock",)}
INSTRUMENTS = ("paired comparison", "work", "verification")
Run = Callable[[Problem], SuiteRow]


def measure(
    request: Request,
    build: Callable[[Problem, SuiteRow, str, str], Built],
    sources: Callable[[EvidenceRow, Path], str],
    *,
    run: Run | None = None,
    prepare: bool = True,
) -> Iterator[EvidenceRow]:
    """Optimises and times the programs that have no current row.

    Args:
        build: the code of a program for the choices of its row.
        sources: digest of the sources behind a row.
        run: measures one program, in place of `run_one` with this module's budgets.
        prepare: compile everything first, in many processes.
    Raises:
        NotFoundError: no such suite, or no such program in it.
        CrashError: the CUDA device is lost to this process; the same call goes on after the program.
    """
    home, device = Path(request.suite) if request.suite else request.root / SUITE, request.device
    suite, here = list(programs(str(home), device)), machine_here(device)
    chosen = _chosen(suite, request.names, home)
    name = slug(home.resolve().name)
    known = {row.workload: row for row in read_rows(request.folder, "optimize") if row.machine == here.name}

    def row_of(problem: Problem, found: SuiteRow) -> EvidenceRow:
        code = build(problem, found, device, here.name) if found.times_us else Built()
        row = EvidenceRow(
            kind="optimize",
            workload=f"{name}/{problem.name}",
            machine=here.name,
            device=here.device,
            problem=code.problem,
            artifact=code.artifact,
            toolchain=code.toolchain,
            sources="",
            instruments=instruments.versions([*CLOCKS[device], *INSTRUMENTS]),
            environment=here.software,
            commit=current_commit(request.root),
            date=today(),
            result=raw(found),
        )
        return msgspec.structs.replace(row, sources=sources(row, request.root))

    def ended(problem: Problem) -> bool:
        row = known.get(f"{name}/{problem.name}")
        return row is not None and row.as_type(SuiteRow).reason == ENDED

    def lacks(problem: Problem) -> bool:
        row = known.get(f"{name}/{problem.name}")
        if row is None or request.fresh or ended(problem):
            return True
        same = row.sources == sources(row, request.root) and row.environment == here.software
        return not same or bool(instruments.older(row.instruments))

    # What ended a run comes last: everything else has its row by then.
    todo = sorted((problem for problem in chosen if lacks(problem)), key=ended)
    if todo and prepare:
        release(device)
        prepare_all(str(home), [problem.name for problem in todo], device)
    run = run or _runner(device, refresh_memory(here)) if todo else run
    with inductor.patch(compile_threads=1):  # all is compiled: workers would only stand beside what is timed
        for at, problem in enumerate(todo, 1):
            stage(f"{problem.name}, {at} of {len(todo)}")
            reason = ENDED_AGAIN if ended(problem) else ENDED
            yield row_of(problem, SuiteRow(name=problem.name, accepted=False, reason=reason))
            assert run
            yield row_of(problem, run(problem))
            gc.collect()
            release(device)
            if not alive(device):
                message = f"the CUDA device is lost to this process since {problem.name}; the next call goes on after"
                raise CrashError(message, next="kw evidence record --kind optimize --device cuda")


def _runner(device: str, machine: Machine) -> Run:
    tuner = Tuner(generator_for(device), device, machine, budget_s=REGION_S[device])
    return functools.partial(
        run_one, device=device, machine=machine, sets=SETS, budget_s=PROGRAM_S[device], tuner=tuner
    )


def _chosen(suite: Sequence[Problem], names: Sequence[str], home: Path) -> list[Problem]:
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
