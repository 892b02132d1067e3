"""What became of each module of a program: its regions, what stays with torch and why, and its time."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import fx

from kernelwright.compiler.planning import RegionPlan
from kernelwright.core.diagnosis import Diagnosis, ModuleSummary
from kernelwright.core.optimization import FallbackOperator, ModuleOutcome, RegionOutcome

CONTAINERS = ("torch.nn.modules.container.", "torch.fx.graph_module.")
"""Modules that only hold others: a layer in one of them is listed by itself."""


class RegionShare(NamedTuple):
    """One occurrence of a region, by the part of it that lies in a module.

    Attributes:
        fraction: of the elements that the operators of the region compute.
        is_main: no other module has more of it.
    """

    outcome: RegionOutcome
    fraction: float
    is_main: bool

    @property
    def gain_us(self) -> float:
        """The time that the kernel of the region saves, of which this is the part."""
        return self.fraction * (self.outcome.before_us - self.outcome.after_us)


@dataclass
class _Module:
    """The operators of one module. Equal modules of a stack have the same template and signature."""

    path: str
    signature: list[tuple[str, tuple[int, ...]]] = field(default_factory=list)
    refused: list[tuple[str, str]] = field(default_factory=list)
    regions: list[RegionShare] = field(default_factory=list)
    before_us: float | None = None
    limiter: str = ""

    @property
    def key(self) -> tuple[str, tuple[tuple[str, tuple[int, ...]], ...]]:
        return re.sub(r"(?<![^.])\d+(?![^.])", "*", self.path), tuple(self.signature)


def summarize_modules(
    plan: RegionPlan, outcomes: Sequence[RegionOutcome], diagnosis: Diagnosis | None, *, runs_kernels: bool
) -> tuple[ModuleOutcome, ...]:
    """Group regions and operators that stay with torch by module, equal modules of a repeated stack together.

    Args:
        outcomes: of the regions, without the repeated ones; those of a backward pass are ignored.
        diagnosis: of the original program, for the modules' times; without it they come from the regions alone.
        runs_kernels: the written file runs the kernels that won.
    Returns:
        The modules, those with the longest time before first.
    """
    paths, folded = _module_paths(plan.captured.graph)
    modules = _collect(plan, outcomes, paths)
    _add_times(modules, diagnosis, folded)
    groups: dict[object, list[_Module]] = defaultdict(list)
    for module in modules.values():
        if module.regions or module.refused:
            groups[module.key].append(module)
    total_us = diagnosis.time_us if diagnosis else None
    rows = [_outcome(group, total_us, runs_kernels=runs_kernels) for group in groups.values()]
    return tuple(sorted(rows, key=lambda row: -(row.before_us or 0.0)))


# ---- modules of nodes


def _module_paths(graph: fx.Graph) -> tuple[dict[fx.Node, str], dict[str, str]]:
    """Return the path of each operator's module, and by the path of a module the one that it is listed under."""
    paths: dict[fx.Node, str] = {}
    folded: dict[str, str] = {}
    for node in graph.nodes:
        if node.op != "call_function":
            continue
        stack = list((node.meta.get("nn_module_stack") or {}).values())
        if stack:
            paths[node] = folded[stack[-1][0]] = _listed_path(stack)
        else:  # a rewrite made it: the module of what it reads
            paths[node] = next((paths[source] for source in node.all_input_nodes if source in paths), "")
    return paths, folded


def _listed_path(stack: Sequence[tuple[str, object]]) -> str:
    """The module under which a call is listed: layers of torch.nn are parts of the module that calls them.

    Args:
        stack: path and class of each running module, the outermost first.
    """
    path, cls = stack[-1][0], _class_name(stack[-1][1])
    if len(stack) < 3 or not cls.startswith("torch.nn.") or cls.startswith(CONTAINERS):
        return path
    caller, caller_class = stack[-2]
    return path if _class_name(caller_class).startswith(CONTAINERS) else caller


def _class_name(cls: object) -> str:
    return f"{cls.__module__}.{cls.__qualname__}" if isinstance(cls, type) else str(cls)


