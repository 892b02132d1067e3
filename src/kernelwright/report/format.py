"""What a report says, in words: one place, so that the terminal, the page and the notebook agree."""

from __future__ import annotations

from dataclasses import dataclass

from kernelwright.core.records import (
    Bench,
    Comparison,
    Diagnosis,
    Machine,
    MemoryLevel,
    OperatorSummary,
    Recommendation,
    Timing,
    Verdict,
)
from kernelwright.core.throughput import Throughput
from kernelwright.core.units import bandwidth_text, bytes_text, number_text, rate_text, time_text

NOTHING_LEFT = "stop: nothing is left that would make it faster on this machine"
NO_EVIDENCE = "no next move: the evidence for one is missing"
_COMPARISON_PHRASES = {
    "FASTER": "FASTER than",
    "SAME": "SAME as",
    "SLOWER": "SLOWER than",
    "UNCLEAR": "UNCLEAR against",
}
_MAX_BRIEF_NOTE = 24


@dataclass(frozen=True)
class Bar:
    """One of the three times of a diagnosis: `kind` is `now`, `written` or `fused`; `short_caption` is for 80
    columns."""

    kind: str
    label: str
    time_us: float
    caption: str
    short_caption: str


def sanitize_line(text: str) -> str:
    """One line without control characters, so that a program's text can neither break a table nor drive a terminal."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def throughput_text(pace: Throughput) -> str:
    """`238 verdicts in 150 s, 95 a minute by 1 worker`."""
    made, took = number_text(pace.verdicts, "verdict"), time_text(pace.time_s * 1e6)
    return f"{made} in {took}, {pace.verdicts_per_minute:.0f} a minute by {number_text(pace.workers, 'worker')}"


def factor_text(ratio: float | None) -> str:
    """A ratio: `1.08x`, `12.5x`, `4,100x`; a dash when it is not known."""
    if ratio is None:
        return "-"
    digits = 2 if abs(ratio) < 9.995 else 1 if abs(ratio) < 99.95 else 0
    return f"{ratio:,.{digits}f}x"


def ratio_text(value_us: float | None, floor_us: float | None) -> str:
    """How many times its floor a time is; a dash without a floor."""
    return factor_text(value_us / floor_us) if value_us is not None and floor_us else "-"


def error_text(value: float) -> str:
    """An error in powers of ten: `7.05e-4`."""
    return f"{value:.2e}".replace("e-0", "e-").replace("e+00", "").replace("e+0", "e+")


def estimate_text(time_us: float) -> str:
    """A prediction, to two significant digits: `about 39 ms`."""
    number, unit = time_text(float(f"{time_us:.2g}")).split(" ")
    return f"about {number.rstrip('0').rstrip('.') if '.' in number else number} {unit}"


def gain_text(before_us: float | None, after_us: float) -> str:
    """`101 -> about 39 ms`; both units where they differ."""
    after = estimate_text(after_us)
    if before_us is None:
        return after
    number, unit = time_text(before_us).split(" ")
    return f"{number if after.endswith(' ' + unit) else f'{number} {unit}'} -> {after}"


def machine_text(machine: Machine) -> str:
    """`AMD EPYC 9R14 (2 threads)`."""
    if machine.device == "cpu" and machine.threads:
        return f"{sanitize_line(machine.name)} ({number_text(machine.threads, 'thread')})"
    return sanitize_line(machine.name)


def ceilings_text(machine: Machine) -> str:
    """Where the ceilings come from: `measured ceilings`."""
    return "measured ceilings" if machine.provenance == "measured" else "ceilings of the datasheet, not measured here"


# ---- Diagnosis


def program_text(diagnosis: Diagnosis) -> str:
    return sanitize_line(diagnosis.program or diagnosis.problem)


def setup_text(diagnosis: Diagnosis) -> str:
    """What it works on and where: `float32, 64 M elements, on AMD EPYC 9R14 (2 threads)`."""
    where = machine_text(diagnosis.machine) + (", predicted" if diagnosis.predicted else "")
    what = sanitize_line(diagnosis.input_summary) or f"{bytes_text(diagnosis.work.bytes_fused)} in and out"
    return f"{what}, on {where}"


def diagnosis_summary(diagnosis: Diagnosis) -> str:
    """The verdict sentence without the regime in front of it."""
    return sanitize_line(diagnosis.summary.removeprefix(diagnosis.regime).lstrip(":, "))


def current_time_us(diagnosis: Diagnosis) -> float:
    """The time that gains count from: measured, or the floor as written where nothing was run."""
    return diagnosis.floors.as_written_us if diagnosis.time_us is None else diagnosis.time_us


def time_bars(diagnosis: Diagnosis) -> list[Bar]:
    """Now (where it was measured), the floor as written, the floor of one fused pass."""
    count = sum(reading.calls for reading in diagnosis.operators)
    each = {0: "floor, one by one", 1: "floor of this operator"}.get(
        count, f"floor of these {count} operators, one by one"
    )
    found = [
        Bar("written", "as written", diagnosis.floors.as_written_us, each, "floor, one by one"),
        Bar("fused", "fused", diagnosis.floors.fused_us, "floor of the whole expression", "floor, as one"),
    ]
    if diagnosis.time_us is not None:
        lost = overhead_text(diagnosis)
        found.insert(0, Bar("now", "now", diagnosis.time_us, lost, lost if len(lost) <= 20 else ""))
    return found


def overhead_text(diagnosis: Diagnosis) -> str:
    """The parts of the time that are no work: `12.0 ms in page faults, 3.10 ms waiting for the host`."""
    parts = ((diagnosis.page_fault_us, "in page faults"), (diagnosis.overhead_us, "waiting for the host"))
    return ", ".join(f"{time_text(us)} {what}" for us, what in parts if us and us >= 0.01 * current_time_us(diagnosis))


def operator_rows(diagnosis: Diagnosis, limit: int) -> tuple[list[OperatorSummary], int]:
    """All operators in the program's order, or the `limit` with most to gain and how many calls groups are left."""
    rows = list(diagnosis.operators)
    if len(rows) <= limit:
        return rows, 0
    return sorted(rows, key=lambda row: -row.gain_us)[:limit], len(rows) - limit


