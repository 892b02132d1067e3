"""Rows of the library's kernels: one use case on one size, against other implementations of the same workload."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

from kernelwright.core.cache import digest
from kernelwright.core.errors import KernelwrightError
from kernelwright.core.evidence import EvidenceRow, encode_result
from kernelwright.core.library import KernelRow
from kernelwright.evidence.instruments import current_versions
from kernelwright.evidence.kinds import BuildResult, MeasureRequest
from kernelwright.evidence.rows import current_commit, current_date
from kernelwright.evidence.source_digests import PACKAGE, combined_digest, find_headers, import_closure, source_digest
from kernelwright.kernels.catalog import KERNELS, family_package, find_signature
from kernelwright.kernels.rows.planning import LaunchPlan, Target, plan_launches
from kernelwright.kernels.workload import OURS, Workload, make_backward

INSTRUMENTS = ("graph clock", "paired comparison")
CALL_CLOCK = "event clock"
"""Times whole calls from Python; for small workloads only."""


class KernelRows:
    """The rows of kind `kernel`."""

    name = "kernel"
    result_type = KernelRow

    def sources_digest(self, row: EvidenceRow, root: Path) -> str:
        """Digest of all sources that can change the code of a row."""
        return _sources_digest(row.workload.partition("/")[0])

    def build(self, rows: Sequence[EvidenceRow], root: Path) -> list[BuildResult]:
        """Build the current code of each row."""
        known = {
            key: one for name in {_kernel_name(row) for row in rows} for key, one in _workloads_by_id(name).items()
        }
        return [_build_workload(known.get(row.workload), row.machine) for row in rows]

    def measure(self, request: MeasureRequest) -> Iterator[EvidenceRow]:
        """Yield each row as soon as it is measured on this machine."""
        from kernelwright.benchmark.kernel_library import measure_workload
        from kernelwright.hwcheck.mma_fragments import describe_device

        machine, environment = describe_device()
        names = [name for name in KERNELS if _is_requested(request, name)]
        for name in [name for name in request.names if "/" not in name] or names:
            find_signature(name)
        for name in names:
            for key, workload in _workloads_by_id(name).items():
                if request.names and not {key, name} & set(request.names):
                    continue
                built, row = _build_workload(workload, machine), measure_workload(workload)
                call_clock = [CALL_CLOCK] if row.ours.call_us else []
                yield EvidenceRow(
                    kind=self.name,
                    workload=key,
                    machine=machine,
                    device="cuda",
                    problem=built.problem,
                    artifact=built.artifact,
                    toolchain=built.toolchain,
                    sources=_sources_digest(name),
                    instruments=current_versions([*INSTRUMENTS, *call_clock]),
                    environment=environment,
                    commit=current_commit(request.root),
                    date=current_date(),
                    result=encode_result(row),
                )


KIND = KernelRows()


def workload_id(kernel: str, use_case: str, size: Sequence[int]) -> str:
    """The name of a workload in its row."""
    return f"{kernel}/{use_case}/{'x'.join(map(str, size))}"


def _kernel_name(row: EvidenceRow) -> str:
    return row.workload.partition("/")[0]


def _is_requested(request: MeasureRequest, kernel: str) -> bool:
    return not request.names or any(name.partition("/")[0] == kernel for name in request.names)


def _workloads_by_id(kernel: str) -> dict[str, Workload]:
    if kernel not in KERNELS:
        return {}
    from kernelwright.benchmark.kernel_library import load_workloads

    return {workload_id(kernel, one.use_case, one.size): one for one in load_workloads(kernel)}


def _build_workload(workload: Workload | None, machine: str) -> BuildResult:
    if workload is None:
        return BuildResult(problem="missing")
    try:
        from kernelwright.evidence import artifact_digest

        target = artifact_digest.target_from_spec(machine)
    except (ImportError, KernelwrightError) as error:
        return BuildResult(failure=f"its code cannot be compiled here: {error}")
    reference = PACKAGE.joinpath(*family_package(workload.kernel).split(".")[1:]) / "reference.py"
    problem = digest(workload.use_case, workload.direction, repr(workload.size), source_digest(reference))
    return BuildResult(problem, _artifact_digest(workload, target), artifact_digest.TOOLCHAIN)


def _artifact_digest(workload: Workload, target: Target) -> str:
    """Digest of the PTX of all kernels that the timed pass (forward, backward or both) launches."""
    import torch

    from kernelwright.evidence import artifact_digest
    from kernelwright.evidence.dry_run import dry_run

    if workload.plan:
        return artifact_digest.artifact_digest(LaunchPlan(target, list(workload.plan(target))))
    program = workload.implementations[OURS]
    with dry_run(), plan_launches(target) as plan:
        inputs = workload.make_inputs()
        with torch.set_grad_enabled(workload.direction != "forward"):
            results = program(*inputs)
        if workload.direction == "backward":
            plan.launches.clear()
        if workload.direction != "forward":
            make_backward(inputs, results)()
    return artifact_digest.artifact_digest(plan)


@cache
def _sources_digest(kernel: str) -> str:
    if kernel not in KERNELS:
        return "missing"
    modules = import_closure(f"{family_package(kernel)}.workloads", leave_out=("report/",))
    cuda = sorted({path for one in modules for path in one.parent.glob("*.cu")})
    return combined_digest([*modules, *cuda, *find_headers(cuda, PACKAGE / "kernels" / "rows")])
