"""Rows of ladders: one rung beside its peer on all sizes, and what emulation and counters say of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from kernelwright.core.cache import digest
from kernelwright.core.errors import NotFoundError, SetupError
from kernelwright.core.evidence import EvidenceRow, raw
from kernelwright.core.ladder import Climb, RungCount, RungResult
from kernelwright.evidence.digests import PACKAGE, combined, headers_of, normal_cpp, source_digest
from kernelwright.evidence.instruments import versions
from kernelwright.evidence.kinds import Built, Request
from kernelwright.evidence.rows import current_commit, today
from kernelwright.ladders import device_of, ladder_names, rungs, task_of
from kernelwright.toolchain.cuda.compiling import compile_ptx, compiler_version

COUNTED = "gemm_fp32"
"""The ladder whose rungs are emulated and counted."""
ARCH = "sm_90a"
CLOCK = {"cuda": "graph clock", "cpu": "host clock"}


class LadderRows:
    name = "ladder"
    result = RungResult

    def sources(self, row: EvidenceRow, root: Path) -> str:
        path = _path(row.workload, row.variant)
        if path is None:
            return "gone"
        compiles = PACKAGE / "toolchain" / ("cuda/compiling.py" if row.device == "cuda" else "cpp.py")
        return combined([path, *headers_of([path], path.parent), task_of(row.workload), compiles])

    def build(self, rows: Sequence[EvidenceRow], root: Path) -> list[Built]:
        return [_built(row.workload, row.variant) for row in rows]

    def measure(self, request: Request) -> Iterator[EvidenceRow]:
        from kernelwright.benchmark.ladder import climb
        from kernelwright.hwcheck.ladder_counters import rung_counts

        names = request.names or tuple(name for name in ladder_names() if device_of(name) == request.device)
        for name in names:
            ladder, _, which = name.partition("/")
            found = climb(ladder, which=[which] if which else [], device=request.device)
            counts = list(rung_counts()) if ladder == COUNTED and request.device == "cuda" else []
            yield from rows_of(found, counts, root=request.root)


KIND = LadderRows()


def rows_of(found: Climb, counts: Iterable[RungCount], *, root: Path) -> Iterator[EvidenceRow]:
    """A climb that was made here and now as rows."""
    device, counts = found.machine.device, list(counts)
    for rung in found.rungs:
        built = _built(found.ladder, rung.name)
        own = tuple(one for one in counts if one.name == rung.name)
        measured = [CLOCK[device], "paired comparison", "quick check", *(["counters", "emulation"] if own else [])]
        row = EvidenceRow(
            kind=KIND.name,
            workload=found.ladder,
            variant=rung.name,
            machine=found.machine.name,
            device=device,
            problem=built.problem,
            artifact=built.artifact,
            toolchain=built.toolchain,
            sources="",
            instruments=versions(measured),
            environment=found.machine.software,
            commit=current_commit(root),
            date=today(),
            result=raw(RungResult(climb=msgspec.structs.replace(found, rungs=(rung,)), counts=own)),
        )
        yield msgspec.structs.replace(row, sources=KIND.sources(row, root))


def _path(ladder: str, name: str) -> Path | None:
    try:
        return next((one.path for one in rungs(ladder) if one.name == name), None)
    except NotFoundError:
        return None


def _built(ladder: str, name: str) -> Built:
    path = _path(ladder, name)
    if path is None:
        return Built(problem="gone")
    problem = digest(source_digest(task_of(ladder)))
    source = path.read_text("utf-8")
    if device_of(ladder) == "cpu":
        return Built(problem, digest(normal_cpp(source)))
    try:
        from kernelwright.evidence.machine_code import normal_ptx

        text = normal_ptx(compile_ptx(source, ARCH, folders=[path.parent], name=str(path)))
        return Built(problem, digest(text), f"nvrtc {compiler_version()}")
    except (ImportError, SetupError) as fault:
        return Built(failed=f"its code cannot be compiled here: {fault}")
