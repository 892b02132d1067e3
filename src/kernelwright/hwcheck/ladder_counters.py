"""Emulated memory access counts of a ladder's rungs, compared with hardware counters."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from functools import partial

import torch

from kernelwright.core.errors import ProblemError
from kernelwright.core.ladder import CounterComparison
from kernelwright.hwcheck.emulation import InstrumentedKernel
from kernelwright.ladders import Rung, read_rungs, task_path
from kernelwright.measure.counters import collect_metrics
from kernelwright.problems import Problem, load_candidate, load_problem
from kernelwright.problems.cuda import build_cuda_program
from kernelwright.problems.header import parse_header
from kernelwright.problems.importing import import_file
from kernelwright.toolchain.emulator import MemoryInstruction

COUNTED_LADDERS = {"gemm_fp32": (6, (256, 256, 64)), "gemm_tensor": (4, (256, 256, 128))}
"""For each ladder how many of its first rungs are counted, up to asynchronous copies, and (M, N, K), small enough to
emulate."""
METRICS = {
    "sectors of a load": (
        "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
        "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum",
    ),
    "sectors of a store": (
        "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum",
        "l1tex__t_requests_pipe_lsu_mem_global_op_st.sum",
    ),
    "passes over the ideal": ("memory_l1_wavefronts_shared", "memory_l1_wavefronts_shared_ideal"),
}
"""Compared ratios: numerator and denominator counters."""


def compare_counters(ladder: str) -> Iterator[CounterComparison]:
    """Compare each ratio of each rung: emulated in this process, counted in a subprocess under ncu."""
    command = [sys.executable, "-c", f"from {__name__} import run; run({ladder!r})"]
    metrics = [name for pair in METRICS.values() for name in pair]
    rungs = _counted_rungs(ladder)
    kernels = [
        launch.entry for rung in rungs for launch in parse_header(rung.path.read_text(), str(rung.path)).launches
    ]
    measurements = collect_metrics(command, metrics, f"regex:^({'|'.join(kernels)})$")
    for rung, counters in zip(rungs, measurements, strict=True):
        for metric, emulated in emulated_ratios(rung).items():
            numerator, denominator = (counters[name] for name in METRICS[metric])
            yield CounterComparison(
                number=rung.number, name=rung.name, metric=metric, emulated=emulated, counted=numerator / denominator
            )


def run(ladder: str) -> None:
    """Launch every counted rung once, in order."""
    for rung in _counted_rungs(ladder):
        inputs = [value.cuda() if isinstance(value, torch.Tensor) else value for value in _inputs(ladder)]
        load_candidate(str(rung.path), _problem(ladder), "cuda").program(*inputs)
    torch.cuda.synchronize()


def emulated_ratios(rung: Rung, inputs: Sequence[object] = ()) -> dict[str, float]:
    """Emulate a rung and return its ratios by name in `METRICS`; without shared memory, only the sector ratios.

    Args:
        inputs: of the ladder's problem; those of the size in `COUNTED_LADDERS` by default.
    """
    launches: list[InstrumentedKernel] = []
    program = build_cuda_program(
        rung.path, "", _problem(rung.ladder), "cpu", partial(InstrumentedKernel, launches=launches, sanitizers=())
    )
    program(*(inputs or _inputs(rung.ladder)))
    accesses = [access for launch in launches for counts in launch.counts for access in counts.instructions]
    ratios = {
        f"sectors of a {kind}": _sectors_per_request([access for access in accesses if access.kind == f"global {kind}"])
        for kind in ("load", "store")
    }
    if shared := [access for access in accesses if access.is_shared]:
        wavefronts = sum(access.wavefronts for access in shared)
        ratios["passes over the ideal"] = wavefronts / sum(access.ideal_wavefronts for access in shared)
    return ratios


def _sectors_per_request(accesses: list[MemoryInstruction]) -> float:
    return sum(access.sectors for access in accesses) / sum(access.requests for access in accesses)


def _counted_rungs(ladder: str) -> list[Rung]:
    return read_rungs(ladder)[: COUNTED_LADDERS[ladder][0]]


def _problem(ladder: str) -> Problem:
    return load_problem(str(task_path(ladder)))


def _inputs(ladder: str) -> list[object]:
    torch.manual_seed(0)
    return import_file(task_path(ladder), ProblemError).inputs(COUNTED_LADDERS[ladder][1])
