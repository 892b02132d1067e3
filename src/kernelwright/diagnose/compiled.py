"""The same reading of a program as torch.compile runs it: one row for each kernel that Inductor wrote or called.

Inductor tells what each of its kernels reads and writes, after fusion; the profiler tells how long each took. The
FLOPs are those of the program as written: its products in order for the kernels that Inductor calls, everything else
spread over the kernels that it wrote, by their bytes.
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
from kernelwright.diagnose.observation import FAULTS_FROM, Observation, observe
from kernelwright.machine.floor import last_cache_bytes
from kernelwright.measure.kernels import KernelTime, kernel_times
from kernelwright.measure.operators import OperatorTimes
from kernelwright.measure.paired import time_arms
from kernelwright.problems import Problem
from kernelwright.work import count

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
        ProblemError: the compiler refused the program, or left no kernel to read.
    """
    import torch

    program, inputs = problem.on(device), problem.inputs(device, seed=0)
    with torch.set_grad_enabled(problem.records_gradients(inputs)):
        stage("counting the work", limit_s)
        written = count(program, *inputs)
        stage("compiling the program", 2 * limit_s)
        compiled, nodes = _compiled(program, inputs)
        stage("timing the compiled program")
        arms = {"compiled": compiled}
        timing = time_arms(arms, inputs, device=device, last_cache_bytes=last_cache_bytes(here), budget_s=2.0)
        stage("clocking each kernel")
        kernels = kernel_times(lambda: compiled(*inputs[0], **inputs[1]), device)
    if not kernels:
        raise ProblemError("torch.compile left no kernel of its own to read", next="kw why without --compile")
    work = _as_compiled(written, kernels, nodes)
    total = timing.timings["compiled"]
    faulted = set(range(len(kernels))) if device == "cpu" and (total.faults_per_call or 0) >= FAULTS_FROM else set()
    times = OperatorTimes([kernel.time_us for kernel in kernels], faulted)
    return observe(problem.text, here, work, times, total.time_us, total)


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
            raise ProblemError(f"torch.compile refused the program: {type(fault).__name__}: {fault}") from fault
    return compiled, nodes


@contextlib.contextmanager
def _told(nodes: list[Node]) -> Iterator[None]:
    """Lets Inductor tell of each kernel it plans, compile afresh, and name its CPU kernels to the profiler."""
    import torch._inductor.config as inductor

    def tell(planned: Any) -> Any:
        nodes.extend(map(_node, planned))
        return planned

    options = {"cpp.enable_kernel_profile": True, "force_disable_caches": True, "_post_fusion_custom_pass": tell}
    with inductor.patch(options):
        yield


def _node(planned: Any) -> Node:
    total = int(planned.get_read_write_buffers_sizes())
    written = sum(int(buffer.node.get_numel()) * buffer.node.get_dtype().itemsize for buffer in planned.get_outputs())
    return Node(called=bool(planned.is_extern()), bytes_total=total, bytes_written=min(written, total))


def _as_compiled(written: ProgramWork, kernels: list[KernelTime], nodes: list[Node]) -> ProgramWork:
    """The counted work of the program, dealt out to the kernels that run."""
    products = iter([op for op in written.operators if op.kind in CALLED])
    moved = _dealt(kernels, nodes)
    own_bytes = sum(n.bytes_total for k, n in zip(kernels, moved, strict=True) if not k.called) or 1
    vector = {u: c for u, c in written.as_written.flops.items() if not u.startswith("matrix/")}
    operators = []
    for index, (kernel, node) in enumerate(zip(kernels, moved, strict=True)):
        product = next(products, None) if kernel.called else None
        share = node.bytes_total / own_bytes
        flops = product.work.flops if product else {u: int(c * share) for u, c in vector.items()}
        work = Work(flops=flops, bytes_read=node.bytes_total - node.bytes_written, bytes_written=node.bytes_written)
        operators.append(
            Operator(
                index=index,
                name=kernel.name,
                kind=product.kind if product else "other",
                known=True,
                work=work,
                shapes=product.shapes if product else "",
                module=product.module if product else "",
                fresh_bytes=node.bytes_written,
            )
        )
    total = sum((op.work for op in operators), Work())
    return ProgramWork(
        operators=tuple(operators),
        as_written=total,
        fused=written.fused,
        coverage=written.coverage,
        output_bytes=written.output_bytes,
    )


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
