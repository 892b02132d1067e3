"""Diagnosis of a program compiled by torch.compile: one row per kernel that Inductor generates or calls.

Inductor reports the bytes that each kernel reads and writes after fusion, the profiler its time. The FLOPs are those of
the eager program: an extern kernel has those of its operator, the rest is distributed over the generated kernels in
proportion to their bytes.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from kernelwright.core.errors import ProblemError
from kernelwright.core.machine import Machine
from kernelwright.core.progress import report_stage
from kernelwright.core.work import Operator, ProgramWork, Work
from kernelwright.diagnosis.observation import MIN_FAULTS_PER_CALL, Observation, observe
from kernelwright.diagnosis.run_once import run_once
from kernelwright.machines import refresh_memory
from kernelwright.machines.floor import last_cache_bytes
from kernelwright.measure.kernels import KernelTime, time_kernels
from kernelwright.measure.operators import OperatorTimes
from kernelwright.measure.paired import time_variants
from kernelwright.problems import Problem
from kernelwright.work import count_work
from kernelwright.work.calls import get_schema
from kernelwright.work.formulas import FORMULAS

EXTERN_KINDS = ("matrix", "convolution", "attention")


@dataclass(frozen=True)
class PlannedKernel:
    """One kernel of Inductor's schedule."""

    is_extern: bool
    total_bytes: int
    written_bytes: int


def observe_compiled(problem: Problem, machine: Machine, device: str, limit_s: float) -> Observation:
    """Compile the program with static shapes and time each of its kernels.

    Raises:
        ProblemError: the program raised, the compiler failed, or no kernel is left to time.
    """
    import torch

    program, inputs = problem.program_on(device), problem.inputs(device, seed=0)
    with torch.set_grad_enabled(problem.needs_grad(inputs)):
        report_stage("running the program once", limit_s)
        run_once(program, inputs)
        machine = refresh_memory(machine)
        report_stage("counting the work", 2 * limit_s)
        written = count_work(program, *inputs)
        report_stage("compiling the program", 2 * limit_s)
        compiled, nodes = _compile_and_record(program, inputs)
        report_stage("timing the compiled program")
        variants = {"compiled": compiled}
        timing = time_variants(
            variants, inputs, device=device, last_cache_bytes=last_cache_bytes(machine), budget_s=2.0
        )
        report_stage("timing each kernel")
        kernels = time_kernels(lambda: compiled(*inputs[0], **inputs[1]), device)
    if not kernels:
        raise ProblemError("torch.compile left no kernel of its own to time", next="omit --compile")
    work = _assign_work(written, kernels, nodes)
    total = timing.timings["compiled"]
    faulted = (
        set(range(len(kernels)))
        if device == "cpu" and (total.page_faults_per_call or 0) >= MIN_FAULTS_PER_CALL
        else set()
    )
    times = OperatorTimes([kernel.time_us for kernel in kernels], faulted)
    text = problem.summary and f"{problem.summary}, compiled"
    return observe(text, machine, work, times, total.time_us, total)


def _compile_and_record(program: Callable[..., Any], inputs: Any) -> tuple[Callable[..., Any], list[PlannedKernel]]:
    import torch

    nodes: list[PlannedKernel] = []
    torch._dynamo.reset()
    compiled = torch.compile(program, dynamic=False)
    with _record_planned_kernels(nodes), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            compiled(*inputs[0], **inputs[1])
        except Exception as error:
            raise ProblemError(
                f"torch.compile failed on the program: {type(error).__name__}: {error}", next="omit --compile"
            ) from error
    return compiled, nodes


@contextlib.contextmanager
def _record_planned_kernels(nodes: list[PlannedKernel]) -> Iterator[None]:
    """Record each kernel that Inductor schedules; disables its caches and names its CPU kernels in the profiler."""
    import torch._inductor.config as inductor

    def record(planned: Any) -> Any:
        nodes.extend(_build_planned_kernel(node) for node in planned if _becomes_kernel(node))
        return planned

    options = {"cpp.enable_kernel_profile": True, "force_disable_caches": True, "_post_fusion_custom_pass": record}
    with inductor.patch(options):
        yield


def _becomes_kernel(planned: Any) -> bool:
    """Whether a scheduled node becomes a kernel; a MultiOutput or an in-place cat does not."""
    from torch._inductor.ir import MultiOutput
    from torch._inductor.scheduler import NopKernelSchedulerNode

    return not isinstance(planned, NopKernelSchedulerNode) and not isinstance(planned.node, MultiOutput)


def _build_planned_kernel(planned: Any) -> PlannedKernel:
    total, written = int(planned.get_read_write_buffers_sizes()), int(planned.get_write_buffer_sizes())
    return PlannedKernel(is_extern=bool(planned.is_extern()), total_bytes=total, written_bytes=min(written, total))


