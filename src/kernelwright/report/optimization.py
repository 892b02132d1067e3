"""What a report says of an optimised program, in words: its regions, the ways that were tried, what came of it."""

from __future__ import annotations

import html

from kernelwright.core.optimization import (
    TORCH,
    TORCH_COMPILE,
    Attempt,
    ConfigValues,
    FallbackOperator,
    Optimization,
    RegionOutcome,
)
from kernelwright.core.units import bytes_text, number_text
from kernelwright.report import format

_CPP_FIELDS = {"vector_axis", "inner_vector_axis", "loop_interchange", "parallel", "num_splits", "nontemporal_stores"}
_TRITON_FIELDS = {"BLOCK_M", "BLOCK_N", "num_warps", "num_stages", "num_splits", "evict_last"}

MAX_REGION_LINES, MAX_LINE_LENGTH = 100, 160
MAX_SOURCE_BYTES = 300_000
"""A page stays under 1 MB: of a longer region the first lines stand on it, of a longer file only its size."""


# ---- the ways to compute a region


def config_text(config: ConfigValues) -> str:
    """A generator's choice in words: `C++, vectors along i0, all threads`, `Triton, tiles of 1 x 1024, 2 warps`.

    What is not known here is said as it stands, so that two choices never read the same.
    """
    if "vector_axis" in config:
        said, known = _cpp_config_text(config), _CPP_FIELDS
    elif {"BLOCK_M", "BLOCK_N"} <= config.keys():
        said, known = _triton_config_text(config), _TRITON_FIELDS
    else:
        said, known = [], set()
    rest = [f"{name.replace('_', ' ')} {value}" for name, value in config.items() if name not in known]
    return format.sanitize_line(", ".join([*said, *rest]))


def _cpp_config_text(choice: ConfigValues) -> list[str]:
    lanes = " and ".join(str(axis) for axis in (choice["vector_axis"], choice.get("inner_vector_axis")) if axis)
    said = ["C++", f"vectors along {lanes}", "all threads" if choice.get("parallel", True) else "one thread"]
    flags = {"loop_interchange": "loops interchanged", "nontemporal_stores": "non-temporal stores"}
    return [*said, *_splits_text(choice), *(text for name, text in flags.items() if choice.get(name))]


def _triton_config_text(choice: ConfigValues) -> list[str]:
    said = ["Triton", f"tiles of {choice['BLOCK_M']} x {choice['BLOCK_N']}"]
    if "num_warps" in choice:
        said.append(number_text(int(choice["num_warps"]), "warp"))
    if (stages := int(choice.get("num_stages", 1))) > 1:
        said.append(f"{stages} stages")
    return [*said, *_splits_text(choice), *["no evict_last"] * (not choice.get("evict_last", True))]


def _splits_text(choice: ConfigValues) -> list[str]:
    parts = int(choice.get("num_splits", 1))
    return [f"{parts:,} splits"] if parts > 1 else []


def attempt_text(attempt: Attempt) -> str:
    """The choice in words; torch's own ways have none and keep their name."""
    return config_text(attempt.config) if attempt.config else format.sanitize_line(attempt.name)


def sorted_attempts(region: RegionOutcome) -> list[Attempt]:
    """Everything that was tried, the fastest first, what was not timed last."""
    return sorted(region.attempts, key=lambda attempt: (attempt.time_us is None, attempt.time_us or 0.0))


def attempt_status(attempt: Attempt, region: RegionOutcome) -> str:
    """What became of an attempt: `winner`, `accepted`, `rejected`, `not checked`; nothing for torch's own ways."""
    if attempt.name == region.winner:
        return "winner"
    if attempt.accepted is None:
        return "not checked" if attempt.config else ""
    return "accepted" if attempt.accepted else "rejected"


# ---- regions


def region_name(region: RegionOutcome) -> str:
    """`region_0 x4`: its name, and how often it stands in the program."""
    return format.sanitize_line(region.name) + (f" x{region.num_occurrences:,}" if region.num_occurrences > 1 else "")


def computation_text(region: RegionOutcome) -> str:
    """What it computes, and on how much: `add, relu; 16,777,216 elements`; a region without operators is a copy."""
    summary = format.sanitize_line(region.summary)
    return f"copy{summary}" if summary.startswith(";") else summary


def winner_text(region: RegionOutcome) -> str:
    """The way that won, in words."""
    return next(
        (attempt_text(a) for a in region.attempts if a.name == region.winner), format.sanitize_line(region.winner)
    )


def is_kernel(region: RegionOutcome) -> bool:
    """Whether a generated kernel won; torch's own ways carry no choice."""
    return any(attempt.config for attempt in region.attempts if attempt.name == region.winner)


def winner_reason_text(region: RegionOutcome) -> str:
    """Why this way won, with every choice in words: `2.10x faster than the next, torch`."""
    why = region.winner_reason
    for attempt in sorted(region.attempts, key=lambda attempt: -len(attempt.name)):
        if attempt.config:
            why = why.replace(attempt.name, attempt_text(attempt))
    return format.sanitize_line(why)


