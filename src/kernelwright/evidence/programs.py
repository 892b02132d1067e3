"""Rows of `kw optimize` on suites of programs: each optimised and timed beside eager, torch.compile and a copy."""

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

from kernelwright.compiler.backends import generator_for
from kernelwright.compiler.cpp.configs import CpuChoice
from kernelwright.compiler.kernel_source import Kernel, load
from kernelwright.compiler.pipeline import plan_of
from kernelwright.compiler.program_suite import programs
from kernelwright.compiler.reference import inputs_of, placeholder_values
from kernelwright.compiler.triton.tile import CudaChoice
from kernelwright.core.cache import digest
from kernelwright.core.errors import KernelwrightError, NotFoundError
from kernelwright.core.evidence import EvidenceRow
from kernelwright.core.optimization import COMPILED, TORCH, WHOLE, SuiteRow
from kernelwright.core.progress import stage
from kernelwright.evidence.digests import combined, import_closure, normal_python, source_digest
from kernelwright.evidence.kinds import Built, Request
from kernelwright.evidence.program_runs import measure
from kernelwright.kernels.rows.planning import Target, planned
from kernelwright.problems import Problem

OWN_SUITE, SUITE_FOLDER = "suite", "examples/suite"
CHOICES = {"cpu": CpuChoice, "cuda": CudaChoice}
PRINTERS = {"cpu": "compiler/cpp/", "cuda": "compiler/triton/"}
ROOTS = (
    "kernelwright.compiler.capture.capture",
    "kernelwright.compiler.regions.partition",
    "kernelwright.compiler.kernel_source",
)
_STARTER = re.compile(r"^def starter\(", re.MULTILINE)


class ProgramRows:
    name = "optimize"
    result = SuiteRow

    def sources(self, row: EvidenceRow, root: Path) -> str:
        path = _file(row.workload, root)
        return digest(_sources(row.device), source_digest(path) if path else "")

    def build(self, rows: Sequence[EvidenceRow], root: Path) -> list[Built]:
        known = {
            (suite, device): {one.name: one for one in programs(str(root / SUITE_FOLDER), device)}
            for suite, device in {(_suite(row), row.device) for row in rows}
            if suite == OWN_SUITE
        }
        found = []
        for at, row in enumerate(rows, 1):
            stage(f"building {row.workload}, {at} of {len(rows)}", 120)
            found.append(_built_of(row, known.get((_suite(row), row.device))))
        return found

    def measure(self, request: Request) -> Iterator[EvidenceRow]:
        return measure(request, built, self.sources)


KIND = ProgramRows()


def built(problem: Problem, row: SuiteRow, device: str, machine: str) -> Built:
    """The code of a program's kernels, with the choices that a measured row names; no device is needed.

    The artifact is empty where today's compiler does not make that code.
    """
    try:
        toolchain, target = _target_of(machine) if device == "cuda" else ("", None)
    except (ImportError, KernelwrightError) as fault:
        return Built(failed=f"its code cannot be compiled here: {fault}")
    inputs = _inputs_without_values(problem)
    described = digest(problem.name, normal_python(_text_of(problem)), _shapes(inputs))
    ways = [_way(line, device) for line in row.winners]
    whole = next((line.removeprefix(WHOLE) for line in row.winners if line.startswith(WHOLE)), "")
    plain = digest(whole, *(f"{name}: {way}" for name, way in ways if isinstance(way, str)))
    chosen = {name: way for name, way in ways if not isinstance(way, str)} if not whole else {}
    if not chosen:
        return Built(described, plain, toolchain)
    try:
        code = _kernels(replace(problem, make_inputs=lambda: inputs), chosen, target)
    except Exception as fault:  # of our compiler or of Triton's
        stage(f"{problem.name}: {type(fault).__name__}: {fault}")
        return Built(described, "", toolchain)
    return Built(described, digest(plain, *code), toolchain)