def operator_name(reading: OperatorSummary) -> str:
    """`layers.0.mlp linear x3`: module, operator, calls."""
    calls = f"x{reading.calls:,}" if reading.calls > 1 else ""
    return " ".join(part for part in (sanitize_line(reading.module), sanitize_line(reading.name), calls) if part)


def intensity_text(reading: OperatorSummary) -> str:
    value = reading.intensity
    if value is None:
        return "-"
    if value == 0:
        return "0"
    return f"{value:,.{2 if value < 10 else 1 if value < 100 else 0}f}"


def regime_text(reading: OperatorSummary) -> str:
    """The regime of one row without `-bound`."""
    return "-" if reading.regime == "undetermined" else reading.regime.removesuffix("-bound")


def recommendations(diagnosis: Diagnosis) -> list[Recommendation]:
    """The moves that promise a gain, in order; what to say when there is none is `stop_text`."""
    return [move for move in diagnosis.recommendations if move.kind != "stop"]


def stop_text(diagnosis: Diagnosis) -> str:
    """The last line under the moves: the diagnosis's own stop, or what an empty list means; empty otherwise."""
    for move in diagnosis.recommendations:
        if move.kind == "stop":
            return " ".join(
                filter(None, (sanitize_line(move.action), f"({sanitize_line(move.reason)})" if move.reason else ""))
            )
    if diagnosis.recommendations:
        return ""
    return NO_EVIDENCE if diagnosis.regime == "undetermined" else NOTHING_LEFT


# ---- Verdict


EXACT_POLICY = "0,0"
"""The classic policy without any tolerance."""


