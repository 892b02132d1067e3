"""`kw judge-check`: correct verdicts per kind and rejection code, and all wrong verdicts."""

from __future__ import annotations

from collections import Counter

from kernelwright.core.corpus import CorpusReport, SampleOutcome
from kernelwright.report import format
from kernelwright.report.corpus import KIND_VERDICTS
from kernelwright.report.terminal.console import BAD, GOOD, TerminalWriter

INDENT = 11


def write(report: CorpusReport, writer: TerminalWriter) -> None:
    """Write a report on the corpus."""
    for one in report.wrong_outcomes:
        writer.print_paragraph(_wrong_text(one), INDENT, first=[("WRONG".ljust(INDENT), BAD)])
    for kind, noun, verb in KIND_VERDICTS:
        of_kind = [one for one in report.outcomes if one.kind == kind]
        correct = sum(one.is_correct for one in of_kind)
        if of_kind:
            share = f"{correct} of {len(of_kind)} {verb}"
            writer.print_line((noun.partition(" ")[0].ljust(INDENT), GOOD if correct == len(of_kind) else BAD), share)
    codes = Counter(one.got for one in report.outcomes if one.is_correct and one.got)
    if codes:
        writer.print_paragraph(
            "by " + ", ".join(f"{code} {count}" for code, count in codes.most_common()), INDENT, "dim"
        )
    if report.rounds > 1:
        writer.print_paragraph(f"{report.rounds} rounds, {_changed_text(report)}", INDENT, "dim")
    if report.skipped:
        writer.print_paragraph(f"{len(report.skipped)} samples skipped: not for {report.device}", INDENT, "dim")
    writer.print_paragraph(format.throughput_text(report.throughput), INDENT, "dim")
    writer.print_paragraph("; ".join(report.sandbox), INDENT, "dim")


def _wrong_text(one: SampleOutcome) -> str:
    got = f"rejected, {one.got}: {one.detail}" if one.got else "accepted"
    expected = f"rejected, {' or '.join(one.expected)}" if one.expected else "accepted"
    return f"{one.kind}/{one.name} on {one.problem} ({one.description}): {got}; expected: {expected}"


def _changed_text(report: CorpusReport) -> str:
    verdicts: dict[str, set[bool]] = {}
    for one in report.outcomes:
        verdicts.setdefault(one.name, set()).add(bool(one.got))
    changed = sorted(name for name, seen in verdicts.items() if len(seen) > 1)
    return f"the verdict of {', '.join(changed)} changed" if changed else "no verdict changed"
