"""Rows of the library's kernels: one use on one size, beside everybody else's kernels for the same work."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

from kernelwright.core.cache import digest
from kernelwright.core.errors import KernelwrightError
from kernelwright.core.evidence import EvidenceRow, raw
from kernelwright.core.library import KernelRow
from kernelwright.evidence.digests import PACKAGE, combined, headers_of, import_closure, source_digest
from kernelwright.evidence.instruments import versions
from kernelwright.evidence.kinds import Built, Request
from kernelwright.evidence.rows import current_commit, today
from kernelwright.kernels.catalog import KERNELS, family_of, sample
from kernelwright.kernels.rows.planning import Target, planned
from kernelwright.kernels.workload import OURS, Workload, gradients

INSTRUMENTS = ("graph clock", "paired comparison")
CALL_INSTRUMENT = "event clock"
"""Times calls from Python, for small rows alone."""


class KernelRows:
    name = "kernel"
    result = KernelRow

    def sources(self, row: EvidenceRow, root: Path) -> str:
        return _sources(row.workload.partition("/")[0])

    def build(self, rows: Sequence[EvidenceRow], root: Path) -> list[Built]:
        known = {key: one for name in {_kernel(row) for row in rows} for key, one in _workloads(name).items()}
        return [_built(known.get(row.workload), row.machine) for row in rows]

    def measure(self, request: Request) -> Iterator[EvidenceRow]:
        from kernelwright.benchmark.kernel_library import measure
        from kernelwright.hwcheck.mma_fragments import device

        machine, environment = device()
        names = [name for name in KERNELS if _wants(request, name)]
        for name in [name for name in request.names if "/" not in name] or names:
            sample(name)
        for name in names:
            for key, workload in _workloads(name).items():
                if request.names and not {key, name} & set(request.names):
                    continue
                built, row = _built(workload, machine), measure(workload)
                timed = [CALL_INSTRUMENT] if row.ours.call_us else []
                yield EvidenceRow(
                    kind=self.name,
                    workload=key,
                    machine=machine,
                    device="cuda",
                    problem=built.problem,
                    artifact=built.artifact,
                    toolchain=built.toolchain,
                    sources=_sources(name),
                    instruments=versions([*INSTRUMENTS, *timed]),
                    environment=environment,
                    commit=current_commit(request.root),
                    date=today(),
                    result=raw(row),
                )


KIND = KernelRows()


def workload_id(kernel: str, what: str, size: Sequence[int]) -> str:
    return f"{kernel}/{what}/{'x'.join(map(str, size))}"


def _kernel(row: EvidenceRow) -> str:
    return row.workload.partition("/")[0]


def _wants(request: Request, kernel: str) -> bool:
    return not request.names or any(name.partition("/")[0] == kernel for name in request.names)


def _workloads(kernel: str) -> dict[str, Workload]:
    if kernel not in KERNELS:
        return {}
    from kernelwright.benchmark.kernel_library import workloads

    return {workload_id(kernel, one.what, one.size): one for one in workloads(kernel)}


def _built(workload: Workload | None, machine: str) -> Built:
    if workload is None:
        return Built(problem="gone")
    try:
        from kernelwright.evidence import machine_code

        target = machine_code.target_of(machine)
    except (ImportError, KernelwrightError) as fault:
        return Built(failed=f"its code cannot be compiled here: {fault}")
    reference = PACKAGE.joinpath(*family_of(workload.kernel).split(".")[1:]) / "reference.py"
    problem = digest(workload.what, workload.direction, repr(workload.size), source_digest(reference))
    return Built(problem, _artifact(workload, target), machine_code.TOOLCHAIN)


def _artifact(workload: Workload, target: Target) -> str:
    """Digest of the PTX of all kernels that a call launches; of its gradients where these are timed."""
    import torch

    from kernelwright.evidence import machine_code
    from kernelwright.evidence.dry_run import dry_run

    program = workload.programs[OURS]
    with dry_run(), planned(target) as plan:
        inputs = workload.inputs()
        with torch.set_grad_enabled(workload.direction != "forward"):
            results = program(*inputs)
        if workload.direction == "backward":
            plan.launches.clear()
        if workload.direction != "forward":
            gradients(inputs, results)()
    return machine_code.artifact(plan)


@cache
def _sources(kernel: str) -> str:
    if kernel not in KERNELS:
        return "gone"
    modules = import_closure(f"{family_of(kernel)}.workloads", leave_out=("report/",))
    cuda = sorted({path for one in modules for path in one.parent.glob("*.cu")})
    return combined([*modules, *cuda, *headers_of(cuda, PACKAGE / "kernels" / "rows")])
