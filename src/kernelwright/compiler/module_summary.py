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
from kernelwright.core.diagnosis import Diagnosis, OperatorSummary
from kernelwright.core.optimization import TORCH, FallbackOperator, ModuleOutcome, RegionOutcome

DYNAMO_ROOT = re.compile(r"^L\['\w+'\]\.?(__self__\.?)?")
"""What the paths of modules begin with in a graph of Dynamo's: the variable of the program, or of its forward."""
CONTAINERS = ("torch.nn.modules.container.", "torch.fx.graph_module.")
"""Modules that only hold others: a layer in one of them is listed by itself."""
TORCH_KINDS = ("matrix", "convolution", "attention", "gather")
"""Kinds of operators that stay with torch where a module has others in regions."""


class RegionShare(NamedTuple):
    """One occurrence of a region, by the part of it that belongs to a module.

    Attributes:
        fraction: of the elements that the operators of the region compute.
        is_main: no other module has more of it.
    """

    outcome: RegionOutcome
    fraction: float
    is_main: bool

    @property
    def weight(self) -> float:
        """The bytes that the region moves for the module."""
        return self.fraction * self.outcome.bytes_moved


class _Layout(NamedTuple):
    """Modules of the operators of a graph.

    Attributes:
        paths: by operator the module under which it is listed.
        own_paths: by operator its own module; not of operators that a rewrite made.
        listed: by own module the one under which its operators are listed.
    """

    paths: dict[fx.Node, str]
    own_paths: dict[fx.Node, str]
    listed: dict[str, str]


@dataclass
class _Module:
    """The operators of one module. Equal modules of a stack have the same template and signature.

    Attributes:
        kept_us, computed_us: time before of the operators that stay with torch, and of those in regions.
    """

    path: str
    signature: list[tuple[str, tuple[int, ...]]] = field(default_factory=list)
    refused: list[tuple[str, str]] = field(default_factory=list)
    parts: list[RegionShare] = field(default_factory=list)
    kept_us: float | None = None
    computed_us: float | None = None
    limiter: str = ""

    @property
    def before_us(self) -> float | None:
        return None if self.kept_us is None or self.computed_us is None else self.kept_us + self.computed_us

    @property
    def after_us(self) -> float | None:
        """Time with the kernels that won: regions that torch won, and what is in none, take as long as before."""
        if self.kept_us is None or self.computed_us is None:
            return None
        torch_won = sum(part.weight for part in self.parts if part.outcome.winner == TORCH)
        torch_share = torch_won / (sum(part.weight for part in self.parts) or 1.0)
        kernels_us = sum(part.fraction * part.outcome.after_us for part in self.parts if part.outcome.winner != TORCH)
        return self.kept_us + torch_share * self.computed_us + kernels_us

    @property
    def key(self) -> tuple[str, tuple[tuple[str, tuple[int, ...]], ...]]:
        return re.sub(r"(?<![^.])\d+(?![^.])", "*", self.path), tuple(self.signature)


def summarize_modules(
    plans: Sequence[RegionPlan], outcomes: Sequence[RegionOutcome], diagnosis: Diagnosis | None, *, runs_kernels: bool
) -> tuple[ModuleOutcome, ...]:
    """Group regions and operators that stay with torch by module, equal modules of a repeated stack together.

    Args:
        plans: that of the whole program, or those of its graphs.
        outcomes: of the regions, without the repeated ones; those of a backward pass are ignored.
        diagnosis: of the original program, for the modules' times; without it they come from the regions alone.
        runs_kernels: the written file runs the kernels that won.
    Returns:
        The modules, those with the longest time before first.
    """
    layout = _lay_out(node for plan in plans for node in plan.captured.graph.nodes)
    modules = _collect(plans, outcomes, layout.paths)
    _add_times(modules, plans, layout, diagnosis)
    groups: dict[object, list[_Module]] = defaultdict(list)
    for module in modules.values():
        if module.parts or module.refused:
            groups[module.key].append(module)
    total_us = diagnosis.time_us if diagnosis else None
    rows = [_outcome(group, total_us, runs_kernels=runs_kernels) for group in groups.values()]
    return tuple(sorted(rows, key=lambda row: -(row.before_us or 0.0)))


# ---- modules of nodes


def _lay_out(nodes: Iterable[fx.Node]) -> _Layout:
    layout = _Layout({}, {}, {})
    for node in nodes:
        if node.op != "call_function":
            continue
        if stack := _module_stack(node):
            layout.own_paths[node] = path = stack[-1][0]
            layout.paths[node] = layout.listed[path] = _listed_path(stack)
        else:  # a rewrite made it: the module of what it reads
            sources = (layout.paths[source] for source in node.all_input_nodes if source in layout.paths)
            layout.paths[node] = next(sources, "")
    return layout


