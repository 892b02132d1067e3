"""What CUDA C++ asks of memory, counted while it runs on the CPU, and what its sanitizers say."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from kernelwright.core.emulation import Access, CountedMove, Emulation, Fault
from kernelwright.core.errors import UsageError
from kernelwright.core.progress import stage
from kernelwright.core.units import number_text
from kernelwright.problems import load_problem
from kernelwright.problems.cuda import cuda_program
from kernelwright.problems.importing import find_file, split_target
from kernelwright.toolchain.emulator import Counts, EmulatedKernel, MemoryInstruction, Sanitizer, count, sanitize
from kernelwright.work import count as count_work

SECTOR_BYTES = 32
LIMIT_S = 120.0
WORTH = 1.5
"""An access that costs no more than this times what it must is as good as it gets."""


class Watched:
    """Stands where a kernel stands: counts and checks a launch, then runs it."""

    def __init__(
        self,
        source: str,
        entry: str,
        path: Path,
        *,
        launches: list[Watched],
        sanitizers: Sequence[Sanitizer] = ("address", "thread"),
        limit_s: float = LIMIT_S,
    ) -> None:
        self.entry, self.counts, self.faults = entry, [], []
        self._sanitizers, self._limit_s = sanitizers, limit_s
        self._source, self._path = source, str(path)
        self._kernel = EmulatedKernel(source, entry, path=self._path)
        launches.append(self)

    def __call__(self, grid: Any, block: Any, given: Sequence[Any], shared_bytes: int = 0) -> None:
        for sanitizer in self._sanitizers:
            stage(f"{self.entry} under the {sanitizer} sanitizer", self._limit_s)
            found = sanitize(
                self._source, self.entry, grid, block, given, shared_bytes, sanitizer=sanitizer, path=self._path
            )
            self.faults += [Fault(kernel=self.entry, kind=f.kind, message=f.message, line=f.line) for f in found]
        if self.faults:
            return
        stage(f"counting {self.entry}", self._limit_s)
        copies = [one.clone() if isinstance(one, torch.Tensor) else one for one in given]
        self.counts.append(count(self._source, self.entry, grid, block, copies, shared_bytes, path=self._path))
        self._kernel(grid, block, given, shared_bytes)


def why_emulated(problem: str, candidate: str, limit_s: float = LIMIT_S) -> Emulation:
    """Counts what a candidate in CUDA C++ asks of memory on the problem's inputs.

    Args:
        limit_s: the longest that one kernel may run, in seconds, each time that it does.
    Raises:
        UsageError: the candidate is no CUDA C++.
    """
    loaded, (place, name) = load_problem(problem), split_target(candidate)
    path = find_file(place)
    if path.suffix != ".cu":
        raise UsageError(f"{path} is not CUDA C++, which alone is emulated", next=shlex.join(["kw", "why", problem]))
    launches: list[Watched] = []
    program = cuda_program(path, name, loaded, "cpu", partial(Watched, launches=launches, limit_s=limit_s))
    args, kwargs = loaded.inputs("cpu", 0)
    with torch.no_grad():
        program(*args, **kwargs)
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    accesses = tuple(one for launch in launches for counts in launch.counts for one in _accesses(launch, counts, lines))
    faults = tuple(fault for launch in launches for fault in launch.faults)
    work = count_work(loaded.on("cpu"), args, kwargs)
    return Emulation(
        problem=loaded.name,
        candidate=str(path),
        sentence=_sentence(accesses, faults),
        accesses=accesses,
        faults=faults,
        flops=sum(counts.flops for launch in launches for counts in launch.counts),
        global_bytes=sum(counts.global_bytes for launch in launches for counts in launch.counts),
        moves=tuple(_moves(accesses, faults)),
        work={
            "flops": work.fused.total_flops,
            "bytes_as_written": work.as_written.total_bytes,
            "bytes_fused": work.fused.total_bytes,
        },
    )


def _accesses(launch: Watched, counts: Counts, lines: Sequence[str]) -> Iterator[Access]:
    for one in _merged(counts.instructions):
        per_request = one.wavefronts_per_request if one.shared else one.sectors_per_request
        yield Access(
            kernel=launch.entry,
            line=one.line,
            code=lines[one.line - 1].strip() if 0 < one.line <= len(lines) else "",
            kind=one.kind,
            operand=one.operand,
            access_bytes=one.access_bytes,
            requests=one.requests,
            per_request=per_request,
            ideal=_ideal(one, per_request),
        )


def _merged(instructions: Sequence[MemoryInstruction]) -> Iterator[MemoryInstruction]:
    """Accesses of one kind to one operand in one line as one."""
    alike: dict[tuple[Any, ...], list[MemoryInstruction]] = {}
    for one in instructions:
        alike.setdefault((one.line, one.kind, one.operand, one.access_bytes), []).append(one)
    for group in alike.values():
        sums = {
            name: sum(getattr(one, name) for one in group)
            for name in ("requests", "lanes", "sectors", "wavefronts", "ideal_wavefronts")
        }
        yield replace(group[0], **sums)


def _ideal(one: MemoryInstruction, per_request: float) -> float:
    """The sectors or passes of a request whose lanes lie side by side; lanes that share an address need fewer."""
    if one.shared:
        return one.ideal_wavefronts / one.requests
    side_by_side = math.ceil(one.lanes / one.requests * one.access_bytes / SECTOR_BYTES)
    return min(float(max(side_by_side, 1)), per_request)


def _sentence(accesses: Sequence[Access], faults: Sequence[Fault]) -> str:
    if faults:
        return f"{number_text(len(faults), 'fault')}: {faults[0].message} in line {faults[0].line}"
    worst = max(accesses, key=lambda one: (one.per_request - one.ideal) * one.requests, default=None)
    if worst is None or worst.excess < WORTH:
        return "every request costs about what its lanes need"
    return f"line {worst.line}: {_cost(worst)}"


def _cost(one: Access) -> str:
    unit, where = (
        ("passes over the banks", "shared memory") if one.kind.startswith("shared") else ("sectors", one.operand)
    )
    return f"a request for {where} costs {one.per_request:.3g} {unit} where {one.ideal:.3g} would do"


def _moves(accesses: Sequence[Access], faults: Sequence[Fault]) -> Iterator[CountedMove]:
    for fault in faults:
        yield CountedMove(what=f"mend line {fault.line}: {fault.message}")
    poor = [one for one in accesses if one.excess >= WORTH]
    for one in sorted(poor, key=lambda one: -(one.per_request - one.ideal) * one.requests):
        advice = (
            "pad or swizzle the tile" if one.kind.startswith("shared") else "let neighbouring threads read neighbours"
        )
        yield CountedMove(what=f"line {one.line}: {advice}; {_cost(one)}")