def _assign_work(written: ProgramWork, kernels: list[KernelTime], nodes: list[PlannedKernel]) -> ProgramWork:
    """Distribute the counted work of the program over its kernels. Kernels without bytes from Inductor are unknown."""
    traffic = _distribute_bytes(kernels, nodes)
    extern = _match_extern_operators(written, kernels, traffic)
    generated = _distribute_flops(written, extern, kernels, traffic)
    operators = tuple(
        Operator(
            index=index,
            name=kernel.name,
            kind=own.kind if own else "other",
            flops_known=node.total_bytes > 0 and (own is None or own.flops_known),
            work=Work(
                flops=((own.work if own else Work()) + rest).flops,
                bytes_read=node.total_bytes - node.written_bytes,
                bytes_written=node.written_bytes,
            ),
            shapes=own.shapes if own else "",
            module=own.module if own else "",
            allocated_bytes=node.written_bytes,
        )
        for index, (kernel, node, own, rest) in enumerate(zip(kernels, traffic, extern, generated, strict=True))
    )
    return ProgramWork(
        operators=operators,
        as_written=sum((op.work for op in operators), Work()),
        fused=written.fused,
        coverage=written.coverage * _known_time_share(kernels, traffic),
        output_bytes=written.output_bytes,
    )


def _match_extern_operators(
    written: ProgramWork, kernels: list[KernelTime], planned: list[PlannedKernel]
) -> list[Operator | None]:
    """The eager operator of each extern kernel.

    It is the next one with the same name (for matrix operations: the same kind) that writes as many bytes, else the
    next one. This skips matrix-vector products, which Inductor generates itself.
    """
    remaining = list(written.operators)
    matches: list[Operator | None] = []
    for kernel, node in zip(kernels, planned, strict=True):
        similar = [op for op in remaining if _is_same_operator(kernel, op)]
        own = next((op for op in similar if op.work.bytes_written == node.written_bytes), next(iter(similar), None))
        matches.append(own)
        remaining = [op for op in remaining if op is not own]
    return matches


def _is_same_operator(kernel: KernelTime, op: Operator) -> bool:
    if not kernel.is_extern:
        return False
    return op.name == kernel.name.replace("::", ".") or (
        op.kind in EXTERN_KINDS and op.kind == _operator_kind(kernel.name)
    )


def _operator_kind(name: str) -> str:
    """The kind of a library operator by its profiler name: `addmm` is a matrix operation."""
    import torch

    namespace, _, base = name.rpartition("::")
    operator = getattr(getattr(torch.ops, namespace or "aten"), base, None)
    if operator is None:
        return "other"
    formula = FORMULAS.get(get_schema(getattr(operator, operator.overloads()[0])).key)
    return formula.kind if formula else "other"


def _distribute_flops(
    written: ProgramWork, extern: list[Operator | None], kernels: list[KernelTime], planned: list[PlannedKernel]
) -> list[Work]:
    """Distribute the FLOPs of no extern kernel by bytes over the generated kernels, or over all if there are none."""
    extern_flops = sum((own.work for own in extern if own), Work()).flops
    rest = {unit: flops - extern_flops.get(unit, 0) for unit, flops in written.as_written.flops.items()}
    all_extern = all(kernel.is_extern for kernel in kernels)
    parts = [node.total_bytes if all_extern or not k.is_extern else 0 for k, node in zip(kernels, planned, strict=True)]
    total = sum(parts) or 1
    return [Work(flops={u: f * part // total for u, f in rest.items() if f * part >= total}) for part in parts]


def _known_time_share(kernels: list[KernelTime], planned: list[PlannedKernel]) -> float:
    """The share of the time in kernels whose bytes are known from Inductor."""
    known_us = sum(kernel.time_us for kernel, node in zip(kernels, planned, strict=True) if node.total_bytes)
    return known_us / (sum(kernel.time_us for kernel in kernels) or 1.0)


def _distribute_bytes(kernels: list[KernelTime], nodes: list[PlannedKernel]) -> list[PlannedKernel]:
    """The bytes of each kernel that ran.

    Between two extern kernels Inductor may merge several scheduled kernels into one; if the numbers differ, the bytes
    of that segment are distributed in proportion to time.
    """
    distributed: list[PlannedKernel] = []
    for run, planned in zip(_split_at_extern(kernels), _split_at_extern(nodes), strict=False):
        if len(run) == len(planned):
            distributed += planned
            continue
        spent = sum(k.time_us for k in run) or 1.0
        total, written = (sum(getattr(n, name) for n in planned) for name in ("total_bytes", "written_bytes"))
        distributed += [
            PlannedKernel(k.is_extern, int(total * k.time_us / spent), int(written * k.time_us / spent)) for k in run
        ]
    return distributed + [PlannedKernel(k.is_extern, 0, 0) for k in kernels[len(distributed) :]]


def _split_at_extern(items: list[Any]) -> list[list[Any]]:
    """Split items into segments: each extern kernel alone, and all items between two of them together."""
    segments: list[list[Any]] = [[]]
    for item in items:
        if item.is_extern:
            segments += [[item], []]
        else:
            segments[-1].append(item)
    return segments
