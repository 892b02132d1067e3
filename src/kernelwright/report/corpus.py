"""The corpus as it was judged: in Markdown the catalogue of cheats and what rejects each on which machine, and in words
for a page what one run said."""

from __future__ import annotations

from collections.abc import Iterable

from kernelwright.core.corpus import CorpusReport, SampleCounts, SampleOutcome
from kernelwright.core.evidence import RowGroup
from kernelwright.core.units import number_text
from kernelwright.report import row_states


def markdown(records: Iterable[RowGroup]) -> str:
    """A paragraph for each machine, and one table of all samples."""
    found = list(records)
    samples = {one.name: one for record in found for one in record.results}
    names = sorted(samples, key=lambda name: (samples[name].kind, name))
    counts = [{one.name: one for one in record.results} for record in found]
    heads = [f"{one.machine} ({one.device})" for one in found]
    rows = [
        *map(_machine_summary, found),
        *row_states.reason_lines(found),
        "",
        f"| sample | of | what it does | {' | '.join(heads)} |",
        "|---|---|---|" + "---|" * len(found),
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
    what = sample.description.replace("|", "\\|")
    return f"| `{sample.name}` | {sample.problem} | {what} | {cells} |"


def _verdict_counts_text(one: SampleCounts) -> str:
    """The codes, the most frequent first; how often, where there are several."""
    several = len(one.verdict_counts) > 1
    ordered = sorted(one.verdict_counts.items(), key=lambda pair: -pair[1])
    return ", ".join(f"{code or 'accepted'}{f' ({times})' if several else ''}" for code, times in ordered)


KIND_VERDICTS = (
    ("cheat", "cheats", "rejected by the right code"),
    ("legitimate", "legitimate candidates", "accepted"),
)


def corpus_summary(report: CorpusReport) -> str:
    """`173 of 173 cheats rejected by the right code, 110 of 110 legitimate candidates accepted`."""
    said = []
    for kind, noun, verb in KIND_VERDICTS:
        if of_kind := [one for one in report.outcomes if one.kind == kind]:
            said.append(f"{sum(one.is_correct for one in of_kind)} of {len(of_kind)} {noun} {verb}")
    return ", ".join(said) + (f", in {number_text(report.rounds, 'round')}" if report.rounds > 1 else "")


def sort_outcomes(report: CorpusReport) -> list[SampleOutcome]:
    """Verdicts that were wrong first; the others by kind and name."""
    return sorted(report.outcomes, key=lambda one: (one.is_correct, one.kind, one.name))


def verdict_text(one: SampleOutcome) -> str:
    """`accepted`, or the code; with what it should have been where that is another."""
    got = one.got or "accepted"
    return got if one.is_correct else f"{got}, must be {' or '.join(one.expected) or 'accepted'}"