def _module_stack(node: fx.Node) -> list[tuple[str, object]]:
    """Path and class of each module that runs a call, the program first; Dynamo leaves it out, and names its variable
    in the paths."""
    entries = (node.meta.get("nn_module_stack") or {}).values()
    stack: list[tuple[str, object]] = [(DYNAMO_ROOT.sub("", path), cls) for path, cls in entries]
    return [("", ""), *stack] if stack and stack[0][0] else stack


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
    plans: Sequence[RegionPlan], outcomes: Sequence[RegionOutcome], paths: Mapping[fx.Node, str]
) -> dict[str, _Module]:
    """Modules by path, with their operators and regions, without times."""
    modules: dict[str, _Module] = {}
    refused = {node: reason for plan in plans for node, reason in plan.refused.items()}
    for node, path in paths.items():
        module = modules.setdefault(path, _Module(path))
        module.signature.append((str(node.target), _shape(node)))
        if node in refused:
            module.refused.append((str(node.target), refused[node]))
    by_name = {outcome.name: outcome for outcome in outcomes}
    same_as = {name: original for plan in plans for name, original in plan.same_as.items()}
    for region, nodes in (part for plan in plans for part in plan.regions):
        outcome = by_name.get(same_as.get(region.name, region.name))
        if outcome is None:
            continue
        weights: Counter[str] = Counter()
        for node in nodes:
            weights[paths.get(node, "")] += _num_elements(node)
        main = max(weights, key=lambda path: weights[path], default="")
        for path, weight in weights.items():
            share = RegionShare(outcome, weight / weights.total(), path == main)
            modules.setdefault(path, _Module(path)).parts.append(share)
    return modules


def _shape(node: fx.Node) -> tuple[int, ...]:
    value = node.meta.get("val")
    return tuple(map(int, value.shape)) if isinstance(value, torch.Tensor) else ()


def _num_elements(node: fx.Node) -> int:
    value = node.meta.get("val")
    return max(value.numel(), 1) if isinstance(value, torch.Tensor) else 1


# ---- times


def _add_times(
    modules: Mapping[str, _Module], plans: Sequence[RegionPlan], layout: _Layout, diagnosis: Diagnosis | None
) -> None:
    """Set the times of each module, from the diagnosis if it knows modules, else from the regions."""
    if diagnosis and diagnosis.modules:
        _add_diagnosed_times(modules, plans, layout, diagnosis.operators)
        return
    for module in modules.values():
        parts = module.parts
        if parts and not module.refused and all(part.outcome.before_us for part in parts):
            module.kept_us = 0.0
            module.computed_us = sum(part.fraction * part.outcome.before_us for part in parts)
            module.limiter = max(parts, key=lambda part: part.fraction * part.outcome.before_us).outcome.limiter


def _add_diagnosed_times(
    modules: Mapping[str, _Module], plans: Sequence[RegionPlan], layout: _Layout, operators: Iterable[OperatorSummary]
) -> None:
    """Divide the time of each module into that of operators which stay with torch, and that of the regions.

    The diagnosis names the operators that ran, which is not how the graph names them. So an operator stays with torch
    if its module has no operator in a region, or if it is of a kind that no region computes.
    """
    in_regions = {node for plan in plans for part in plan.regions for node in part.nodes}
    with_regions = {layout.own_paths[node] for node in in_regions & layout.own_paths.keys()}
    with_refused = {layout.own_paths[node] for plan in plans for node in plan.refused if node in layout.own_paths}
    limiters: dict[str, Counter[str]] = defaultdict(Counter)
    for row in operators:
        own = row.module if row.module in layout.listed else ""
        listed = _find_listed(row.module, layout.listed)
        if (module := modules.get(listed)) is None:
            continue
        is_kept = own not in with_regions or (own in with_refused and row.kind in TORCH_KINDS)
        module.kept_us = (module.kept_us or 0.0) + is_kept * row.time_us
        module.computed_us = (module.computed_us or 0.0) + (not is_kept) * row.time_us
        limiters[listed][row.regime.removesuffix("-bound")] += round(row.time_us * 1e3)
    for path, limiter in limiters.items():
        modules[path].limiter = limiter.most_common(1)[0][0].replace("undetermined", "")


def _find_listed(path: str, listed: Mapping[str, str]) -> str:
    """The module under which one of the diagnosis is listed; the program's own calls have the name of its class."""
    while path:
        if path in listed:
            return listed[path]
        path = path.rpartition(".")[0]
    return ""


def _outcome(group: Sequence[_Module], total_us: float | None, *, runs_kernels: bool) -> ModuleOutcome:
    """The row of equal modules."""
    parts = [part for module in group for part in module.parts]
    main = [part.outcome for part in parts if part.is_main]
    before_us = _sum_known(module.before_us for module in group)
    refused = Counter(one for module in group for one in module.refused)
    return ModuleOutcome(
        name=stack_name([module.path for module in group]),
        num_modules=len(group),
        before_us=before_us,
        after_us=_sum_known(module.after_us for module in group) if runs_kernels else None,
        share=before_us / total_us if before_us is not None and total_us else None,
        limiter=group[0].limiter,
        regions=tuple(dict.fromkeys(part.outcome.name for part in parts)),
        num_regions=len(main),
        num_kernels=sum(runs_kernels and outcome.has_kernel for outcome in main),
        fallbacks=tuple(FallbackOperator(operator=op, reason=reason, count=n) for (op, reason), n in refused.items()),
    )


def _sum_known(values: Iterable[float | None]) -> float | None:
    """The sum; None if one is not known."""
    found = list(values)
    known = [value for value in found if value is not None]
    return sum(known) if len(known) == len(found) else None


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
