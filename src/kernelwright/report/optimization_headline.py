"""The first line on an optimised program: what the written file runs, and what that is worth."""

from __future__ import annotations

from pathlib import PurePath

from kernelwright.core.bench import Comparison
from kernelwright.core.optimization import OWN_KERNELS, TORCH, TORCH_COMPILE, BudgetUse, Optimization
from kernelwright.core.units import number_text, time_text
from kernelwright.report import format
from kernelwright.report.optimization import NO_REGIONS

MAX_STAGES = 5


def headline_text(result: Optimization) -> str:
    """State what the file runs and its speedups with their intervals.

    `x_optimized.py runs torch.compile for the whole program: 8.21 ms, 1.31x eager [1.29, 1.33]; no kernel of ours is
    used`.
    """
    if result.verdict is None:
        return plan_text(result)
    if not result.verdict.accepted:
        return f"{file_text(result)} is rejected: {format.verdict_summary(result.verdict)}"
    if result.is_unchanged:
        return f"{file_text(result)} is the original program: {_why_unchanged(result)}"
    text = f"{file_text(result)} runs {engine_text(result)}: {worth_text(result)}"
    return text if result.num_kernels else f"{text}; no kernel of ours is used"


def headline_status(result: Optimization) -> tuple[str, str]:
    """Return the status of a page and its accent: of the bench, else of the verdict."""
    if result.verdict is None:
        return "plan", "undetermined"
    if not result.verdict.accepted:
        return "rejected", "bad"
    return format.bench_status(result.bench) if result.bench else ("accepted", "good")


def plan_text(result: Optimization) -> str:
    """Count the regions of a plan: `4 regions to generate kernels for; nothing was generated`."""
    regions = f"{number_text(len(result.regions), 'region')} to generate kernels for" if result.regions else NO_REGIONS
    return f"{regions}; nothing was generated"


def file_text(result: Optimization) -> str:
    """The name of the written file; that of the problem for a module in memory."""
    return format.sanitize_line(PurePath(result.output_file).name or result.problem)


def engine_text(result: Optimization) -> str:
    """What computes: `3 kernels (Triton) in 14 of 22 regions, torch for the rest, in a CUDA graph`."""
    if result.engine == OWN_KERNELS:
        engine = _kernels_text(result)
    else:
        engine = "torch.compile for the whole program" if result.engine == TORCH_COMPILE else "the original program"
    return ", ".join((engine, *map(format.sanitize_line, result.options)))


def worth_text(result: Optimization) -> str:
    """The file's time and its speedups: `8.21 ms, 1.31x eager [1.29, 1.33], 1.18x torch.compile [1.16, 1.20]`."""
    bench = result.bench
    if bench is None or not bench.variants:
        return "not timed"
    if not bench.comparisons:
        return f"{time_text(bench.variants[0].time_us)}, compared with nothing"
    subject = bench.comparisons[0].variant
    time = next((time_text(one.time_us) for one in bench.variants if one.name == subject), "")
    speedups = (_speedup_text(one) for one in bench.comparisons if one.variant == subject and _differs(result, one))
    return ", ".join(filter(None, (time, *speedups)))


def budget_text(budget: BudgetUse) -> str:
    """What the time went into: `64 s of a budget of 40 s: tuning the regions 21 s, ...`."""
    stages = [f"{format.sanitize_line(one.name)} {one.time_s:.0f} s" for one in budget.stages[:MAX_STAGES]]
    rest_s = sum(one.time_s for one in budget.stages[MAX_STAGES:])
    stages += [f"other {rest_s:.0f} s"] if rest_s >= 1 else []
    total = f"{budget.spent_s:.0f} s of a budget of {budget.total_s:.0f} s"
    return f"{total}: {', '.join(stages)}" if stages else total


def _why_unchanged(result: Optimization) -> str:
    """Nothing was faster, or nothing of what was tried within the budget."""
    if result.budget and result.budget.left_out:
        left_out = ", ".join(map(format.sanitize_line, result.budget.left_out))
        return f"nothing that was tried in {result.budget.total_s:.0f} s was faster (not tried: {left_out})"
    return "nothing was faster"


def _kernels_text(result: Optimization) -> str:
    """`3 kernels (Triton) in 14 of 22 regions, torch for the rest`; repeated regions count each time."""
    total = sum(region.num_occurrences for region in result.regions)
    with_kernel = sum(region.num_occurrences for region in result.regions if region.has_kernel)
    compiled = sum(region.num_occurrences for region in result.regions if region.winner == TORCH_COMPILE)
    parts = []
    if result.num_kernels:
        language = _language(result)
        kernels = number_text(result.num_kernels, "kernel") + (f" ({language})" if language else "")
        parts.append(f"{kernels} in {_of(with_kernel, total)}")
    if compiled:
        parts.append(f"torch.compile in {_of(compiled, total) if not parts else f'{compiled:,}'}")
    if with_kernel + compiled < total or result.fallbacks:
        parts.append("torch for the rest")
    return ", ".join(parts) or "kernels"


def _of(count: int, total: int) -> str:
    return "the only region" if total == 1 else f"{count:,} of {number_text(total, 'region')}"


def _language(result: Optimization) -> str:
    """`C++`, or `Triton` and `library`, from the configs of the kernels."""
    configs = [
        attempt.config for region in result.regions for attempt in region.attempts if attempt.name == region.winner
    ]
    fields = {"Triton": "BLOCK_M", "C++": "vector_axis", "library": "library"}
    return " and ".join(name for name, field in fields.items() if any(field in config for config in configs))


def _differs(result: Optimization, comparison: Comparison) -> bool:
    """Whether the baseline is not what the file itself runs."""
    return {TORCH: "eager"}.get(result.variant, result.variant) != comparison.baseline


def _speedup_text(comparison: Comparison) -> str:
    baseline = format.sanitize_line(comparison.baseline)
    return f"{format.factor_text(comparison.speedup)} {baseline} {format.interval_text(comparison)}"