def _target_of(machine: str) -> tuple[str, Target]:
    from kernelwright.evidence import machine_code

    return machine_code.TOOLCHAIN, machine_code.target_of(machine)


def _built_of(row: EvidenceRow, known: dict[str, Problem] | None) -> Built:
    if known is None:
        return Built(failed=f"the programs of {_suite(row)} are not here")
    name = row.workload.partition("/")[2]
    if name not in known:
        return Built(problem="gone")
    return built(known[name], row.as_type(SuiteRow), row.device, row.machine)


def _kernels(problem: Problem, chosen: dict[str, Any], target: Target | None) -> list[str]:
    """The code of the regions: PTX of what they launch on a GPU, or for a CPU C++ with what calls it."""
    generator, plan = generator_for("cuda" if target else "cpu"), plan_of(problem, "cpu")
    texts = {
        part.region.name: generator.module([Kernel(part.region, chosen[part.region.name])])
        for part in plan.parts
        if part.region.name in chosen
    }
    if lost := chosen.keys() - texts.keys():
        raise NotFoundError(f"no {', '.join(sorted(lost))} in today's plan")
    if target is None:
        return [normal_python(text) for text in texts.values()]
    from kernelwright.evidence import machine_code
    from kernelwright.evidence.dry_run import dry_run

    with dry_run(), planned(target) as launches:
        values = placeholder_values(plan.captured, problem.on("cpu"), *problem.inputs("cpu", 0))
        for part, given in zip(plan.parts, inputs_of(plan.captured, plan.parts, values), strict=True):
            if part.region.name in texts:
                getattr(_recording(texts[part.region.name], launches), part.region.name)(*given)
    return [machine_code.artifact(launches)]


def _recording(text: str, plan: Any) -> ModuleType:
    """A module of kernels whose launches are collected."""

    def starter(kernel: Any, programs: int, warps: int, together: int = 1) -> Callable[..., None]:
        return lambda *tensors: plan.add_triton(kernel, tensors, {"num_warps": warps})

    return load(_STARTER.sub("def unused_starter(", text), {"starter": starter})


def _inputs_without_values(problem: Problem) -> Any:
    from kernelwright.evidence.dry_run import dry_run

    with dry_run():
        return problem.make_inputs()


def _way(line: str, device: str) -> tuple[str, Any]:
    """`region_0: outer 512, inner 1, ..., 1.02x faster ...` as the region and its choice, or torch's way by name."""
    name, _, rest = line.partition(": ")
    way = rest.partition(",")[0]
    if way in (TORCH, COMPILED) or line.startswith(WHOLE):
        return name, way
    kind, values = CHOICES[device], {}
    for part in rest.split(", "):
        field, _, value = part.partition(" ")
        if field not in kind.__struct_fields__:
            break
        values[field] = value == "True" if value in ("True", "False") else value
    try:
        return name, msgspec.convert(values, kind, strict=False)
    except msgspec.ValidationError:  # of another tuner
        return name, way


def _shapes(inputs: Any) -> str:
    def shown(one: Any) -> str:
        return f"{one.dtype} {tuple(one.shape)} {one.stride()}" if isinstance(one, torch.Tensor) else repr(one)

    return repr(tree_map(shown, inputs))


def _text_of(problem: Problem) -> str:
    """The function of a suite's program, or a whole problem file."""
    path, _, name = (problem.source or "").partition(":")
    text = Path(path).read_text("utf-8")
    return normal_python(text, name) if name else text


def _suite(row: EvidenceRow) -> str:
    return row.workload.partition("/")[0]


def _file(workload: str, root: Path) -> Path | None:
    suite, _, name = workload.partition("/")
    path = root / SUITE_FOLDER / f"{name.partition(':')[0]}.py"
    return path if suite == OWN_SUITE and path.exists() else None


@cache
def _sources(device: str) -> str:
    others = [folder for other, folder in PRINTERS.items() if other != device]
    return combined(import_closure(*ROOTS, leave_out=("report/", *others)))
