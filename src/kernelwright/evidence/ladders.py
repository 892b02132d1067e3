"""Rows of ladders: one rung against the baseline on all sizes, with results of emulation and hardware counters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from kernelwright.core.cache import digest
from kernelwright.core.errors import NotFoundError, ProblemError, SetupError
from kernelwright.core.evidence import EvidenceRow, encode_result
from kernelwright.core.ladder import CounterComparison, LadderRun, RungResult
from kernelwright.evidence.instruments import current_versions
from kernelwright.evidence.kinds import BuildResult, MeasureRequest
from kernelwright.evidence.rows import current_commit, current_date
from kernelwright.evidence.source_digests import PACKAGE, combined_digest, find_headers, normalize_cpp, normalize_python
from kernelwright.ladders import ladder_device, ladder_names, read_rungs, task_path
from kernelwright.problems.importing import import_file
from kernelwright.toolchain.cuda.compiler import compile_ptx, nvrtc_version

ARCH = "sm_90a"
CLOCK = {"cuda": "graph clock", "cpu": "host clock"}


class LadderRows:
    """The rows of kind `ladder`."""

    name = "ladder"
    result_type = RungResult

    def sources_digest(self, row: EvidenceRow, root: Path) -> str:
        """Digest of all sources that can change the code of a row."""
        path = _rung_path(row.workload, row.variant)
        if path is None:
            return "missing"
        compiler = PACKAGE / "toolchain" / ("cuda/compiler.py" if row.device == "cuda" else "cpp.py")
        return combined_digest([path, *find_headers([path], path.parent), task_path(row.workload), compiler])

    def build(self, rows: Sequence[EvidenceRow], root: Path) -> list[BuildResult]:
        """Build the current code of each row."""
        return [_build_rung(row.workload, row.variant) for row in rows]

    def measure(self, request: MeasureRequest) -> Iterator[EvidenceRow]:
        """Yield each row as soon as it is measured on this machine."""
        from kernelwright.benchmark.ladder import run_ladder
        from kernelwright.hwcheck.ladder_counters import COUNTED_LADDERS, compare_counters

        names = request.names or tuple(name for name in ladder_names() if ladder_device(name) == request.device)
        for name in names:
            ladder, _, rung = name.partition("/")
            run = run_ladder(ladder, rung_names=[rung] if rung else [], device=request.device)
            counted = ladder in COUNTED_LADDERS and request.device == "cuda"
            counts = list(compare_counters(ladder)) if counted else []
            yield from make_rows(run, counts, root=request.root)


KIND = LadderRows()


def make_rows(run: LadderRun, counts: Iterable[CounterComparison], *, root: Path) -> Iterator[EvidenceRow]:
    """Convert a ladder run that was just measured on this machine to rows."""
    device, counts = run.machine.device, list(counts)
    for rung in run.rungs:
        built = _build_rung(run.ladder, rung.name)
        own = tuple(one for one in counts if one.name == rung.name)
        measured = [CLOCK[device], "paired comparison", "quick check", *(["counters", "emulation"] if own else [])]
        row = EvidenceRow(
            kind=KIND.name,
            workload=run.ladder,
            variant=rung.name,
            machine=run.machine.name,
            device=device,
            problem=built.problem,
            artifact=built.artifact,
            toolchain=built.toolchain,
            sources="",
            instruments=current_versions(measured),
            environment=run.machine.software,
            commit=current_commit(root),
            date=current_date(),
            result=encode_result(RungResult(run=msgspec.structs.replace(run, rungs=(rung,)), counts=own)),
        )
        yield msgspec.structs.replace(row, sources=KIND.sources_digest(row, root))


def _rung_path(ladder: str, name: str) -> Path | None:
    try:
        return next((one.path for one in read_rungs(ladder) if one.name == name), None)
    except NotFoundError:
        return None


def _problem_digest(ladder: str) -> str:
    """Digest of the task of the rungs, their sizes and their baseline; names of constants do not count."""
    task, text = import_file(task_path(ladder), ProblemError), task_path(ladder).read_text("utf-8")
    functions = (ladder, "inputs", "flops", "bytes_moved")
    baseline = normalize_python(text, "baseline").partition("args=")[2]
    constants = (task.BASELINE, repr(task.SIZES), repr(task.SHAPES))
    return digest(*constants, baseline, *(normalize_python(text, name) for name in functions))


def _build_rung(ladder: str, name: str) -> BuildResult:
    path = _rung_path(ladder, name)
    if path is None:
        return BuildResult(problem="missing")
    problem = _problem_digest(ladder)
    source = path.read_text("utf-8")
    if ladder_device(ladder) == "cpu":
        return BuildResult(problem, digest(normalize_cpp(source)))
    try:
        from kernelwright.evidence.artifact_digest import normalize_ptx

        text = normalize_ptx(compile_ptx(source, ARCH, include_dirs=[path.parent], name=str(path)))
        return BuildResult(problem, digest(text), f"nvrtc {nvrtc_version()}")
    except (ImportError, SetupError) as error:
        return BuildResult(failure=f"its code cannot be compiled here: {error}")
