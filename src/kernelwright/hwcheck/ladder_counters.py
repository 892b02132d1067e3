"""Holds what emulation counts on a ladder's rungs against the hardware's counters."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partial

import torch

from kernelwright.core.errors import ProblemError
from kernelwright.core.ladder import CounterComparison
from kernelwright.hwcheck.emulation import InstrumentedKernel
from kernelwright.ladders import Rung, read_rungs, task_path
from kernelwright.measure.counters import collect_metrics
from kernelwright.problems import Problem, load_candidate, load_problem
from kernelwright.problems.cuda import build_cuda_program
from kernelwright.problems.importing import import_file
from kernelwright.toolchain.emulator import MemoryInstruction

LADDER, NUM_RUNGS, SIZE = "gemm_fp32", 6, (256, 256, 64)
"""The rungs that are counted, from the first, and the size on which: small enough to emulate."""
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
"""What is compared, as a ratio of two counters."""


def compare_counters() -> Iterator[CounterComparison]:
    """Each ratio of each rung, emulated here and counted under ncu in a process of its own."""
    command = [sys.executable, "-c", f"from {__name__} import run; run()"]
    metrics = [name for pair in METRICS.values() for name in pair]
    found = collect_metrics(command, metrics, "regex:gemm_.*")
    for one, counters in zip(_counted_rungs(), found, strict=True):
        for what, emulated in emulated_ratios(one).items():
            above, below = (counters[name] for name in METRICS[what])
            yield CounterComparison(
                number=one.number, name=one.name, metric=what, emulated=emulated, counted=above / below
            )


def run() -> None:
    """Launches every counted rung once, in order."""
    for one in _counted_rungs():
        inputs = [part.cuda() if isinstance(part, torch.Tensor) else part for part in _inputs()]
        load_candidate(str(one.path), _problem(), "cuda").program(*inputs)
    torch.cuda.synchronize()


def emulated_ratios(one: Rung) -> dict[str, float]:
    """By the name in `METRICS`, those that a rung has."""
    launches: list[InstrumentedKernel] = []
    program = build_cuda_program(
        one.path, "", _problem(), "cpu", partial(InstrumentedKernel, launches=launches, sanitizers=())
    )
    program(*_inputs())
    found = [access for launch in launches for counts in launch.counts for access in counts.instructions]
    ratios = {
        f"sectors of a {kind}": _sectors_per_request([access for access in found if access.kind == f"global {kind}"])
        for kind in ("load", "store")
    }
    if shared := [access for access in found if access.is_shared]:
        passes = sum(access.wavefronts for access in shared)
        ratios["passes over the ideal"] = passes / sum(access.ideal_wavefronts for access in shared)
    return ratios


def _sectors_per_request(accesses: list[MemoryInstruction]) -> float:
    return sum(access.sectors for access in accesses) / sum(access.requests for access in accesses)


def _counted_rungs() -> list[Rung]:
    return read_rungs(LADDER)[:NUM_RUNGS]


def _problem() -> Problem:
    return load_problem(str(task_path(LADDER)))


def _inputs() -> list[object]:
    torch.manual_seed(0)
    return import_file(task_path(LADDER), ProblemError).inputs(SIZE)
