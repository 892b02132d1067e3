"""Texts on the modules of an optimised program: times, what was gained, what stays with torch and why."""

from __future__ import annotations

from collections.abc import Sequence

from kernelwright.core.optimization import ModuleOutcome, Optimization, RegionOutcome
from kernelwright.core.units import number_text, percent_text, time_text
from kernelwright.report import format
from kernelwright.report.optimization import fallback_operator_text, fallback_reason_text, names_text, no_kernel_text

NOT_TIMED = "not timed"
MAX_REASONS = 3


def module_name(module: ModuleOutcome, result: Optimization) -> str:
    """`layers.0-11.mlp x12`; the program's own operators are those of `NAME itself`."""
    name = format.sanitize_line(module.name or f"{result.problem} itself")
    return name + (f" x{module.num_modules:,}" if module.num_modules > 1 else "")


def module_times(module: ModuleOutcome) -> list[str]:
    """Time before, after and share; `not timed`, and a dash where the time after is known only for the whole."""
    if module.before_us is None:
        return [NOT_TIMED, "-", "-"]
    after = time_text(module.after_us) if module.after_us is not None else "-"
    return [time_text(module.before_us), after, percent_text(module.share) if module.share is not None else "-"]


def module_text(module: ModuleOutcome, result: Optimization) -> str:
    """What was gained and what stays with torch: `kernels in 12 of 12 regions (region_1); torch: linear (a matrix
    product)`."""
    regions = [region for region in result.regions if region.name in module.regions]
    parts = [_kernels_text(module, regions), *_torch_regions(module, regions), _fallbacks_text(module)]
    return "; ".join(filter(None, parts))


def _kernels_text(module: ModuleOutcome, regions: Sequence[RegionOutcome]) -> str:
    kernels = [region for region in regions if region.has_kernel]
    names = _names_text(kernels)
    if not kernels:
        return ""
    if not module.num_regions:
        return f"in {names} with other modules"
    if kernels[0].not_used:
        return f"kernels not used: {names}"
    if not module.num_kernels:
        return f"partly in {names}"
    return f"kernels in {module.num_kernels:,} of {number_text(module.num_regions, 'region')} ({names})"


def _torch_regions(module: ModuleOutcome, regions: Sequence[RegionOutcome]) -> list[str]:
    """The regions without a kernel, those with one reason together."""
    reasons: dict[str, list[RegionOutcome]] = {}
    for region in regions:
        if not region.has_kernel:
            reasons.setdefault(no_kernel_text(region), []).append(region)
    texts = [f"{_names_text(found)}: {reason}" for reason, found in reasons.items()]
    return _limited(texts, "reasons") if module.num_regions else []


def _fallbacks_text(module: ModuleOutcome) -> str:
    texts = [f"{fallback_operator_text(one)}: {fallback_reason_text(one)}" for one in module.fallbacks]
    return f"torch: {', '.join(_limited(texts, 'operators'))}" if texts else ""


def _limited(texts: list[str], noun: str) -> list[str]:
    hidden = len(texts) - MAX_REASONS
    return [*texts[:MAX_REASONS], f"{hidden:,} more {noun}"] if hidden > 1 else texts


def _names_text(regions: Sequence[RegionOutcome]) -> str:
    """`region_0, region_1 and 4 more`."""
    return names_text([format.sanitize_line(region.name) for region in regions])


def module_rows(result: Optimization, limit: int) -> tuple[list[ModuleOutcome], str]:
    """Return the modules with the longest times, at most `limit`, and one line on the smaller ones."""
    rows = list(result.modules)
    if len(rows) <= limit:
        return rows, ""
    hidden = rows[limit:]
    known = [row for row in hidden if row.before_us is not None]
    before = f", {time_text(sum(row.before_us or 0.0 for row in known))} before" if known else ""
    shares = [row.share for row in known if row.share is not None]
    share = f", {percent_text(sum(shares))} of the time" if shares else ""
    modules = sum(row.num_modules for row in hidden)
    return rows[:limit], f"{number_text(modules, 'smaller module')}{before}{share}"


def caption(result: Optimization) -> str:
    """How the times of the table were found."""
    if not any(module.before_us is not None for module in result.modules):
        return "times of modules are not known"
    before = "before: operators timed one by one in the original program" if result.diagnosis else "before: of regions"
    if result.whole_program_winner:
        return before
    return f"{before}; after: operators left to torch as before, kernels as timed alone"
