"""Rows of `kw optimize` on suites of programs: each is optimized and timed against eager, torch.compile and a copy."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import torch
from torch.utils._pytree import tree_map

from kernelwright.compiler.backends import backend_for
from kernelwright.compiler.capture.target_device import capturing_for
from kernelwright.compiler.cpp.configs import CppConfig
from kernelwright.compiler.kernel_source import RegionKernel, load
from kernelwright.compiler.planning import plan_problem
from kernelwright.compiler.program_suite import load_programs
from kernelwright.compiler.reference import bind_placeholders, record_region_inputs
from kernelwright.compiler.triton.tile import TritonConfig
from kernelwright.core.cache import digest
from kernelwright.core.errors import KernelwrightError, NotFoundError
from kernelwright.core.evidence import EvidenceRow
from kernelwright.core.optimization import TORCH, TORCH_COMPILE, WHOLE_PROGRAM_PREFIX, ProgramSuiteRow
from kernelwright.core.progress import report_stage
from kernelwright.evidence.kinds import BuildResult, MeasureRequest
from kernelwright.evidence.program_runs import measure_programs
from kernelwright.evidence.source_digests import combined_digest, import_closure, normalize_python, source_digest
from kernelwright.kernels.rows.planning import Target, plan_launches
from kernelwright.problems import Problem

OWN_SUITE, SUITE_FOLDER = "suite", "examples/suite"
CONFIG_TYPES = {"cpu": CppConfig, "cuda": TritonConfig}
CODEGEN_FOLDERS = {"cpu": "compiler/cpp/", "cuda": "compiler/triton/"}
CODEGEN_MODULES = (
    "kernelwright.compiler.capture.capture",
    "kernelwright.compiler.regions.partition",
    "kernelwright.compiler.kernel_source",
)
_LAUNCHER = re.compile(r"^def make_launcher\(", re.MULTILINE)


class ProgramRows:
    """The rows of kind `optimize`."""

    name = "optimize"
    result_type = ProgramSuiteRow

    def sources_digest(self, row: EvidenceRow, root: Path) -> str:
        """Digest of all sources that can change the code of a row."""
        path = _program_file(row.workload, root)
        return digest(_codegen_digest(row.device), source_digest(path) if path else "")

    def build(self, rows: Sequence[EvidenceRow], root: Path) -> list[BuildResult]:
        """Build the current code of each row."""
        known = {
            (suite, device): {one.name: one for one in load_programs(str(root / SUITE_FOLDER), device)}
            for suite, device in {(_suite_name(row), row.device) for row in rows}
            if suite == OWN_SUITE
        }
        built = []
        for number, row in enumerate(rows, 1):
            report_stage(f"building {row.workload}, {number} of {len(rows)}", 120)
            built.append(_build_row(row, known.get((_suite_name(row), row.device))))
        return built

    def measure(self, request: MeasureRequest) -> Iterator[EvidenceRow]:
        """Yield each row as soon as it is measured on this machine."""
        return measure_programs(request, build_program, self.sources_digest)


KIND = ProgramRows()


def build_program(problem: Problem, row: ProgramSuiteRow, device: str, machine: str) -> BuildResult:
    """Build a program's kernels with the configs of a measured row; needs no device.

    The artifact is empty if the program is now partitioned into other regions.
    """
    try:
        toolchain, target = _target_of(machine) if device == "cuda" else ("", None)
    except (ImportError, KernelwrightError) as error:
        return BuildResult(failure=f"its code cannot be compiled here: {error}")
    inputs = _draw_empty_inputs(problem)
    problem_digest = digest(problem.name, normalize_python(_program_text(problem)), _shapes_text(inputs))
    winners = [_parse_winner(line, device) for line in row.winners]
    whole_program = next(
        (line.removeprefix(WHOLE_PROGRAM_PREFIX) for line in row.winners if line.startswith(WHOLE_PROGRAM_PREFIX)), ""
    )
    torch_parts = digest(whole_program, *(f"{name}: {winner}" for name, winner in winners if isinstance(winner, str)))
    configs = {name: winner for name, winner in winners if not isinstance(winner, str)} if not whole_program else {}
    if not configs:
        return BuildResult(problem_digest, torch_parts, toolchain)
    try:
        code = _generate_kernels(replace(problem, make_inputs=lambda: inputs), configs, target)
    except NotFoundError:
        return BuildResult(problem_digest, "", toolchain)
    except Exception as error:  # from our compiler or from Triton's
        failure = f"its code cannot be built: {type(error).__name__}: {error}"
        return BuildResult(problem_digest, "", toolchain, failure)
    return BuildResult(problem_digest, digest(torch_parts, *code), toolchain)


def _target_of(machine: str) -> tuple[str, Target]:
    from kernelwright.evidence import artifact_digest

    return artifact_digest.TOOLCHAIN, artifact_digest.target_from_spec(machine)


def _build_row(row: EvidenceRow, known: dict[str, Problem] | None) -> BuildResult:
    if known is None:
        return BuildResult(failure=f"the programs of {_suite_name(row)} are not available")
    name = row.workload.partition("/")[2]
    if name not in known:
        return BuildResult(problem="missing")
    return build_program(known[name], row.decode_result(ProgramSuiteRow), row.device, row.machine)


def _generate_kernels(problem: Problem, configs: dict[str, Any], target: Target | None) -> list[str]:
    """The code of the regions: PTX of their launches for a GPU, C++ with its launcher for a CPU."""
    device = "cuda" if target else "cpu"
    generator = backend_for(device)
    with capturing_for(device):
        plan = plan_problem(problem, "cpu")
    texts = {
        part.region.name: generator.emit_module([RegionKernel(part.region, configs[part.region.name])])
        for part in plan.regions
        if part.region.name in configs
    }
    if missing := configs.keys() - texts.keys():
        raise NotFoundError(f"no {', '.join(sorted(missing))} in the current plan")
    if target is None:
        return [normalize_python(text) for text in texts.values()]
    from kernelwright.evidence import artifact_digest
    from kernelwright.evidence.dry_run import dry_run

    with dry_run(), plan_launches(target) as launches:
        values = bind_placeholders(plan.captured, problem.program_on("cpu"), *problem.inputs("cpu", 0))
        for part, args in zip(plan.regions, record_region_inputs(plan.captured, plan.regions, values), strict=True):
            if part.region.name in texts:
                getattr(_load_recording_module(texts[part.region.name], launches), part.region.name)(*args)
    return [artifact_digest.artifact_digest(launches)]


def _load_recording_module(text: str, plan: Any) -> ModuleType:
    """Load a module of kernels with a launcher that records the launches."""

    def make_launcher(
        kernel: Any, num_programs: int, num_warps: int, resident_programs: int = 1
    ) -> Callable[..., None]:
        return lambda *tensors: plan.add_triton(kernel, tensors, {"num_warps": num_warps})

    return load(_LAUNCHER.sub("def unused_make_launcher(", text), {"make_launcher": make_launcher})


def _draw_empty_inputs(problem: Problem) -> Any:
    from kernelwright.evidence.dry_run import dry_run

    with dry_run():
        return problem.make_inputs()


def _parse_winner(line: str, device: str) -> tuple[str, Any]:
    """Parse `region_0: outer 512, inner 1, ..., 1.02x faster ...` into a region and its config or torch variant."""
    name, _, rest = line.partition(": ")
    winner = rest.partition(",")[0]
    if winner in (TORCH, TORCH_COMPILE) or line.startswith(WHOLE_PROGRAM_PREFIX):
        return name, winner
    config_type, values = CONFIG_TYPES[device], {}
    for part in rest.split(", "):
        field, _, value = part.partition(" ")
        if field not in config_type.__struct_fields__:
            break
        values[field] = value == "True" if value in ("True", "False") else value
    try:
        return name, msgspec.convert(values, config_type, strict=False)
    except msgspec.ValidationError:  # a winner of another tuner
        return name, winner


def _shapes_text(inputs: Any) -> str:
    def describe(one: Any) -> str:
        return f"{one.dtype} {tuple(one.shape)} {one.stride()}" if isinstance(one, torch.Tensor) else repr(one)

    return repr(tree_map(describe, inputs))


def _program_text(problem: Problem) -> str:
    """The source of a suite's program function, or of a whole problem file."""
    path, _, name = (problem.source or "").partition(":")
    text = Path(path).read_text("utf-8")
    return normalize_python(text, name) if name else text


def _suite_name(row: EvidenceRow) -> str:
    return row.workload.partition("/")[0]


def _program_file(workload: str, root: Path) -> Path | None:
    suite, _, name = workload.partition("/")
    path = root / SUITE_FOLDER / f"{name.partition(':')[0]}.py"
    return path if suite == OWN_SUITE and path.exists() else None


@cache
def _codegen_digest(device: str) -> str:
    others = [folder for other, folder in CODEGEN_FOLDERS.items() if other != device]
    return combined_digest(import_closure(*CODEGEN_MODULES, leave_out=("report/", *others)))
