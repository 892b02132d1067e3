"""Texts on an optimised program: its regions, the attempts for each, and the result."""

from __future__ import annotations

import html

from kernelwright.core.optimization import (
    TORCH,
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
_LIBRARY_FIELDS = {"library", "precision", "num_splits"}
_LIBRARY_PRECISIONS = {"default": "", "fp32_emulated": "FP32 emulated on tensor cores", "tf32": "operands in TF32"}

NO_REGIONS = "no regions to generate kernels for"
STAYS = " stays with torch: "
MAX_NAMES = 3
MAX_REGION_LINES, MAX_LINE_LENGTH = 100, 160
MAX_SOURCE_BYTES = 300_000
"""Limits that keep a page below 1 MB: a longer region is truncated, of a longer file only the size is shown."""


# ---- attempts


def config_text(config: ConfigValues) -> str:
    """Describe a config: `C++, vectors along i0, all threads`, `Triton, tiles of 1 x 1024, 2 warps`,
    `kernelwright.kernels.gemm, FP32 emulated on tensor cores`.

    Unknown fields are listed by name, so that two configs never have the same text.
    """
    if "vector_axis" in config:
        parts, known = _cpp_config_text(config), _CPP_FIELDS
    elif {"BLOCK_M", "BLOCK_N"} <= config.keys():
        parts, known = _triton_config_text(config), _TRITON_FIELDS
    elif "library" in config:
        parts, known = _library_config_text(config), _LIBRARY_FIELDS
    else:
        parts, known = [], set()
    unknown = [f"{name.replace('_', ' ')} {value}" for name, value in config.items() if name not in known]
    return format.sanitize_line(", ".join([*parts, *unknown]))


def _cpp_config_text(config: ConfigValues) -> list[str]:
    axes = " and ".join(str(axis) for axis in (config["vector_axis"], config.get("inner_vector_axis")) if axis)
    parts = ["C++", f"vectors along {axes}", "all threads" if config.get("parallel", True) else "one thread"]
    flags = {"loop_interchange": "loops interchanged", "nontemporal_stores": "non-temporal stores"}
    return [*parts, *_splits_text(config), *(text for name, text in flags.items() if config.get(name))]


def _triton_config_text(config: ConfigValues) -> list[str]:
    parts = ["Triton", f"tiles of {config['BLOCK_M']} x {config['BLOCK_N']}"]
    if "num_warps" in config:
        parts.append(number_text(int(config["num_warps"]), "warp"))
    if (stages := int(config.get("num_stages", 1))) > 1:
        parts.append(f"{stages} stages")
    return [*parts, *_splits_text(config), *["no evict_last"] * (not config.get("evict_last", True))]


def _library_config_text(config: ConfigValues) -> list[str]:
    precision = _LIBRARY_PRECISIONS.get(str(config.get("precision")), f"precision {config.get('precision')}")
    return [*filter(None, (str(config["library"]), precision)), *_splits_text(config)]


def _splits_text(config: ConfigValues) -> list[str]:
    num_splits = int(config.get("num_splits", 1))
    return [f"{num_splits:,} splits"] if num_splits > 1 else []


def attempt_text(attempt: Attempt) -> str:
    """Describe an attempt by its config, or by its name for a torch variant."""
    return config_text(attempt.config) if attempt.config else format.sanitize_line(attempt.name)


def sorted_attempts(region: RegionOutcome) -> list[Attempt]:
    """Return the attempts sorted by time, those without a time last."""
    return sorted(region.attempts, key=lambda attempt: (attempt.time_us is None, attempt.time_us or 0.0))


def attempt_status(attempt: Attempt, region: RegionOutcome) -> str:
    """Return `winner`, `accepted`, `rejected` or `not verified`; empty for other torch variants."""
    if attempt.name == region.winner:
        return "winner"
    if attempt.accepted is None:
        return "not verified" if attempt.config else ""
    return "accepted" if attempt.accepted else "rejected"


# ---- regions


def region_name(region: RegionOutcome) -> str:
    """`region_0 x4`: the name, and the number of occurrences in the program."""
    return format.sanitize_line(region.name) + (f" x{region.num_occurrences:,}" if region.num_occurrences > 1 else "")


def computation_text(region: RegionOutcome) -> str:
    """Operators and size: `add, relu; 16,777,216 elements`; a region without operators is a copy."""
    summary = format.sanitize_line(region.summary)
    return f"copy{summary}" if summary.startswith(";") else summary


def winner_text(region: RegionOutcome) -> str:
    """Describe the winner of a region."""
    return next(
        (attempt_text(a) for a in region.attempts if a.name == region.winner), format.sanitize_line(region.winner)
    )


def outcome_text(region: RegionOutcome) -> str:
    """Describe what became of a region: its winner, why a kernel that won is not used, or why there is none."""
    if not region.has_kernel:
        return no_kernel_text(region)
    winner = winner_text(region)
    return f"{winner}; not used: {format.sanitize_line(region.not_used)}" if region.not_used else winner


def winner_reason_text(region: RegionOutcome) -> str:
    """State why the winner won, with every config as text: `2.10x faster than the next, torch`."""
    reason = region.winner_reason
    for attempt in sorted(region.attempts, key=lambda attempt: -len(attempt.name)):
        if attempt.config:
            reason = reason.replace(attempt.name, attempt_text(attempt))
    return format.sanitize_line(reason)


def no_kernel_text(region: RegionOutcome) -> str:
    """State why a region has no generated kernel: `torch.compile, 1.04x faster than the next, torch`."""
    reason = winner_reason_text(region)
    if region.winner != TORCH:
        return ", ".join(filter(None, (winner_text(region), reason)))
    return ", ".join(filter(None, ("no kernel", f"torch is {reason}" if reason[:1].isdigit() else reason)))


def gain_us(region: RegionOutcome) -> float:
    """Return the time saved over all occurrences of a region."""
    return (region.before_us - region.after_us) * region.num_occurrences


def region_rows(result: Optimization, limit: int) -> tuple[list[RegionOutcome], int]:
    """Return the regions in program order, at most the `limit` with the largest gains, and the number left out."""
    regions = result.regions
    if len(regions) <= limit:
        return list(regions), 0
    largest = sorted(range(len(regions)), key=lambda i: -gain_us(regions[i]))[:limit]
    return [regions[i] for i in sorted(largest)], len(regions) - limit


def more_text(count: int) -> str:
    """The line below a truncated table of regions."""
    return f"and {count:,} more with smaller gains"


def region_lines(region: RegionOutcome) -> tuple[str, int]:
    """Return the first lines of a region's text, and the number of lines left out."""
    lines = region.text.splitlines()
    return "\n".join(line[:MAX_LINE_LENGTH] for line in lines[:MAX_REGION_LINES]), max(len(lines) - MAX_REGION_LINES, 0)


# ---- fallback operators


def fallback_operator_text(fallback: FallbackOperator) -> str:
    """`linear (7 times)`."""
    times = f" ({fallback.count:,} times)" if fallback.count > 1 else ""
    return format.sanitize_line(_short_operator_name(fallback.operator)) + times


def fallback_reason_text(fallback: FallbackOperator) -> str:
    """State why torch runs an operator, without repeating its name."""
    reason = fallback.reason.replace(f"{fallback.operator} is ", "")
    return format.sanitize_line(reason.replace(fallback.operator, _short_operator_name(fallback.operator)))


def _short_operator_name(operator: str) -> str:
    """`aten.linear.default` -> `linear`."""
    return operator.removeprefix("aten.").removesuffix(".default")


# ---- the whole program


def setup_text(result: Optimization) -> str:
    """Inputs and machine: `float32, 16.8 M elements, on AMD EPYC (2 threads)`."""
    if result.diagnosis:
        return format.setup_text(result.diagnosis)
    return f"on {format.machine_text(result.machine)}"


def regions_text(result: Optimization) -> str:
    """Count the regions where a kernel won: `a kernel is the fastest in 14 of 22 regions`, and why none is used."""
    total = sum(region.num_occurrences for region in result.regions)
    if not total:
        return NO_REGIONS
    won = [region for region in result.regions if region.has_kernel]
    count = sum(region.num_occurrences for region in won)
    text = f"a kernel is the fastest in {f'{count:,}' if count else 'none'} of {number_text(total, 'region')}"
    unused = unused_text(result)
    return f"{text}, {unused}" if unused else text


def unused_text(result: Optimization) -> str:
    """Why the kernels that won their regions are not used: `not used: the whole program is faster with torch`."""
    reason = next((region.not_used for region in result.regions if region.not_used), "")
    return f"not used: {format.sanitize_line(reason)}" if reason else ""


def joined_notes(result: Optimization) -> list[str]:
    """The notes, with those on regions that stay with torch for one reason joined."""
    regions: dict[str, list[str]] = {}
    notes = [format.sanitize_line(note) for note in result.notes]
    parts = [note.partition(STAYS) for note in notes]
    for name, stays, reason in parts:
        if stays:
            regions.setdefault(reason, []).append(name)
    texts = []
    for name, stays, reason in parts:
        if not stays:
            texts.append(name)
        elif name == (names := regions[reason])[0]:
            verb = STAYS if len(names) == 1 else STAYS.replace("stays", "stay")
            texts.append(f"{names_text(names)}{verb}{reason}")
    return texts


def names_text(names: list[str]) -> str:
    """`region_0, region_1, region_2 and 4 more`."""
    hidden = len(names) - MAX_NAMES
    return f"{', '.join(names[:MAX_NAMES])} and {hidden:,} more" if hidden > 1 else ", ".join(names)


def fits_on_page(source: str) -> bool:
    """Whether a file is short enough to be shown on a page."""
    return len(html.escape(source).encode()) <= MAX_SOURCE_BYTES


def source_text(result: Optimization) -> str:
    """`342 lines of Python, 14.1 KB`."""
    size = bytes_text(len(result.source.encode()))
    return f"{number_text(len(result.source.splitlines()), 'line')} of Python, {size}"


# ---- a plan


def plan_rows(result: Optimization, space: int | None) -> list[list[str]]:
    """Return the lines of the regions of a plan in program order.

    Args:
        space: lines for all of them, with an empty one after each and one on what is left out; None for no limit. Then
            the regions that move the most bytes are kept, the largest even if its text has to be truncated.
    """
    texts = [region.text.splitlines() for region in result.regions]
    if space is None or sum(len(lines) + 1 for lines in texts) <= space:
        return texts
    space -= 1
    largest = sorted(
        range(len(texts)), key=lambda i: -result.regions[i].bytes_moved * result.regions[i].num_occurrences
    )
    kept: dict[int, list[str]] = {}
    for i in largest:
        if len(texts[i]) + 1 <= space:
            kept[i] = texts[i]
        elif not kept:
            kept[i] = [*texts[i][: space - 2], f"  and {len(texts[i]) - space + 2:,} more lines; --show all for all"]
        space -= len(kept.get(i, ())) + (i in kept)
    return [kept[i] for i in sorted(kept)]
