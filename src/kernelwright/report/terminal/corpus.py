"""`kw judge-check`: how many of each kind were judged rightly, by which code, and those that were not."""

from __future__ import annotations

from collections import Counter

from kernelwright.core.corpus import CorpusReport, SampleOutcome
from kernelwright.report import format
from kernelwright.report.corpus import KIND_VERDICTS
from kernelwright.report.terminal.console import BAD, GOOD, TerminalWriter

INDENT = 11


def write(report: CorpusReport, paper: TerminalWriter) -> None:
    for one in report.wrong_outcomes:
        paper.print_paragraph(_wrong_text(one), INDENT, first=[("WRONG".ljust(INDENT), BAD)])
    for kind, noun, verb in KIND_VERDICTS:
        of_kind = [one for one in report.outcomes if one.kind == kind]
        right = sum(one.is_correct for one in of_kind)
        if of_kind:
            share = f"{right} of {len(of_kind)} {verb}"
            paper.print_line((noun.partition(" ")[0].ljust(INDENT), GOOD if right == len(of_kind) else BAD), share)
    codes = Counter(one.got for one in report.outcomes if one.is_correct and one.got)
    if codes:
        paper.print_paragraph(
            "by " + ", ".join(f"{code} {count}" for code, count in codes.most_common()), INDENT, "dim"
        )
    if report.rounds > 1:
        paper.print_paragraph(f"{report.rounds} rounds, {_changed_text(report)}", INDENT, "dim")
    if report.skipped:
        paper.print_paragraph(f"{len(report.skipped)} samples need another device than {report.device}", INDENT, "dim")
    paper.print_paragraph(format.throughput_text(report.throughput), INDENT, "dim")
    paper.print_paragraph("; ".join(report.sandbox), INDENT, "dim")


def _wrong_text(one: SampleOutcome) -> str:
    said = f"rejected, {one.got}: {one.detail}" if one.got else "accepted"
    wanted = f"must be rejected, {' or '.join(one.expected)}" if one.expected else "must be accepted"
    return f"{one.kind}/{one.name} on {one.problem} ({one.description}) {said}; it {wanted}"


def _changed_text(report: CorpusReport) -> str:
    verdicts: dict[str, set[bool]] = {}
    for one in report.outcomes:
        verdicts.setdefault(one.name, set()).add(bool(one.got))
    changed = sorted(name for name, seen in verdicts.items() if len(seen) > 1)
    return f"the verdict of {', '.join(changed)} changed" if changed else "without one change of verdict"
