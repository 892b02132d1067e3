"""Texts shared by the terminal, pages and notebooks."""

from __future__ import annotations

from dataclasses import dataclass

from kernelwright.core.bench import Bench, Comparison
from kernelwright.core.diagnosis import Diagnosis, OperatorSummary, Recommendation
from kernelwright.core.machine import Machine, MemoryLevel
from kernelwright.core.throughput import Throughput
from kernelwright.core.timing import Timing
from kernelwright.core.units import bandwidth_text, bytes_text, number_text, rate_text, time_text
from kernelwright.core.verdict import Verdict

NOTHING_LEFT = "stop: no further speedup is expected on this machine"
NO_EVIDENCE = "no recommendation: evidence is missing"
_COMPARISON_PHRASES = {
    "FASTER": "FASTER than",
    "SAME": "SAME as",
    "SLOWER": "SLOWER than",
    "UNCLEAR": "UNCLEAR against",
}
_MAX_BRIEF_NOTE = 24


@dataclass(frozen=True)
class Bar:
    """A time of a diagnosis. `kind` is `now`, `written` or `fused`; `short_caption` is for narrow terminals."""

    kind: str
    label: str
    time_us: float
    caption: str
    short_caption: str


def sanitize_line(text: str) -> str:
    """Join a text to one line without control characters, which could break tables or control the terminal."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def throughput_text(throughput: Throughput) -> str:
    """`238 verdicts in 150 s, 95 per minute with 1 worker`."""
    verdicts, time = number_text(throughput.verdicts, "verdict"), time_text(throughput.time_s * 1e6)
    workers = number_text(throughput.workers, "worker")
    return f"{verdicts} in {time}, {throughput.verdicts_per_minute:.0f} per minute with {workers}"


def factor_text(ratio: float | None) -> str:
    """Format a ratio: `1.08x`, `12.5x`, `4,100x`; a dash for None."""
    if ratio is None:
        return "-"
    digits = 2 if abs(ratio) < 9.995 else 1 if abs(ratio) < 99.95 else 0
    return f"{ratio:,.{digits}f}x"


def ratio_text(value_us: float | None, floor_us: float | None) -> str:
    """Format a time over its floor; a dash without a floor."""
    return factor_text(value_us / floor_us) if value_us is not None and floor_us else "-"


def error_text(value: float) -> str:
    """Format an error in scientific notation: `7.05e-4`."""
    return f"{value:.2e}".replace("e-0", "e-").replace("e+00", "").replace("e+0", "e+")


def estimate_text(time_us: float) -> str:
    """Format a predicted time with two significant digits: `about 39 ms`."""
    number, unit = time_text(float(f"{time_us:.2g}")).split(" ")
    return f"about {number.rstrip('0').rstrip('.') if '.' in number else number} {unit}"


def gain_text(before_us: float | None, after_us: float) -> str:
    """`101 -> about 39 ms`, with both units if they differ."""
    after = estimate_text(after_us)
    if before_us is None:
        return after
    number, unit = time_text(before_us).split(" ")
    return f"{number if after.endswith(' ' + unit) else f'{number} {unit}'} -> {after}"


def machine_text(machine: Machine) -> str:
    """Name a machine, with the threads of a CPU: `AMD EPYC 9R14 (2 threads)`."""
    if machine.device == "cpu" and machine.threads:
        return f"{sanitize_line(machine.name)} ({number_text(machine.threads, 'thread')})"
    return sanitize_line(machine.name)


def ceilings_text(machine: Machine) -> str:
    """State the source of the ceilings: measured, or the datasheet."""
    return "measured ceilings" if machine.provenance == "measured" else "datasheet ceilings, not measured"


# ---- Diagnosis


def program_text(diagnosis: Diagnosis) -> str:
    """Name the diagnosed program."""
    return sanitize_line(diagnosis.program or diagnosis.problem)


def setup_text(diagnosis: Diagnosis) -> str:
    """Inputs and machine: `float32, 64 M elements, on AMD EPYC 9R14 (2 threads)`."""
    machine = machine_text(diagnosis.machine) + (", predicted" if diagnosis.predicted else "")
    inputs = sanitize_line(diagnosis.input_summary) or f"{bytes_text(diagnosis.work.bytes_fused)} in and out"
    return f"{inputs}, on {machine}"


def diagnosis_summary(diagnosis: Diagnosis) -> str:
    """The summary without the regime at its start."""
    return sanitize_line(diagnosis.summary.removeprefix(diagnosis.regime).lstrip(":, "))


def current_time_us(diagnosis: Diagnosis) -> float:
    """Return the baseline of predicted gains: the measured time, or the floor as written for a prediction."""
    return diagnosis.floors.as_written_us if diagnosis.time_us is None else diagnosis.time_us


def time_bars(diagnosis: Diagnosis) -> list[Bar]:
    """Return the measured time (if any), the floor as written and the floor of one fused pass."""
    count = sum(operator.calls for operator in diagnosis.operators)
    caption = f"floor of {number_text(count, 'operator')}, unfused" if count else "floor, unfused"
    bars = [
        Bar("written", "as written", diagnosis.floors.as_written_us, caption, "floor, unfused"),
        Bar("fused", "fused", diagnosis.floors.fused_us, "floor of one fused pass", "floor, fused"),
    ]
    if diagnosis.time_us is not None:
        overhead = overhead_text(diagnosis)
        bars.insert(0, Bar("now", "now", diagnosis.time_us, overhead, overhead if len(overhead) <= 20 else ""))
    return bars


def overhead_text(diagnosis: Diagnosis) -> str:
    """List the overheads of 1 % or more: `12.0 ms in page faults, 3.10 ms waiting for the host`."""
    parts = ((diagnosis.page_fault_us, "in page faults"), (diagnosis.overhead_us, "waiting for the host"))
    return ", ".join(
        f"{time_text(us)} {label}" for us, label in parts if us and us >= 0.01 * current_time_us(diagnosis)
    )


def operator_rows(diagnosis: Diagnosis, limit: int) -> tuple[list[OperatorSummary], int]:
    """Return all operators in program order, or the `limit` with the largest gains, and the number left out."""
    rows = list(diagnosis.operators)
    if len(rows) <= limit:
        return rows, 0
    return sorted(rows, key=lambda row: -row.gain_us)[:limit], len(rows) - limit


def operator_name(operator: OperatorSummary) -> str:
    """`layers.0.mlp linear x3`: module, operator, calls."""
    calls = f"x{operator.calls:,}" if operator.calls > 1 else ""
    return " ".join(part for part in (sanitize_line(operator.module), sanitize_line(operator.name), calls) if part)


def intensity_text(operator: OperatorSummary) -> str:
    """Format the arithmetic intensity; a dash without bytes."""
    value = operator.intensity
    if value is None:
        return "-"
    if value == 0:
        return "0"
    return f"{value:,.{2 if value < 10 else 1 if value < 100 else 0}f}"


def regime_text(operator: OperatorSummary) -> str:
    """The regime of an operator without `-bound`; a dash if undetermined."""
    return "-" if operator.regime == "undetermined" else operator.regime.removesuffix("-bound")


def recommendations(diagnosis: Diagnosis) -> list[Recommendation]:
    """Return the recommendations without `stop`, for which see `stop_text`."""
    return [one for one in diagnosis.recommendations if one.kind != "stop"]


def stop_text(diagnosis: Diagnosis) -> str:
    """Last line below the recommendations: the `stop` of the diagnosis, or why there are no recommendations."""
    for one in diagnosis.recommendations:
        if one.kind == "stop":
            reason = f"({sanitize_line(one.reason)})" if one.reason else ""
            return " ".join(filter(None, (sanitize_line(one.action), reason)))
    if diagnosis.recommendations:
        return ""
    return NO_EVIDENCE if diagnosis.regime == "undetermined" else NOTHING_LEFT


# ---- Verdict


EXACT_POLICY = "0,0"
"""Absolute and relative tolerance of zero."""


def accuracy_text(verdict: Verdict) -> str:
    """Describe the accuracy: `as accurate as the reference against FP64`; empty if nothing was compared."""
    accuracy = verdict.accuracy
    if accuracy is None:
        return ""
    if accuracy.policy == EXACT_POLICY:
        return "bitwise equal to the reference"
    golden = sanitize_line(verdict.golden) or "the reference"
    if accuracy.error_over_reference <= 1.005:
        return f"as accurate as the reference against {golden}"
    over_limit = f"{factor_text(accuracy.error_over_limit)} the limit"
    return f"{factor_text(accuracy.error_over_reference)} the reference's own error against {golden}, {over_limit}"


def verdict_summary(verdict: Verdict) -> str:
    """The headline after its status: the reason of a rejection, or accuracy and input sets."""
    if verdict.reason is not None:
        return f"{verdict.reason.code}: {sanitize_line(verdict.reason.detail.partition(chr(10))[0])}"
    sets = number_text(verdict.input_sets, "input set") if verdict.input_sets else ""
    held_out = number_text(verdict.held_out_sets, "held-out shape") if verdict.held_out_sets else ""
    notes = [sanitize_line(note) for note in verdict.notes if len(note) <= _MAX_BRIEF_NOTE]
    return ", ".join(filter(None, (accuracy_text(verdict), sets, held_out, *notes)))


def verdict_notes(verdict: Verdict) -> list[str]:
    """Lines below the headline: further lines of the reason, notes that are not in the headline, warnings, seed."""
    detail = verdict.reason.detail.splitlines()[1:] if verdict.reason else []
    notes = [note for note in verdict.notes if verdict.reason is not None or len(note) > _MAX_BRIEF_NOTE]
    warnings = [f"weak test problem: {warning}" for warning in verdict.problem_warnings]
    lines = (*detail, *near_limit_text(verdict), *notes, *warnings, *seed_text(verdict))
    return [sanitize_line(line) for line in lines]


def near_limit_text(verdict: Verdict) -> list[str]:
    """Describe how close an accepted candidate is to the accuracy limit; the reason of a rejection includes it."""
    near = verdict.near_limit
    if near is None or verdict.reason is not None:
        return []
    sets = f"{number_text(near.input_sets, 'input set')} ({near.distribution})"
    return [f"near its limit: rms {near.rms_over_limit:.2g}x over {sets}, max {near.max_over_limit:.2g}x"]


def seed_text(verdict: Verdict) -> list[str]:
    """State the option that reproduces the verdict."""
    return [] if verdict.seed is None else [f"reproduce with --seed {verdict.seed}"]


def worst_element_text(verdict: Verdict) -> str:
    """`worst at [17, 903]: got 0.00097, expected 0.00098`; empty unless rejected."""
    accuracy, reason = verdict.accuracy, verdict.reason
    if accuracy is None or reason is None or "worst at" in reason.detail or not (accuracy.got or accuracy.expected):
        return ""
    index = f"at {list(accuracy.index)}" if accuracy.index else "value"
    output = f" of {sanitize_line(accuracy.output)}" if accuracy.output else ""
    return f"worst {index}{output}: got {sanitize_line(accuracy.got)}, expected {sanitize_line(accuracy.expected)}"


# ---- Bench


def comparison_text(bench: Bench, comparison: Comparison) -> str:
    """`FASTER than eager`, with the variant first if several candidates are compared."""
    text = f"{_COMPARISON_PHRASES[comparison.verdict]} {sanitize_line(comparison.baseline)}"
    subjects = {other.variant for other in bench.comparisons}
    return text if len(subjects) == 1 else f"{sanitize_line(comparison.variant)} {text}"


def interval_text(comparison: Comparison) -> str:
    """Format the interval of a speedup: `[2.53, 2.59]`."""
    return f"[{comparison.low:,.2f}, {comparison.high:,.2f}]"


def conditions_text(bench: Bench) -> str:
    """`60 pairs, interleaved, cold cache, no disturbed samples`."""
    parts = []
    if bench.predicted:
        return "predicted from the datasheet: nothing was timed, so variants are not compared"
    if bench.comparisons:
        parts += [f"{min(c.pairs for c in bench.comparisons):,} pairs", sanitize_line(bench.comparisons[0].method)]
    if timings := variant_timings(bench):
        conditions = timings[0].conditions
        parts += [f"{conditions.cache} cache"]
        parts += [f"{conditions.processes} processes"] * (conditions.processes > 1)
        disturbed = sum(timing.disturbed for timing in timings)
        parts += [f"{number_text(disturbed, 'sample')} disturbed" if disturbed else "no disturbed samples"]
    return ", ".join(filter(None, parts))


def rejected_verdicts(bench: Bench) -> list[Verdict]:
    """Return the verdicts of candidates that were rejected and thus not timed."""
    return [verdict for verdict in bench.verdicts if not verdict.accepted]


def rejection_text(verdict: Verdict) -> str:
    """Name a rejected candidate, with the summary of `kw verify`."""
    return f"{sanitize_line(verdict.candidate)}: {verdict_summary(verdict)}"


def variant_timings(bench: Bench) -> list[Timing]:
    """Return the timing of every variant; empty for a prediction."""
    return [variant.timing for variant in bench.variants if variant.timing]


def bench_summary(bench: Bench) -> str:
    """The first comparison as a sentence: `candidate is FASTER than eager: 2.56x [2.53, 2.59]`."""
    if not bench.variants and (rejected := rejected_verdicts(bench)):
        return rejection_text(rejected[0])
    if bench.predicted:
        return "predicted from the datasheet, not timed"
    if not bench.comparisons:
        return "timed, no baseline to compare with"
    return f"{sanitize_line(bench.comparisons[0].variant)} is {comparisons_text(bench)}"


def comparisons_text(bench: Bench) -> str:
    """Compare the first variant with each baseline: `FASTER than eager, 2.56x [2.53, 2.59]; SAME as ...`."""
    if not bench.comparisons:
        return "predicted, not timed" if bench.predicted else "timed, no baseline to compare with"
    return "; ".join(
        f"{_COMPARISON_PHRASES[c.verdict]} {sanitize_line(c.baseline)}, {factor_text(c.speedup)} {interval_text(c)}"
        for c in bench.comparisons
        if c.variant == bench.comparisons[0].variant
    )


def bench_status(bench: Bench) -> tuple[str, str]:
    """Return the status of a bench and its accent: the first comparison, `rejected` or `timed`."""
    if bench.comparisons:
        verdict = bench.comparisons[0].verdict
        return verdict, verdict
    return ("rejected", "bad") if rejected_verdicts(bench) and not bench.variants else ("timed", "SAME")


# ---- Machine


def dtypes(machine: Machine) -> list[str]:
    """Return all dtypes with a rate, sorted by matrix rate."""
    names = {**machine.matrix_tflop_s, **machine.vector_tflop_s}
    return sorted(names, key=lambda name: -machine.matrix_tflop_s.get(name, names[name]))


def host_costs(machine: Machine) -> list[tuple[str, float]]:
    """Return the measured host overheads in microseconds."""
    costs = (
        ("operator dispatch", machine.dispatch_us),
        ("kernel launch", machine.launch_us),
        ("launch in a CUDA graph", machine.graph_launch_us),
        ("page faults per MiB", machine.page_fault_us_per_mib),
    )
    return [(label, cost_us) for label, cost_us in costs if cost_us is not None]


def machine_summary(machine: Machine) -> str:
    """The two main ceilings: `29.1 GB/s from DRAM, 702 GFLOP/s in int8`."""
    parts = []
    if machine.levels and (fastest := max_bandwidth_gb_s(machine.levels[-1])):
        parts.append(f"{bandwidth_text(fastest)} from {sanitize_line(machine.levels[-1].name)}")
    if machine.matrix_tflop_s:
        dtype = max(machine.matrix_tflop_s, key=lambda name: machine.matrix_tflop_s[name])
        parts.append(f"{rate_text(machine.matrix_tflop_s[dtype])} in {sanitize_line(dtype)}")
    return ", ".join(parts) or "no known ceilings"


def bandwidths_by_mix(level: MemoryLevel) -> list[tuple[str, float | None]]:
    """Return the bandwidth in GB/s of each mix of reads and writes."""
    rates = (level.read_gb_s, level.write_gb_s, level.copy_gb_s, level.triad_gb_s)
    return list(zip(("read", "write", "copy", "triad"), rates, strict=True))


def max_bandwidth_gb_s(level: MemoryLevel) -> float:
    """Return the highest known bandwidth of a level, or 0."""
    return max((rate for _, rate in bandwidths_by_mix(level) if rate), default=0.0)
