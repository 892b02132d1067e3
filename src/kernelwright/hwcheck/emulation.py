"""Diagnosis of CUDA C++ candidates by emulation on the CPU: memory access counts and sanitizer findings."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from kernelwright.core.emulation import Emulation, EmulationRecommendation, MemoryAccess, SanitizerFinding
from kernelwright.core.errors import UsageError
from kernelwright.core.progress import report_stage
from kernelwright.core.units import number_text
from kernelwright.problems import load_problem
from kernelwright.problems.cuda import build_cuda_program
from kernelwright.problems.gpu_requirement import WGMMA, find_gpu_requirement
from kernelwright.problems.header import parse_header
from kernelwright.problems.importing import find_file, split_target
from kernelwright.toolchain.emulator import (
    Counts,
    EmulatedKernel,
    MemoryInstruction,
    Sanitizer,
    count_accesses,
    sanitize,
)
from kernelwright.work import count_work as count_work

SECTOR_BYTES = 32
TIME_LIMIT_S = 120.0
MIN_EXCESS_RATIO = 1.5
"""Transactions over the ideal from which on an access is reported."""


class InstrumentedKernel:
    """Drop-in replacement for `EmulatedKernel`: each launch is checked by sanitizers, counted, then run.

    Args:
        entry: the kernel's name in `source`.
        launches: list to which the instance appends itself.
        limit_s: time limit of each sanitizer run, in seconds.
    """

    def __init__(
        self,
        source: str,
        entry: str,
        path: Path,
        *,
        launches: list[InstrumentedKernel],
        sanitizers: Sequence[Sanitizer] = ("address", "thread"),
        limit_s: float = TIME_LIMIT_S,
    ) -> None:
        self.entry, self.counts, self.faults = entry, [], []
        self._sanitizers, self._limit_s = sanitizers, limit_s
        self._source, self._path = source, str(path)
        self._kernel = EmulatedKernel(source, entry, path=self._path)
        launches.append(self)

    def __call__(self, grid: Any, block: Any, arguments: Sequence[Any], shared_bytes: int = 0) -> None:
        for sanitizer in self._sanitizers:
            report_stage(f"{self.entry} under the {sanitizer} sanitizer", self._limit_s)
            findings = sanitize(
                self._source, self.entry, grid, block, arguments, shared_bytes, sanitizer=sanitizer, path=self._path
            )
            self.faults += [
                SanitizerFinding(kernel=self.entry, kind=f.kind, message=f.message, line=f.line) for f in findings
            ]
        if self.faults:
            return
        report_stage(f"counting {self.entry}", self._limit_s)
        copies = [one.clone() if isinstance(one, torch.Tensor) else one for one in arguments]
        self.counts.append(count_accesses(self._source, self.entry, grid, block, copies, shared_bytes, path=self._path))
        self._kernel(grid, block, arguments, shared_bytes)


def diagnose_emulated(problem: str, candidate: str, limit_s: float = TIME_LIMIT_S) -> Emulation:
    """Count the memory accesses of a CUDA C++ candidate on the problem's inputs.

    Args:
        limit_s: time limit of each kernel run, in seconds.
    Raises:
        UsageError: the candidate is not CUDA C++, or has TMA, wgmma or clusters, whose accesses are not counted.
    """
    loaded, (file, name) = load_problem(problem), split_target(candidate)
    path = find_file(file)
    if path.suffix != ".cu":
        raise UsageError(
            f"{path} is not CUDA C++; only .cu files are emulated", next=shlex.join(["kw", "why", problem])
        )
    header = parse_header(path.read_text(encoding="utf-8", errors="replace"), str(path))
    has_clusters = any("cluster" in launch.launch_sizes for launch in header.launches)
    if header.maps or has_clusters or find_gpu_requirement([path]) == WGMMA:
        raise UsageError(
            f"{path} has TMA, wgmma or clusters, whose memory accesses are not counted; its results can be verified",
            next=shlex.join(["kw", "verify", problem, candidate, "--device", "cpu"]),
        )
    launches: list[InstrumentedKernel] = []
    program = build_cuda_program(
        path, name, loaded, "cpu", partial(InstrumentedKernel, launches=launches, limit_s=limit_s)
    )
    args, kwargs = loaded.inputs("cpu", 0)
    with torch.no_grad():
        program(*args, **kwargs)
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    accesses = tuple(
        one for launch in launches for counts in launch.counts for one in _collect_accesses(launch, counts, lines)
    )
    faults = tuple(fault for launch in launches for fault in launch.faults)
    work = count_work(loaded.program_on("cpu"), args, kwargs)
    return Emulation(
        problem=loaded.name,
        candidate=str(path),
        summary=_summary_text(accesses, faults),
        accesses=accesses,
        sanitizer_findings=faults,
        flops=sum(counts.flops for launch in launches for counts in launch.counts),
        global_bytes=sum(counts.global_bytes for launch in launches for counts in launch.counts),
        recommendations=tuple(_recommendations(accesses, faults)),
        work={
            "flops": work.fused.total_flops,
            "bytes_as_written": work.as_written.total_bytes,
            "bytes_fused": work.fused.total_bytes,
        },
    )


def _collect_accesses(launch: InstrumentedKernel, counts: Counts, lines: Sequence[str]) -> Iterator[MemoryAccess]:
    for one in _merge_accesses(counts.instructions):
        per_request = one.wavefronts_per_request if one.is_shared else one.sectors_per_request
        yield MemoryAccess(
            kernel=launch.entry,
            line=one.line,
            code=lines[one.line - 1].strip() if 0 < one.line <= len(lines) else "",
            kind=one.kind,
            operand=one.operand,
            access_bytes=one.access_bytes,
            requests=one.requests,
            transactions_per_request=per_request,
            ideal_transactions_per_request=_ideal_transactions(one, per_request),
        )


def _merge_accesses(instructions: Sequence[MemoryInstruction]) -> Iterator[MemoryInstruction]:
    """Merge accesses of the same kind and width to the same operand in the same line."""
    groups: dict[tuple[Any, ...], list[MemoryInstruction]] = {}
    for one in instructions:
        groups.setdefault((one.line, one.kind, one.operand, one.access_bytes), []).append(one)
    for group in groups.values():
        sums = {
            name: sum(getattr(one, name) for one in group)
            for name in ("requests", "lanes", "sectors", "wavefronts", "ideal_wavefronts")
        }
        yield replace(group[0], **sums)


def _ideal_transactions(one: MemoryInstruction, per_request: float) -> float:
    """Wavefronts without conflicts, or sectors of a request with contiguous lanes; fewer if lanes share addresses."""
    if one.is_shared:
        return one.ideal_wavefronts / one.requests
    contiguous = math.ceil(one.lanes / one.requests * one.access_bytes / SECTOR_BYTES)
    return min(float(max(contiguous, 1)), per_request)


def _summary_text(accesses: Sequence[MemoryAccess], faults: Sequence[SanitizerFinding]) -> str:
    if faults:
        return f"{number_text(len(faults), 'error')}: {faults[0].message} in line {faults[0].line}"
    worst = max(
        accesses,
        key=lambda one: (one.transactions_per_request - one.ideal_transactions_per_request) * one.requests,
        default=None,
    )
    if worst is None or worst.excess_ratio < MIN_EXCESS_RATIO:
        return "every request needs about the minimum number of transactions"
    return f"line {worst.line}: {_cost_text(worst)}"


def _cost_text(one: MemoryAccess) -> str:
    unit, memory = ("wavefronts", "shared memory") if one.kind.startswith("shared") else ("sectors", one.operand)
    return (
        f"a request to {memory} takes {one.transactions_per_request:.3g} {unit}, "
        f"{one.ideal_transactions_per_request:.3g} would suffice"
    )


def _recommendations(
    accesses: Sequence[MemoryAccess], faults: Sequence[SanitizerFinding]
) -> Iterator[EmulationRecommendation]:
    for fault in faults:
        yield EmulationRecommendation(action=f"fix line {fault.line}: {fault.message}")
    inefficient = [one for one in accesses if one.excess_ratio >= MIN_EXCESS_RATIO]
    for one in sorted(
        inefficient,
        key=lambda one: -(one.transactions_per_request - one.ideal_transactions_per_request) * one.requests,
    ):
        is_shared = one.kind.startswith("shared")
        advice = "pad or swizzle the tile" if is_shared else "let adjacent threads access adjacent addresses"
        yield EmulationRecommendation(action=f"line {one.line}: {advice}; {_cost_text(one)}")
