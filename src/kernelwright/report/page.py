"""One self-contained HTML page per record, and the same in short for a notebook."""

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
"""A page stays under 1 MB; a document that does not fit is left to `--json`."""
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
"""Where a verb answers with records of several kinds, or another has its name."""


@dataclass(frozen=True)
class PageHeader:
    """What a page opens with: who and where, the verdict's word, the sentence, and the accent that goes with it."""

    context: tuple[str, ...]
    status_word: str
    summary: str
    accent: str


def render_page(record: RenderableRecord, *, status: str = "ok", next: Sequence[str] = ()) -> str:
    """A whole page that needs no network, no script and no font.

    Args:
        record: what to draw.
        status: `ok` or `finding`, as in the document that `--json` prints; the page holds the same.
        next: what to do, as commands or sentences: the first section of the page, and in that document.
    Raises:
        TypeError: no page is known for such a record.
    """
    text = encode(build_document(_verb_of(record), record, status=status, next=next))
    values = {"compact": False, "limit": MAX_ROWS, "json_bytes": len(text.encode()), "next": _next_steps(record, next)}
    without = _render("page.html.j2", record, json="", **values)
    fits = len(without.encode()) + len(escape(text).encode()) <= MAX_PAGE_BYTES
    return _render("page.html.j2", record, json=text, **values) if fits else without


def render_fragment(record: RenderableRecord) -> str:
    """The short form for a notebook: sentence, next moves, bars, operators, with its own style sheet.

    Raises:
        TypeError: no page is known for such a record.
    """
    return _render("fragment.html.j2", record, compact=True, limit=MAX_NOTEBOOK_ROWS, next=_next_steps(record))


def _verb_of(record: RenderableRecord) -> str:
    if type(record) not in _VERBS:
        raise TypeError(f"no page for a {type(record).__name__}")
    return _VERBS[type(record)]


def _next_steps(record: RenderableRecord, next: Sequence[str] = ()) -> list[str]:
    """What stands first on the page: the steps of the document, or those that the record itself holds."""
    return list(next) or ([move.action for move in record.recommendations] if isinstance(record, Emulation) else [])


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
            corpora=corpus,
            grid=grid,
            ladders=ladders,
            suite_run=suite_run,
            drawn=_roofline_svg(record, machine, diagnosis) if machine and not values["compact"] else "",
            left_out=count_unplaced_operators(diagnosis) if diagnosis else 0,
            setting=format.machine_text(machine) if machine else "",
            **values,
        )
    )


def page_header(record: RenderableRecord) -> PageHeader:
    """The opening of the page of a record."""
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
        when = f"recorded {record.recorded_date}" if record.recorded_date else f"towards {record.baseline}"
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
        said = "what changed in the machine code" if record.changes else "no figure of the two differs"
        return PageHeader(kicker, "difference", said, "undetermined")
    if isinstance(record, Emulation):
        kicker = (
            format.sanitize_line(record.candidate),
            f"for {format.sanitize_line(record.problem)}",
            "emulated on the CPU: no times",
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
            kicker, "judged", suite_run.suite_summary(record), "good" if record.outcomes else "undetermined"
        )
    if isinstance(record, CorpusReport):
        kicker = ("candidates that cheat, and honest ones", f"on {record.device}")
        return PageHeader(kicker, "judged", corpus.corpus_summary(record), "bad" if record.wrong_outcomes else "good")
    kicker = (format.machine_text(record), format.ceilings_text(record))
    return PageHeader(kicker, "ceilings", format.machine_summary(record), "memory-bound")
