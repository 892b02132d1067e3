"""One self-contained HTML page per record, and the same in short for a notebook."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup, escape

from kernelwright.core.corpus import CorpusReport
from kernelwright.core.document import document, encode
from kernelwright.core.emulation import Emulation
from kernelwright.core.ladder import Climb
from kernelwright.core.layout import LayoutAnswer
from kernelwright.core.machine_code import CodeDifference, MachineCode
from kernelwright.core.optimization import Optimization
from kernelwright.core.records import Bench, Diagnosis, Machine, Verdict
from kernelwright.core.suite_run import SuiteRun
from kernelwright.report import charts, corpora, format, grid, ladders, optimization, suite_run
from kernelwright.report.drawing import render
from kernelwright.report.roofline import left_out, roofline, rung_roofline
from kernelwright.report.terminal.sass import resources_text

Measured = Diagnosis | Verdict | Bench | Machine | Optimization
Shown = Measured | LayoutAnswer | Climb | MachineCode | CodeDifference | Emulation | SuiteRun | CorpusReport
MOST_ROWS = 24
MOST_ROWS_IN_A_NOTEBOOK = 12
MOST_PAGE_BYTES = 950_000
"""A page stays under 1 MB; a document that does not fit is left to `--json`."""
_VERBS = {
    Diagnosis: "why",
    Verdict: "verify",
    Bench: "bench",
    Machine: "machine",
    Optimization: "optimize",
    LayoutAnswer: "layout",
    Climb: "ladder",
    MachineCode: "sass",
    CodeDifference: "sass",
    Emulation: "why",
    SuiteRun: "suite",
    CorpusReport: "judge-check",
}
_BODIES: dict[type, str] = {
    CodeDifference: "difference",
    Emulation: "emulation",
    SuiteRun: "suite_run",
    CorpusReport: "corpus",
}
"""Where a verb answers with records of several kinds, or another has its name."""


@dataclass(frozen=True)
class Head:
    """What a page opens with: who and where, the verdict's word, the sentence, and the accent that goes with it."""

    kicker: tuple[str, ...]
    word: str
    sentence: str
    accent: str


def page(record: Shown, *, status: str = "ok", next: Sequence[str] = ()) -> str:
    """A whole page that needs no network, no script and no font.

    Args:
        record: what to draw.
        status: `ok` or `finding`, as in the document that `--json` prints; the page holds the same.
        next: what to do, as commands or sentences: the first section of the page, and in that document.
    Raises:
        TypeError: no page is known for such a record.
    """
    text = encode(document(_verb(record), record, status=status, next=next))
    values = {"compact": False, "limit": MOST_ROWS, "json_bytes": len(text.encode()), "next": _steps(record, next)}
    without = _render("page.html.j2", record, json="", **values)
    fits = len(without.encode()) + len(escape(text).encode()) <= MOST_PAGE_BYTES
    return _render("page.html.j2", record, json=text, **values) if fits else without


def html_fragment(record: Shown) -> str:
    """The short form for a notebook: sentence, next moves, bars, operators, with its own style sheet.

    Raises:
        TypeError: no page is known for such a record.
    """
    return _render("fragment.html.j2", record, compact=True, limit=MOST_ROWS_IN_A_NOTEBOOK, next=_steps(record))


def _verb(record: Shown) -> str:
    if type(record) not in _VERBS:
        raise TypeError(f"no page for a {type(record).__name__}")
    return _VERBS[type(record)]


def _steps(record: Shown, next: Sequence[str] = ()) -> list[str]:
    """What stands first on the page: the steps of the document, or those that the record itself holds."""
    return list(next) or ([move.what for move in record.moves] if isinstance(record, Emulation) else [])


def _drawn(record: Shown, machine: Machine, diagnosis: Diagnosis | None) -> Markup:
    return rung_roofline(record) if isinstance(record, Climb) else roofline(machine, diagnosis)


def _render(template: str, record: Shown, **values: Any) -> str:
    verb = _verb(record)
    machine = record if isinstance(record, Machine) else getattr(record, "machine", None)
    diagnosis = record if isinstance(record, Diagnosis) else getattr(record, "diagnosis", None)
    return str(
        render(
            template,
            record=record,
            verb=verb,
            body=f"{_BODIES.get(type(record), verb)}.html.j2",
            head=head(record),
            charts=charts,
            corpora=corpora,
            grid=grid,
            ladders=ladders,
            suite_run=suite_run,
            drawn=_drawn(record, machine, diagnosis) if machine and not values["compact"] else "",
            left_out=left_out(diagnosis) if diagnosis else 0,
            setting=format.machine_text(machine) if machine else "",
            **values,
        )
    )


def head(record: Shown) -> Head:
    """The opening of the page of a record."""
    if isinstance(record, Diagnosis):
        kicker = (format.program_text(record), format.setting_text(record))
        return Head(kicker, record.regime, format.sentence(record), record.regime)
    if isinstance(record, Verdict):
        kicker = (format.plain(record.candidate), f"for {format.plain(record.problem)}", f"on {record.device}")
        word, accent = ("accepted", "good") if record.accepted else ("rejected", "bad")
        return Head(kicker, word, format.verdict_sentence(record), accent)
    if isinstance(record, Bench):
        kicker = (format.plain(record.problem), f"on {format.machine_text(record.machine)}")
        word, accent = format.bench_word(record)
        return Head(kicker, word, format.bench_sentence(record), accent)
    if isinstance(record, Optimization):
        kicker = (format.plain(record.problem), optimization.setting_text(record))
        word, accent = optimization.said(record)
        return Head(kicker, word, optimization.sentence(record), accent)
    if isinstance(record, LayoutAnswer):
        kicker = (format.plain(record.expression), record.kind)
        return Head(kicker, "layout", format.plain(record.result), "undetermined")
    if isinstance(record, Climb):
        when = f"recorded {record.recorded}" if record.recorded else f"towards {record.peer}"
        kicker = (format.plain(record.ladder), when, f"on {format.machine_text(record.machine)}")
        return Head(kicker, "ladder", ladders.sentence(record), "compute-bound")
    if isinstance(record, MachineCode):
        kicker = (format.plain(record.kernel), format.plain(record.arch), *resources_text(record).split("   "))
        return Head(kicker, "machine code", format.plain(record.reading).partition(". ")[0], "undetermined")
    if isinstance(record, CodeDifference):
        kicker = (format.plain(record.before.kernel), format.plain(record.after.kernel))
        said = "what changed in the machine code" if record.changes else "no figure of the two differs"
        return Head(kicker, "difference", said, "undetermined")
    if isinstance(record, Emulation):
        kicker = (
            format.plain(record.candidate),
            f"for {format.plain(record.problem)}",
            "emulated on the CPU: no times",
        )
        return Head(kicker, "emulated", format.plain(record.sentence), "bad" if record.faults else "undetermined")
    if isinstance(record, SuiteRun):
        kicker = (format.plain(record.suite), f"on {format.machine_text(record.machine)}")
        return Head(kicker, "judged", suite_run.sentence(record), "good" if record.outcomes else "undetermined")
    if isinstance(record, CorpusReport):
        kicker = ("candidates that cheat, and honest ones", f"on {record.device}")
        return Head(kicker, "judged", corpora.sentence(record), "bad" if record.wrong else "good")
    kicker = (format.machine_text(record), format.ceilings_text(record))
    return Head(kicker, "ceilings", format.machine_sentence(record), "memory-bound")
