"""The red-team corpus: a Markdown catalogue of samples and their verdicts per machine, and texts for a page."""

from __future__ import annotations

from collections.abc import Iterable

from kernelwright.core.corpus import CorpusReport, SampleCounts, SampleOutcome
from kernelwright.core.evidence import RowGroup
from kernelwright.core.units import number_text
from kernelwright.report import row_states


def markdown(records: Iterable[RowGroup]) -> str:
    """Return a summary line for each machine, and a table of all samples."""
    groups = list(records)
    samples = {one.name: one for group in groups for one in group.results}
    names = sorted(samples, key=lambda name: (samples[name].kind, name))
    counts = [{one.name: one for one in group.results} for group in groups]
    heads = [f"{one.machine} ({one.device})" for one in groups]
    rows = [
        *map(_machine_summary, groups),
        *row_states.reason_lines(groups),
        "",
        f"| sample | problem | description | {' | '.join(heads)} |",
        "|---|---|---|" + "---|" * len(groups),
        *(_table_row(samples[name], [one.get(name) for one in counts]) for name in names),
    ]
    return "\n".join(rows) + "\n"


def _machine_summary(record: RowGroup) -> str:
    samples: tuple[SampleCounts, ...] = record.results
    legitimate = sum(one.kind == "legitimate" for one in samples)
    wrong, verdicts = sum(one.num_wrong for one in samples), sum(sum(one.verdict_counts.values()) for one in samples)
    software = ", ".join(f"{name} {version}" for name, version in record.environment.items())
    return (
        f"- {record.machine}, {record.device}: {len(samples) - legitimate} cheats and {legitimate} legitimate samples, "
        f"{verdicts:,} verdicts, {wrong} wrong. {row_states.dates_text(record.states)}, {software}."
    )


def _table_row(sample: SampleCounts, counts: list[SampleCounts | None]) -> str:
    cells = " | ".join("" if one is None else _verdict_counts_text(one) for one in counts)
    description = sample.description.replace("|", "\\|")
    return f"| `{sample.name}` | {sample.problem} | {description} | {cells} |"


def _verdict_counts_text(one: SampleCounts) -> str:
    """List the codes, the most frequent first, with counts if there are several."""
    several = len(one.verdict_counts) > 1
    ordered = sorted(one.verdict_counts.items(), key=lambda pair: -pair[1])
    return ", ".join(f"{code or 'accepted'}{f' ({times})' if several else ''}" for code, times in ordered)


KIND_VERDICTS = (
    ("cheat", "cheats", "rejected with an expected code"),
    ("legitimate", "legitimate candidates", "accepted"),
)


def corpus_summary(report: CorpusReport) -> str:
    """`173 of 173 cheats rejected with an expected code, 110 of 110 legitimate candidates accepted`."""
    parts = []
    for kind, noun, verb in KIND_VERDICTS:
        if of_kind := [one for one in report.outcomes if one.kind == kind]:
            parts.append(f"{sum(one.is_correct for one in of_kind)} of {len(of_kind)} {noun} {verb}")
    return ", ".join(parts) + (f", in {number_text(report.rounds, 'round')}" if report.rounds > 1 else "")


def sort_outcomes(report: CorpusReport) -> list[SampleOutcome]:
    """Sort wrong verdicts first, then by kind and name."""
    return sorted(report.outcomes, key=lambda one: (one.is_correct, one.kind, one.name))


def verdict_text(one: SampleOutcome) -> str:
    """`accepted` or the rejection code, followed by the expected verdict if it is wrong."""
    got = one.got or "accepted"
    return got if one.is_correct else f"{got}, expected {' or '.join(one.expected) or 'accepted'}"