def no_kernel_text(region: RegionOutcome) -> str:
    """Why a region has no kernel of ours: `no kernel, no gain to be had: it is at 1.02x its floor`, or
    `torch.compile, 1.04x faster than the next, torch`."""
    why = winner_reason_text(region)
    if region.winner != TORCH:
        return ", ".join(filter(None, (winner_text(region), why)))
    return ", ".join(filter(None, ("no kernel", f"torch is {why}" if why[:1].isdigit() else why)))


def gain_us(region: RegionOutcome) -> float:
    return (region.before_us - region.after_us) * region.num_occurrences


def region_rows(found: Optimization, limit: int) -> tuple[list[RegionOutcome], int]:
    """All regions in the program's order, or the `limit` that gained most in that order and how many are left."""
    if len(found.regions) <= limit:
        return list(found.regions), 0
    most = sorted(range(len(found.regions)), key=lambda at: -gain_us(found.regions[at]))[:limit]
    return [found.regions[at] for at in sorted(most)], len(found.regions) - limit


def more_text(count: int) -> str:
    """The line under a table of regions that is cut."""
    return f"and {count:,} more; these gained the most"


def region_lines(region: RegionOutcome) -> tuple[str, int]:
    """The first lines of a region as it is read, and how many are left."""
    lines = region.text.splitlines()
    return "\n".join(line[:MAX_LINE_LENGTH] for line in lines[:MAX_REGION_LINES]), max(len(lines) - MAX_REGION_LINES, 0)


# ---- what stays with torch


def fallback_operator_text(left: FallbackOperator) -> str:
    """`linear (7 times)`."""
    times = f" ({left.count:,} times)" if left.count > 1 else ""
    return format.sanitize_line(_short_operator_name(left.operator)) + times


def fallback_reason_text(left: FallbackOperator) -> str:
    """Why an operator stays with torch, without saying its name again."""
    reason = left.reason.replace(f"{left.operator} is ", "it is ")
    return format.sanitize_line(reason.replace(left.operator, _short_operator_name(left.operator)))


def _short_operator_name(operator: str) -> str:
    """`aten.linear.default` -> `linear`."""
    return operator.removeprefix("aten.").removesuffix(".default")


# ---- the whole program


def setup_text(found: Optimization) -> str:
    """What it works on and where: `float32, 16.8 M elements, on AMD EPYC (2 threads)`."""
    if found.diagnosis:
        return format.setup_text(found.diagnosis)
    return f"on {format.machine_text(found.machine)}"


def kernels_text(found: Optimization) -> str:
    """How many regions became kernels: `2 of 3 regions became kernels, 1 goes to torch.compile`."""
    if found.whole_program_winner:
        return (
            "as a whole it is faster "
            f"{'as it was' if found.whole_program_winner == TORCH else 'by ' + found.whole_program_winner}"
        )
    count = sum(region.num_occurrences for region in found.regions)
    made = sum(region.num_occurrences for region in found.regions if is_kernel(region))
    compiled = sum(region.num_occurrences for region in found.regions if region.winner == TORCH_COMPILE)
    if not count:
        return "nothing in it can become a kernel"
    if compiled not in (0, count):
        return f"{_made_text(made, count)}, {compiled:,} {'goes' if compiled == 1 else 'go'} to torch.compile"
    return _made_text(made, count, TORCH_COMPILE if compiled else TORCH)


def _made_text(made: int, count: int, rest: str = "") -> str:
    """Kernels of all regions; of none, `rest` says where they are left."""
    if count == 1:
        return "its one region became a kernel" if made else f"its one region is left to {rest}"
    if made == count:
        return f"all {count:,} regions became kernels"
    if not made and rest:
        return f"all {count:,} regions are left to {rest}"
    made_text, what = (f"{made:,}", "kernels") if made > 1 else (("none", "1")[made], "a kernel")
    return f"{made_text} of {number_text(count, 'region')} became {what}"


def _possible_text(count: int) -> str:
    if count > 1:
        return f"{count:,} regions could become kernels"
    return "one region could become a kernel" if count else "nothing in it can become a kernel"


def optimization_summary(found: Optimization) -> str:
    """The head line without its first word: what it waited on, how much of it became kernels, what that is worth."""
    if found.verdict is None:
        return f"{_possible_text(len(found.regions))}; nothing was generated"
    if not found.verdict.accepted:
        return f"{format.verdict_summary(found.verdict)}; {kernels_text(found)}"
    worth = format.comparisons_text(found.bench) if found.bench else format.verdict_summary(found.verdict)
    before = f"it was {found.diagnosis.regime}" if found.diagnosis else ""
    return "; ".join(filter(None, (before, kernels_text(found), worth)))


def headline(found: Optimization) -> tuple[str, str]:
    """The first word of the head line and its accent: the bench's, else the verdict's."""
    if found.verdict is None:
        return "plan", "undetermined"
    if not found.verdict.accepted:
        return "rejected", "bad"
    return format.bench_status(found.bench) if found.bench else ("accepted", "good")


def fits_on_page(source: str) -> bool:
    """Whether a file is short enough to stand on a page."""
    return len(html.escape(source).encode()) <= MAX_SOURCE_BYTES


def source_text(found: Optimization) -> str:
    """`342 lines of Python, 14.1 KB`."""
    size = bytes_text(len(found.source.encode()))
    return f"{number_text(len(found.source.splitlines()), 'line')} of Python, {size}"
