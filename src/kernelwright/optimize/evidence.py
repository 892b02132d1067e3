"""A suite of programs as one record for each machine: compiled by many processes, then timed one after another.

`evidence/<machine>/optimize/<suite>.json` is written again after every program, so that a run that was ended goes on.
"""

from __future__ import annotations

import difflib
import functools
import gc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import torch._inductor.config as inductor

from kernelwright.core.cache import write_atomic
from kernelwright.core.document import document, encode
from kernelwright.core.errors import CrashError, NotFoundError, UsageError
from kernelwright.core.optimization import SuiteRecord, SuiteRow
from kernelwright.core.progress import stage
from kernelwright.core.records import Machine
from kernelwright.judge.evidence import SUITE, load, sources_of
from kernelwright.judge.sources import hashes, slug
from kernelwright.machine import machine as machine_here
from kernelwright.machine import refresh_memory
from kernelwright.optimize.generators import generator_for
from kernelwright.optimize.preparation import alive, prepare_all, release
from kernelwright.optimize.suite import programs, run_one
from kernelwright.optimize.tuning import Tuner
from kernelwright.problems import Problem

SETS = 2
PROGRAM_S, REGION_S = {"cuda": 0.4, "cpu": 0.8}, {"cuda": 0.3, "cpu": 0.6}
"""For timing a program and each of its regions: all of the suite within nine minutes on an H200, and on a CPU twice as
long for each, which neighbours disturb."""
ENDED = "the run ended in this program"
ENDED_AGAIN = "the run ended in this program, twice"
Run = Callable[[Problem], SuiteRow]


@dataclass
class Book:
    """The record while it is written: rows by name, on disk after every change."""

    blank: SuiteRecord
    path: Path
    suite: Sequence[Problem]
    rows: dict[str, SuiteRow]

    @property
    def record(self) -> SuiteRecord:
        missing = [problem.name for problem in self.suite if self.lacks(problem)]
        note = f"{len(missing)} of {len(self.suite)} programs have no row yet: kw evidence record --kind optimize"
        return msgspec.structs.replace(
            self.blank,
            state="pending" if missing else "measured",
            notes=(note,) if missing else (),
            rows=tuple(self.rows[problem.name] for problem in self.suite if problem.name in self.rows),
        )

    def lacks(self, problem: Problem) -> bool:
        return problem.name not in self.rows or self.rows[problem.name].reason == ENDED

    def write(self, row: SuiteRow) -> None:
        self.rows[row.name] = row
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(self.path, (encode(document("evidence", self.record)) + "\n").encode())


def record(
    names: Sequence[str],
    *,
    device: str,
    folder: str = "evidence",
    suite: str | None = None,
    fresh: bool = False,
    prepare: bool = True,
    run: Run | None = None,
) -> SuiteRecord:
    """Optimises and times the programs of a suite that have no row yet for the very same sources.

    Args:
        names: `file:function`, or a file for all of its; all programs when none is given.
        suite: a folder of programs; None is examples/suite, whose sources count as well: of another only the names of
            the programs are kept.
        fresh: do them again, rows or not.
        prepare: compile everything first, in many processes.
        run: makes the row of a program, in place of `run_one` with this module's budgets.
    Raises:
        NotFoundError: no such suite, or no such program in it.
        CrashError: the CUDA device is lost to this process; the same call goes on behind the program.
    """
    root = Path(folder).resolve().parent
    home = Path(suite) if suite else root / SUITE
    there = list(programs(str(home), device))
    chosen = _chosen(there, names, home)
    here = machine_here(device)
    book = _book(here, there, root, Path(folder), slug(home.resolve().name))
    if fresh:
        book.rows = {name: row for name, row in book.rows.items() if name not in {p.name for p in chosen}}
    # What ended a run comes last: everything else has its row by then.
    todo = sorted((problem for problem in chosen if book.lacks(problem)), key=lambda p: p.name in book.rows)
    if todo and prepare:
        release(device)
        prepare_all(str(home), [problem.name for problem in todo], device)
    if todo:
        with inductor.patch(compile_threads=1):  # all is compiled: workers would only stand beside what is timed
            _run_all(todo, book, run or _runner(device, refresh_memory(here)), device)
    return book.record


def _run_all(todo: Sequence[Problem], book: Book, run: Run, device: str) -> None:
    for at, problem in enumerate(todo, 1):
        stage(f"{problem.name}, {at} of {len(todo)}")
        again = problem.name in book.rows
        book.write(SuiteRow(name=problem.name, accepted=False, reason=ENDED_AGAIN if again else ENDED))
        book.write(run(problem))
        gc.collect()
        release(device)
        if not alive(device):
            message = f"the CUDA device is lost to this process since {problem.name}; the next call goes on after it"
            raise CrashError(message, next="kw evidence record --kind optimize --device cuda")


def _runner(device: str, machine: Machine) -> Run:
    tuner = Tuner(generator_for(device), device, machine, budget_s=REGION_S[device])
    return functools.partial(
        run_one, device=device, machine=machine, sets=SETS, budget_s=PROGRAM_S[device], tuner=tuner
    )


def _book(here: Machine, suite: Sequence[Problem], root: Path, folder: Path, name: str) -> Book:
    """The record as it stands: with the rows that were made here from the same sources by the same software."""
    blank = SuiteRecord(
        kind="optimize",
        name=name,
        state="pending",
        device=here.device,
        machine=here.name,
        date=datetime.now(UTC).date().isoformat(),
        software=here.software,
        sources=hashes(sources_of("optimize", name, root, here.device), root),
    )
    path = folder / slug(here.name) / "optimize" / f"{name}.json"
    return Book(blank, path, suite, {row.name: row for row in _rows(path, blank)})


def _rows(path: Path, blank: SuiteRecord) -> Sequence[SuiteRow]:
    try:
        known = load(path)
    except (FileNotFoundError, UsageError):
        return ()
    same = all(getattr(known, name) == getattr(blank, name) for name in ("device", "machine", "software", "sources"))
    return known.rows if same and isinstance(known, SuiteRecord) else ()


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
