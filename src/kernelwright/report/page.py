"""Self-contained HTML pages of records, and short forms for notebooks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup, escape

from kernelwright.core.corpus import CorpusReport
from kernelwright.core.document import build_document, encode
from kernelwright.core.emulation import Emulation
from kernelwright.core.ladder import LadderRun
from kernelwright.core.layout import LayoutEvaluation
from kernelwright.core.machine_code import CodeDifference, MachineCode
from kernelwright.core.optimization import Optimization
from kernelwright.core.records import Bench, Diagnosis, Machine, Verdict
from kernelwright.core.suite_run import SuiteRun
from kernelwright.core.units import number_text
from kernelwright.report import charts, corpus, format, grid, ladders, optimization, suite_run
from kernelwright.report.drawing import render_template
from kernelwright.report.roofline import count_unplaced_operators, render_ladder_roofline, render_roofline
from kernelwright.report.terminal.sass import resources_text

_CoreRecord = Diagnosis | Verdict | Bench | Machine | Optimization
RenderableRecord = (
    _CoreRecord | LayoutEvaluation | LadderRun | MachineCode | CodeDifference | Emulation | SuiteRun | CorpusReport
)
MAX_ROWS = 24
MAX_NOTEBOOK_ROWS = 12
MAX_PAGE_BYTES = 950_000
"""Limit that keeps a page below 1 MB; a larger JSON document is omitted from it."""
_VERBS = {
    Diagnosis: "why",
    Verdict: "verify",
    Bench: "bench",
    Machine: "machine",
    Optimization: "optimize",
    LayoutEvaluation: "layout",
    LadderRun: "ladder",
    MachineCode: "sass",
    CodeDifference: "sass",
    Emulation: "why",
    SuiteRun: "suite",
    CorpusReport: "judge-check",
}
_BODY_TEMPLATES: dict[type, str] = {
    CodeDifference: "difference",
    Emulation: "emulation",
    SuiteRun: "suite_run",
    CorpusReport: "corpus",
}
"""Templates whose name differs from that of the verb."""


@dataclass(frozen=True)
class PageHeader:
    """The header of a page: context, status, summary and the accent colour."""

    context: tuple[str, ...]
    status_word: str
    summary: str
    accent: str


def render_page(record: RenderableRecord, *, status: str = "ok", next: Sequence[str] = ()) -> str:
    """Render a page without scripts, fonts or network access.

    Args:
        record: the record to render.
        status: `ok` or `finding`, for the JSON document that the page includes.
        next: next steps, as commands or sentences: the first section of the page, and in the JSON document.
    Raises:
        TypeError: there is no page for this type of record.
    """
    text = encode(build_document(_verb_of(record), record, status=status, next=next))
    values = {"compact": False, "limit": MAX_ROWS, "json_bytes": len(text.encode()), "next": _next_steps(record, next)}
    without_json = _render("page.html.j2", record, json="", **values)
    fits = len(without_json.encode()) + len(escape(text).encode()) <= MAX_PAGE_BYTES
    return _render("page.html.j2", record, json=text, **values) if fits else without_json


def render_fragment(record: RenderableRecord) -> str:
    """Render the short form for a notebook, with its style sheet.

    Raises:
        TypeError: there is no page for this type of record.
    """
    return _render("fragment.html.j2", record, compact=True, limit=MAX_NOTEBOOK_ROWS, next=_next_steps(record))


def _verb_of(record: RenderableRecord) -> str:
    if type(record) not in _VERBS:
        raise TypeError(f"no page for a {type(record).__name__}")
    return _VERBS[type(record)]


def _next_steps(record: RenderableRecord, next: Sequence[str] = ()) -> list[str]:
    """Return the steps for the first section of a page: `next`, or the recommendations of an emulation."""
    return list(next) or ([one.action for one in record.recommendations] if isinstance(record, Emulation) else [])


def _roofline_svg(record: RenderableRecord, machine: Machine, diagnosis: Diagnosis | None) -> Markup:
    return render_ladder_roofline(record) if isinstance(record, LadderRun) else render_roofline(machine, diagnosis)


def _render(template: str, record: RenderableRecord, **values: Any) -> str:
    verb = _verb_of(record)
    machine = record if isinstance(record, Machine) else getattr(record, "machine", None)
    diagnosis = record if isinstance(record, Diagnosis) else getattr(record, "diagnosis", None)
    return str(
        render_template(
            template,
            record=record,
            verb=verb,
            body=f"{_BODY_TEMPLATES.get(type(record), verb)}.html.j2",
            head=page_header(record),
            charts=charts,
            corpus=corpus,
            grid=grid,
            ladders=ladders,
            suite_run=suite_run,
            roofline_svg=_roofline_svg(record, machine, diagnosis) if machine and not values["compact"] else "",
            num_unplaced=count_unplaced_operators(diagnosis) if diagnosis else 0,
            machine_name=format.machine_text(machine) if machine else "",
            **values,
        )
    )


def page_header(record: RenderableRecord) -> PageHeader:
    """Return the header of the page of a record."""
    if isinstance(record, Diagnosis):
        kicker = (format.program_text(record), format.setup_text(record))
        return PageHeader(kicker, record.regime, format.diagnosis_summary(record), record.regime)
    if isinstance(record, Verdict):
        kicker = (
            format.sanitize_line(record.candidate),
            f"for {format.sanitize_line(record.problem)}",
            f"on {record.device}",
        )
        word, accent = ("accepted", "good") if record.accepted else ("rejected", "bad")
        return PageHeader(kicker, word, format.verdict_summary(record), accent)
    if isinstance(record, Bench):
        kicker = (format.sanitize_line(record.problem), f"on {format.machine_text(record.machine)}")
        word, accent = format.bench_status(record)
        return PageHeader(kicker, word, format.bench_summary(record), accent)
    if isinstance(record, Optimization):
        kicker = (format.sanitize_line(record.problem), optimization.setup_text(record))
        word, accent = optimization.headline(record)
        return PageHeader(kicker, word, optimization.optimization_summary(record), accent)
    if isinstance(record, LayoutEvaluation):
        kicker = (format.sanitize_line(record.expression), record.kind)
        return PageHeader(kicker, "layout", format.sanitize_line(record.result), "undetermined")
    if isinstance(record, LadderRun):
        when = f"recorded {record.recorded_date}" if record.recorded_date else f"baseline {record.baseline}"
        kicker = (format.sanitize_line(record.ladder), when, f"on {format.machine_text(record.machine)}")
        return PageHeader(kicker, "ladder", ladders.ladder_summary(record), "compute-bound")
    if isinstance(record, MachineCode):
        kicker = (
            format.sanitize_line(record.kernel),
            format.sanitize_line(record.arch),
            *resources_text(record).split("   "),
        )
        return PageHeader(
            kicker, "machine code", format.sanitize_line(record.summary).partition(". ")[0], "undetermined"
        )
    if isinstance(record, CodeDifference):
        kicker = (format.sanitize_line(record.before.kernel), format.sanitize_line(record.after.kernel))
        changes = number_text(len(record.changes), "difference")
        summary = f"{changes} in the machine code" if record.changes else "no differences in the machine code"
        return PageHeader(kicker, "difference", summary, "undetermined")
    if isinstance(record, Emulation):
        kicker = (
            format.sanitize_line(record.candidate),
            f"for {format.sanitize_line(record.problem)}",
            "emulated on the CPU, not timed",
        )
        return PageHeader(
            kicker,
            "emulated",
            format.sanitize_line(record.summary),
            "bad" if record.sanitizer_findings else "undetermined",
        )
    if isinstance(record, SuiteRun):
        kicker = (format.sanitize_line(record.suite), f"on {format.machine_text(record.machine)}")
        return PageHeader(
            kicker, "verified", suite_run.suite_summary(record), "good" if record.outcomes else "undetermined"
        )
    if isinstance(record, CorpusReport):
        kicker = ("cheats and legitimate candidates", f"on {record.device}")
        return PageHeader(
            kicker, "judge check", corpus.corpus_summary(record), "bad" if record.wrong_outcomes else "good"
        )
    kicker = (format.machine_text(record), format.ceilings_text(record))
    return PageHeader(kicker, "ceilings", format.machine_summary(record), "memory-bound")
