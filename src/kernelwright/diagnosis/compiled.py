"""The same reading of a program as torch.compile runs it: one row for each kernel that Inductor wrote or called.

Inductor tells what each of its kernels reads and writes, after fusion; the profiler tells how long each took. The
FLOPs are those of the program as written: a kernel that Inductor calls has those of its own operator, everything else
is spread over the kernels that it wrote, by their bytes.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from kernelwright.core.errors import ProblemError
from kernelwright.core.progress import stage
from kernelwright.core.records import Machine, Operator, ProgramWork, Work
from kernelwright.diagnosis.observation import FAULTS_FROM, Observation, observe
from kernelwright.diagnosis.run_once import run_once
from kernelwright.machines import refresh_memory
from kernelwright.machines.floor import last_cache_bytes
from kernelwright.measure.kernels import KernelTime, kernel_times
from kernelwright.measure.operators import OperatorTimes
from kernelwright.measure.paired import time_arms
from kernelwright.problems import Problem
from kernelwright.work import count
from kernelwright.work.calls import signature_of
from kernelwright.work.formulas import FORMULAS

CALLED = ("matrix", "convolution", "attention")


@dataclass(frozen=True)
class Node:
    """One kernel as Inductor planned it."""

    called: bool
    bytes_total: int
    bytes_written: int


def observe_compiled(problem: Problem, here: Machine, device: str, limit_s: float) -> Observation:
    """Compiles the program with static shapes and reads each kernel of it.

    Raises:
        ProblemError: the program raised, the compiler refused it, or left no kernel to read.
    """
    import torch

    program, inputs = problem.on(device), problem.inputs(device, seed=0)
    with torch.set_grad_enabled(problem.records_gradients(inputs)):
        stage("running the program once", limit_s)
        run_once(program, inputs)
        here = refresh_memory(here)
        stage("counting the work", 2 * limit_s)
        written = count(program, *inputs)
        stage("compiling the program", 2 * limit_s)
        compiled, nodes = _compiled(program, inputs)
        stage("timing the compiled program")
        arms = {"compiled": compiled}
        timing = time_arms(arms, inputs, device=device, last_cache_bytes=last_cache_bytes(here), budget_s=2.0)
        stage("clocking each kernel")
        kernels = kernel_times(lambda: compiled(*inputs[0], **inputs[1]), device)
    if not kernels:
        raise ProblemError("torch.compile left no kernel of its own to read", next="leave --compile out")
    work = _as_compiled(written, kernels, nodes)
    total = timing.timings["compiled"]
    faulted = set(range(len(kernels))) if device == "cpu" and (total.faults_per_call or 0) >= FAULTS_FROM else set()
    times = OperatorTimes([kernel.time_us for kernel in kernels], faulted)
    text = problem.text and f"{problem.text}, compiled"
    return observe(text, here, work, times, total.time_us, total)


def _compiled(program: Callable[..., Any], inputs: Any) -> tuple[Callable[..., Any], list[Node]]:
    import torch

    nodes: list[Node] = []
    torch._dynamo.reset()
    compiled = torch.compile(program, dynamic=False)
    with _told(nodes), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            compiled(*inputs[0], **inputs[1])
        except Exception as fault:
            raise ProblemError(
                f"torch.compile refused the program: {type(fault).__name__}: {fault}", next="leave --compile out"
            ) from fault
    return compiled, nodes


@contextlib.contextmanager
def _told(nodes: list[Node]) -> Iterator[None]:
    """Lets Inductor tell of each kernel it plans, compile afresh, and name its CPU kernels to the profiler."""
    import torch._inductor.config as inductor

    def tell(planned: Any) -> Any:
        nodes.extend(_node(node) for node in planned if _runs(node))
        return planned

    options = {"cpp.enable_kernel_profile": True, "force_disable_caches": True, "_post_fusion_custom_pass": tell}
    with inductor.patch(options):
        yield


def _runs(planned: Any) -> bool:
    """Whether a planned node becomes a kernel. One result taken out of several is none, nor is a cat in place."""
    from torch._inductor.ir import MultiOutput
    from torch._inductor.scheduler import NopKernelSchedulerNode

    return not isinstance(planned, NopKernelSchedulerNode) and not isinstance(planned.node, MultiOutput)


def _node(planned: Any) -> Node:
    total, written = int(planned.get_read_write_buffers_sizes()), int(planned.get_write_buffer_sizes())
    return Node(called=bool(planned.is_extern()), bytes_total=total, bytes_written=min(written, total))


def _as_compiled(written: ProgramWork, kernels: list[KernelTime], nodes: list[Node]) -> ProgramWork:
    """The counted work of the program, dealt out to the kernels that run. A kernel of which Inductor told nothing is
    not known."""
    moved = _dealt(kernels, nodes)
    called = _called(written, kernels, moved)
    spread = _spread(written, called, kernels, moved)
    operators = tuple(
        Operator(
            index=index,
            name=kernel.name,
            kind=own.kind if own else "other",
            known=node.bytes_total > 0 and (own is None or own.known),
            work=Work(
                flops=((own.work if own else Work()) + rest).flops,
                bytes_read=node.bytes_total - node.bytes_written,
                bytes_written=node.bytes_written,
            ),
            shapes=own.shapes if own else "",
            module=own.module if own else "",
            fresh_bytes=node.bytes_written,
        )
        for index, (kernel, node, own, rest) in enumerate(zip(kernels, moved, called, spread, strict=True))
    )
    return ProgramWork(
        operators=operators,
        as_written=sum((op.work for op in operators), Work()),
        fused=written.fused,
        coverage=written.coverage * _told_share(kernels, moved),
        output_bytes=written.output_bytes,
    )


def _called(written: ProgramWork, kernels: list[KernelTime], moved: list[Node]) -> list[Operator | None]:
    """The operator as written that each called kernel stands for: the next one of its name (of products: of its kind)
    that writes as many bytes, else the next. So a product by a vector is passed over: Inductor writes that itself."""
    left = list(written.operators)
    found: list[Operator | None] = []
    for kernel, node in zip(kernels, moved, strict=True):
        alike = [op for op in left if _stands_for(kernel, op)]
        own = next((op for op in alike if op.work.bytes_written == node.bytes_written), next(iter(alike), None))
        found.append(own)
        left = [op for op in left if op is not own]
    return found


def _stands_for(kernel: KernelTime, op: Operator) -> bool:
    if not kernel.called:
        return False
    return op.name == kernel.name.replace("::", ".") or (op.kind in CALLED and op.kind == _kind(kernel.name))


def _kind(name: str) -> str:
    """What an operator of the library is, by the name that the profiler gives it: `addmm` is a product."""
    import torch

    namespace, _, base = name.rpartition("::")
    operator = getattr(getattr(torch.ops, namespace or "aten"), base, None)
    if operator is None:
        return "other"
    formula = FORMULAS.get(signature_of(getattr(operator, operator.overloads()[0])).key)
    return formula.kind if formula else "other"


def _spread(
    written: ProgramWork, called: list[Operator | None], kernels: list[KernelTime], moved: list[Node]
) -> list[Work]:
    """The FLOPs that no called kernel has: by bytes over the kernels that Inductor wrote, over all if it wrote none."""
    taken = sum((own.work for own in called if own), Work()).flops
    left = {unit: flops - taken.get(unit, 0) for unit, flops in written.as_written.flops.items()}
    none = all(kernel.called for kernel in kernels)
    parts = [node.bytes_total if none or not k.called else 0 for k, node in zip(kernels, moved, strict=True)]
    total = sum(parts) or 1
    return [Work(flops={u: f * part // total for u, f in left.items() if f * part >= total}) for part in parts]


def _told_share(kernels: list[KernelTime], moved: list[Node]) -> float:
    """The share of the time that goes to kernels whose bytes Inductor told."""
    told = sum(kernel.time_us for kernel, node in zip(kernels, moved, strict=True) if node.bytes_total)
    return told / (sum(kernel.time_us for kernel in kernels) or 1.0)


def _dealt(kernels: list[KernelTime], nodes: list[Node]) -> list[Node]:
    """What each kernel moves. Between two called kernels Inductor may put several planned ones into one that runs:
    where the numbers differ, the stretch's bytes are dealt out by time."""
    dealt: list[Node] = []
    for run, planned in zip(_stretches(kernels), _stretches(nodes), strict=False):
        if len(run) == len(planned):
            dealt += planned
            continue
        spent = sum(k.time_us for k in run) or 1.0
        total, written = (sum(getattr(n, name) for n in planned) for name in ("bytes_total", "bytes_written"))
        dealt += [Node(k.called, int(total * k.time_us / spent), int(written * k.time_us / spent)) for k in run]
    return dealt + [Node(k.called, 0, 0) for k in kernels[len(dealt) :]]


def _stretches(items: list[Any]) -> list[list[Any]]:
    """Items cut so that each called kernel stands alone, and what lies between two of them together."""
    stretches: list[list[Any]] = [[]]
    for item in items:
        if item.called:
            stretches += [[item], []]
        else:
            stretches[-1].append(item)
    return stretches