def accuracy_text(verdict: Verdict) -> str:
    """How right it is: `as accurate as the reference against FP64`; empty where nothing was compared."""
    found = verdict.accuracy
    if found is None:
        return ""
    if found.policy == EXACT_POLICY:
        return "the reference's own numbers, to the last bit"
    golden = sanitize_line(verdict.golden) or "the reference"
    if found.error_over_reference <= 1.005:
        return f"as accurate as the reference against {golden}"
    share = f"{factor_text(found.error_over_limit)} the limit"
    return f"{factor_text(found.error_over_reference)} the reference's own error against {golden}, {share}"


def verdict_summary(verdict: Verdict) -> str:
    """The head line without its first word: why it was rejected, or what was shown."""
    if verdict.reason is not None:
        return f"{verdict.reason.code}: {sanitize_line(verdict.reason.detail.partition(chr(10))[0])}"
    sets = number_text(verdict.input_sets, "input set") if verdict.input_sets else ""
    others = number_text(verdict.held_out_sets, "held-out shape") if verdict.held_out_sets else ""
    brief = [sanitize_line(note) for note in verdict.notes if len(note) <= _MAX_BRIEF_NOTE]
    return ", ".join(filter(None, (accuracy_text(verdict), sets, others, *brief)))


def verdict_notes(verdict: Verdict) -> list[str]:
    """What does not fit the head line: further lines of the reason, the longer notes; all notes of a rejected one."""
    rest = verdict.reason.detail.splitlines()[1:] if verdict.reason else []
    long = [note for note in verdict.notes if verdict.reason is not None or len(note) > _MAX_BRIEF_NOTE]
    degenerate = [f"the problem proves little: {why}" for why in verdict.problem_warnings]
    return [sanitize_line(line) for line in (*rest, *near_limit_text(verdict), *long, *degenerate, *seed_text(verdict))]


def near_limit_text(verdict: Verdict) -> list[str]:
    """How near an accepted one came to the limit of accuracy, and over how many sets; a rejected one's reason says."""
    near = verdict.near_limit
    if near is None or verdict.reason is not None:
        return []
    sets = f"{number_text(near.input_sets, 'input set')} ({near.distribution})"
    return [
        f"near its limit: {near.rms_over_limit:.2g} times it (rms) over {sets}, {near.max_over_limit:.2g} in the worst"
    ]


def seed_text(verdict: Verdict) -> list[str]:
    return [] if verdict.seed is None else [f"the same again: --seed {verdict.seed}"]


def worst_element_text(verdict: Verdict) -> str:
    """Where the worst element is: `worst at [17, 903]: got 0.00097, expected 0.00098`; empty when all was right."""
    found, reason = verdict.accuracy, verdict.reason
    if found is None or reason is None or "worst at" in reason.detail or not (found.got or found.expected):
        return ""
    place = f"at {list(found.index)}" if found.index else "value"
    output = f" of {sanitize_line(found.output)}" if found.output else ""
    return f"worst {place}{output}: got {sanitize_line(found.got)}, expected {sanitize_line(found.expected)}"


# ---- Bench


def comparison_text(bench: Bench, comparison: Comparison) -> str:
    """`FASTER than eager`; with the first arm in front where several candidates are compared."""
    joined = f"{_COMPARISON_PHRASES[comparison.verdict]} {sanitize_line(comparison.baseline)}"
    subjects = {other.variant for other in bench.comparisons}
    return joined if len(subjects) == 1 else f"{sanitize_line(comparison.variant)} {joined}"


def interval_text(comparison: Comparison) -> str:
    return f"[{comparison.low:,.2f}, {comparison.high:,.2f}]"


def conditions_text(bench: Bench) -> str:
    """`60 pairs, interleaved, cold cache, no disturbed samples`."""
    parts = []
    if bench.predicted:
        return "predicted from the datasheet: nothing was timed, so nothing is said of who is faster"
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
    """The verdicts on the candidates that were not timed because they are wrong."""
    return [verdict for verdict in bench.verdicts if not verdict.accepted]