def _collect(
    plan: RegionPlan, outcomes: Sequence[RegionOutcome], paths: Mapping[fx.Node, str]
) -> dict[str, _Module]:
    """Modules by path, with their operators and regions, without times."""
    modules: dict[str, _Module] = {}
    for node, path in paths.items():
        module = modules.setdefault(path, _Module(path))
        module.signature.append((str(node.target), _shape(node)))
        if node in plan.refused:
            module.refused.append((str(node.target), plan.refused[node]))
    by_name = {outcome.name: outcome for outcome in outcomes}
    for region, nodes in plan.regions:
        outcome = by_name.get(plan.same_as.get(region.name, region.name))
        weights: Counter[str] = Counter()
        for node in nodes:
            weights[paths.get(node, "")] += _num_elements(node)
        main = max(weights, key=lambda path: weights[path], default="")
        for path, weight in weights.items() if outcome else ():
            share = RegionShare(outcome, weight / weights.total(), path == main)
            modules.setdefault(path, _Module(path)).regions.append(share)
    return modules


def _shape(node: fx.Node) -> tuple[int, ...]:
    value = node.meta.get("val")
    return tuple(map(int, value.shape)) if isinstance(value, torch.Tensor) else ()


def _num_elements(node: fx.Node) -> int:
    value = node.meta.get("val")
    return max(value.numel(), 1) if isinstance(value, torch.Tensor) else 1


# ---- times


def _add_times(modules: Mapping[str, _Module], diagnosis: Diagnosis | None, folded: Mapping[str, str]) -> None:
    """Set time and limiter of each module, from the diagnosis if it knows modules, else from the regions."""
    if diagnosis and diagnosis.modules:
        rows: dict[str, list[ModuleSummary]] = defaultdict(list)
        for row in diagnosis.modules:
            rows[_find_listed(row.module, folded)].append(row)
        for path, found in rows.items():
            if path in modules:
                modules[path].before_us = sum(row.time_us for row in found)
                longest = max(found, key=lambda row: row.time_us).regime
                modules[path].limiter = "" if longest == "undetermined" else longest.removesuffix("-bound")
        return
    for module in modules.values():
        parts = module.regions
        if parts and not module.refused and all(part.outcome.before_us for part in parts):
            module.before_us = sum(part.fraction * part.outcome.before_us for part in parts)
            module.limiter = max(parts, key=lambda part: part.fraction * part.outcome.before_us).outcome.limiter


def _find_listed(path: str, folded: Mapping[str, str]) -> str:
    """The module under which one of the diagnosis is listed; the program's own calls have the name of its class."""
    while path:
        if path in folded:
            return folded[path]
        path = path.rpartition(".")[0]
    return ""


def _outcome(group: Sequence[_Module], total_us: float | None, *, runs_kernels: bool) -> ModuleOutcome:
    """The row of equal modules."""
    known = [module.before_us for module in group if module.before_us is not None]
    before_us = sum(known) if len(known) == len(group) else None
    parts = [part for module in group for part in module.regions]
    main = [part.outcome for part in parts if part.is_main]
    after_us = None
    if before_us is not None and runs_kernels:
        after_us = max(before_us - sum(part.gain_us for part in parts), 0.0)
    refused = Counter(one for module in group for one in module.refused)
    return ModuleOutcome(
        name=stack_name([module.path for module in group]),
        num_modules=len(group),
        before_us=before_us,
        after_us=after_us,
        share=before_us / total_us if before_us is not None and total_us else None,
        limiter=group[0].limiter,
        regions=tuple(dict.fromkeys(part.outcome.name for part in parts)),
        num_regions=len(main),
        num_kernels=sum(runs_kernels and outcome.has_kernel for outcome in main),
        fallbacks=tuple(FallbackOperator(operator=op, reason=reason, count=n) for (op, reason), n in refused.items()),
    )


def stack_name(paths: Sequence[str]) -> str:
    """One name for modules whose paths differ in numbers: `layers.0-5.mlp`, `blocks.0,2-3`."""
    columns = zip(*(path.split(".") for path in paths), strict=True)
    return ".".join(_range_text(column) for column in columns)


def _range_text(column: Iterable[str]) -> str:
    names = list(dict.fromkeys(column))
    if len(names) == 1:
        return names[0]
    numbers = sorted(map(int, names))
    starts = [n for n in numbers if n - 1 not in numbers]
    ends = [n for n in numbers if n + 1 not in numbers]
    return ",".join(f"{a}" if a == b else f"{a}-{b}" for a, b in zip(starts, ends, strict=True))
