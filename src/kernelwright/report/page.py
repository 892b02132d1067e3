"""Self-contained HTML pages of records, and short forms for notebooks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup, escape

from kernelwright.core.bench import Bench
from kernelwright.core.corpus import CorpusReport
from kernelwright.core.diagnosis import Diagnosis
from kernelwright.core.document import build_document, encode
from kernelwright.core.emulation import Emulation
from kernelwright.core.ladder import LadderRun
from kernelwright.core.layout import LayoutEvaluation
from kernelwright.core.machine import Machine
from kernelwright.core.machine_code import CodeDifference, MachineCode
from kernelwright.core.optimization import Optimization
from kernelwright.core.suite_run import SuiteRun
from kernelwright.core.units import number_text
from kernelwright.core.verdict import Verdict
from kernelwright.report import (
    charts,
    corpus,
    format,
    grid,
    ladders,
    module_rows,
    optimization,
    optimization_headline,
    suite_run,
)
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


@dataclass(frozen=True)
class PageHeader:
    """The header of a page: context, status, summary and the accent colour."""

    context: tuple[str, ...]
    status_word: str
    summary: str
    accent: str


@dataclass(frozen=True)
class PageLayout:
    """How records of one type become a page: the verb of the document, the template of the body, the header."""

    verb: str
    template: str
    header: Callable[[Any], PageHeader]


def render_page(record: RenderableRecord, *, status: str = "ok", next: Sequence[str] = ()) -> str:
    """Render a page without scripts, fonts or network access.

    Args:
        record: the record to render.
        status: `ok` or `finding`, for the JSON document that the page includes.
        next: next steps, as commands or sentences: the first section of the page, and in the JSON document.
    Raises:
        TypeError: there is no page for this type of record.
    """
    text = encode(build_document(_layout_of(record).verb, record, status=status, next=next))
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


def _layout_of(record: RenderableRecord) -> PageLayout:
    if type(record) not in _LAYOUTS:
        raise TypeError(f"no page for a {type(record).__name__}")
    return _LAYOUTS[type(record)]


def _next_steps(record: RenderableRecord, next: Sequence[str] = ()) -> list[str]:
    """Return the steps for the first section of a page: `next`, or the recommendations of an emulation."""
    return list(next) or ([one.action for one in record.recommendations] if isinstance(record, Emulation) else [])


def _roofline_svg(record: RenderableRecord, machine: Machine, diagnosis: Diagnosis | None) -> Markup:
    return render_ladder_roofline(record) if isinstance(record, LadderRun) else render_roofline(machine, diagnosis)


def _render(template: str, record: RenderableRecord, **values: Any) -> str:
    layout = _layout_of(record)
    machine = record if isinstance(record, Machine) else getattr(record, "machine", None)
    diagnosis = record if isinstance(record, Diagnosis) else getattr(record, "diagnosis", None)
    return str(
        render_template(
            template,
            record=record,
            verb=layout.verb,
            body=f"{layout.template}.html.j2",
            head=page_header(record),
            charts=charts,
            corpus=corpus,
            grid=grid,
            ladders=ladders,
            module_rows=module_rows,
            optimization_headline=optimization_headline,
            suite_run=suite_run,
            roofline_svg=_roofline_svg(record, machine, diagnosis) if machine and not values["compact"] else "",
            num_unplaced=count_unplaced_operators(diagnosis) if diagnosis else 0,
            machine_name=format.machine_text(machine) if machine else "",
            **values,
        )
    )


def page_header(record: RenderableRecord) -> PageHeader:
    """Return the header of the page of a record."""
    return _layout_of(record).header(record)


def _diagnosis_header(record: Diagnosis) -> PageHeader:
    context = (format.program_text(record), format.setup_text(record))
    return PageHeader(context, record.regime, format.diagnosis_summary(record), record.regime)


def _verdict_header(record: Verdict) -> PageHeader:
    candidate, problem = format.sanitize_line(record.candidate), format.sanitize_line(record.problem)
    status, accent = ("accepted", "good") if record.accepted else ("rejected", "bad")
    return PageHeader(
        (candidate, f"for {problem}", f"on {record.device}"), status, format.verdict_summary(record), accent
    )


def _bench_header(record: Bench) -> PageHeader:
    context = (format.sanitize_line(record.problem), f"on {format.machine_text(record.machine)}")
    status, accent = format.bench_status(record)
    return PageHeader(context, status, format.bench_summary(record), accent)


def _machine_header(record: Machine) -> PageHeader:
    context = (format.machine_text(record), format.ceilings_text(record))
    return PageHeader(context, "ceilings", format.machine_summary(record), "memory-bound")


def _optimization_header(record: Optimization) -> PageHeader:
    context = (format.sanitize_line(record.problem), optimization.setup_text(record))
    status, accent = optimization_headline.headline_status(record)
    return PageHeader(context, status, optimization_headline.headline_text(record), accent)


def _layout_header(record: LayoutEvaluation) -> PageHeader:
    context = (format.sanitize_line(record.expression), record.kind)
    return PageHeader(context, "layout", format.sanitize_line(record.result), "undetermined")


def _ladder_header(record: LadderRun) -> PageHeader:
    when = f"recorded {record.recorded_date}" if record.recorded_date else f"baseline {record.baseline}"
    context = (format.sanitize_line(record.ladder), when, f"on {format.machine_text(record.machine)}")
    return PageHeader(context, "ladder", ladders.ladder_summary(record), "compute-bound")


def _machine_code_header(record: MachineCode) -> PageHeader:
    kernel, arch = format.sanitize_line(record.kernel), format.sanitize_line(record.arch)
    summary = format.sanitize_line(record.summary).partition(". ")[0]
    return PageHeader((kernel, arch, *resources_text(record).split("   ")), "machine code", summary, "undetermined")


def _difference_header(record: CodeDifference) -> PageHeader:
    context = (format.sanitize_line(record.before.kernel), format.sanitize_line(record.after.kernel))
    changes = number_text(len(record.changes), "difference") if record.changes else "no differences"
    return PageHeader(context, "difference", f"{changes} in the machine code", "undetermined")


def _emulation_header(record: Emulation) -> PageHeader:
    candidate, problem = format.sanitize_line(record.candidate), format.sanitize_line(record.problem)
    accent = "bad" if record.sanitizer_findings else "undetermined"
    context = (candidate, f"for {problem}", "emulated on the CPU, not timed")
    return PageHeader(context, "emulated", format.sanitize_line(record.summary), accent)


def _suite_run_header(record: SuiteRun) -> PageHeader:
    context = (format.sanitize_line(record.suite), f"on {format.machine_text(record.machine)}")
    return PageHeader(
        context, "verified", suite_run.suite_summary(record), "good" if record.outcomes else "undetermined"
    )


def _corpus_header(record: CorpusReport) -> PageHeader:
    context = ("cheats and legitimate candidates", f"on {record.device}")
    return PageHeader(context, "judge check", corpus.corpus_summary(record), "bad" if record.wrong_outcomes else "good")


_LAYOUTS: dict[type, PageLayout] = {
    Diagnosis: PageLayout("why", "why", _diagnosis_header),
    Verdict: PageLayout("verify", "verify", _verdict_header),
    Bench: PageLayout("bench", "bench", _bench_header),
    Machine: PageLayout("machine", "machine", _machine_header),
    Optimization: PageLayout("optimize", "optimize", _optimization_header),
    LayoutEvaluation: PageLayout("layout", "layout", _layout_header),
    LadderRun: PageLayout("ladder", "ladder", _ladder_header),
    MachineCode: PageLayout("sass", "sass", _machine_code_header),
    CodeDifference: PageLayout("sass", "difference", _difference_header),
    Emulation: PageLayout("why", "emulation", _emulation_header),
    SuiteRun: PageLayout("suite", "suite_run", _suite_run_header),
    CorpusReport: PageLayout("judge-check", "corpus", _corpus_header),
}