def rejection_text(verdict: Verdict) -> str:
    """Which candidate was rejected, and why, as `kw verify` says it."""
    return f"{sanitize_line(verdict.candidate)}: {verdict_summary(verdict)}"


def variant_timings(bench: Bench) -> list[Timing]:
    """What was timed, arm by arm; nothing for a prediction."""
    return [arm.timing for arm in bench.variants if arm.timing]


def bench_summary(bench: Bench) -> str:
    """The first comparison as a sentence: `candidate is FASTER than eager: 2.56x [2.53, 2.59]`."""
    if not bench.variants and (refused := rejected_verdicts(bench)):
        return rejection_text(refused[0])
    if bench.predicted:
        return "predicted from the datasheet, not timed"
    if not bench.comparisons:
        return "timed, with nothing to compare"
    return f"{sanitize_line(bench.comparisons[0].variant)} is {comparisons_text(bench)}"


def comparisons_text(bench: Bench) -> str:
    """The first arm against each of its baselines: `FASTER than eager, 2.56x [2.53, 2.59]; SAME as torch.compile, ...`;
    what was done where there is nothing to compare."""
    if not bench.comparisons:
        return "predicted, not timed" if bench.predicted else "timed, with nothing to compare"
    return "; ".join(
        f"{_COMPARISON_PHRASES[c.verdict]} {sanitize_line(c.baseline)}, {factor_text(c.speedup)} {interval_text(c)}"
        for c in bench.comparisons
        if c.variant == bench.comparisons[0].variant
    )


def bench_status(bench: Bench) -> tuple[str, str]:
    """The word of a bench and its accent: the first comparison's, or that nothing was left to time."""
    if bench.comparisons:
        verdict = bench.comparisons[0].verdict
        return verdict, verdict
    return ("rejected", "bad") if rejected_verdicts(bench) and not bench.variants else ("timed", "SAME")


# ---- Machine


def dtypes(machine: Machine) -> list[str]:
    """Every dtype with a rate, the fastest product first."""
    names = {**machine.matrix_tflop_s, **machine.vector_tflop_s}
    return sorted(names, key=lambda name: -machine.matrix_tflop_s.get(name, names[name]))


def host_costs(machine: Machine) -> list[tuple[str, float]]:
    """What the host costs, in microseconds, where it was measured."""
    known = (
        ("dispatch of one operator", machine.dispatch_us),
        ("launch of one kernel", machine.launch_us),
        ("launch inside a graph", machine.graph_launch_us),
        ("page faults per MiB of memory", machine.page_fault_us_per_mib),
    )
    return [(what, cost_us) for what, cost_us in known if cost_us is not None]


def machine_summary(machine: Machine) -> str:
    """The two ceilings that matter most: `29.1 GB/s from DRAM, 702 GFLOP/s in int8`."""
    said = []
    if machine.levels and (fastest := max_bandwidth_gb_s(machine.levels[-1])):
        said.append(f"{bandwidth_text(fastest)} from {sanitize_line(machine.levels[-1].name)}")
    if machine.matrix_tflop_s:
        dtype = max(machine.matrix_tflop_s, key=lambda name: machine.matrix_tflop_s[name])
        said.append(f"{rate_text(machine.matrix_tflop_s[dtype])} in {sanitize_line(dtype)}")
    return ", ".join(said) or "no ceiling is known"


def bandwidths_by_mix(level: MemoryLevel) -> list[tuple[str, float | None]]:
    """The four mixes of reads and writes with the bandwidth of each in GB/s."""
    rates = (level.read_gb_s, level.write_gb_s, level.copy_gb_s, level.triad_gb_s)
    return list(zip(("read", "write", "copy", "triad"), rates, strict=True))


def max_bandwidth_gb_s(level: MemoryLevel) -> float:
    """The bandwidth of the fastest mix that is known, 0 for none."""
    return max((rate for _, rate in bandwidths_by_mix(level) if rate), default=0.0)
