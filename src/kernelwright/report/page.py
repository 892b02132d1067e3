"""One self-contained HTML page per record, and the same in short for a notebook."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kernelwright.core.document import document, encode
from kernelwright.core.records import Bench, Diagnosis, Machine, Verdict
from kernelwright.report import charts, words
from kernelwright.report.drawing import render
from kernelwright.report.roofline import left_out, roofline

Shown = Diagnosis | Verdict | Bench | Machine
MOST_ROWS = 24
MOST_ROWS_IN_A_NOTEBOOK = 12
MOST_JSON_BYTES = 600_000
"""A page stays under 1 MB; a larger document is left to `--json`."""
_VERBS = {Diagnosis: "why", Verdict: "verify", Bench: "bench", Machine: "machine"}


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
        next: what to do, as commands, in that document.
    Raises:
        TypeError: no page is known for such a record.
    """
    text = encode(document(_verb(record), record, status=status, next=next))
    size_bytes = len(text.encode())
    kept = text if size_bytes <= MOST_JSON_BYTES else ""
    return _render("page.html.j2", record, compact=False, limit=MOST_ROWS, json=kept, json_bytes=size_bytes)


def html_fragment(record: Shown) -> str:
    """The short form for a notebook: sentence, bars, operators, next moves, with its own style sheet.

    Raises:
        TypeError: no page is known for such a record.
    """
    return _render("fragment.html.j2", record, compact=True, limit=MOST_ROWS_IN_A_NOTEBOOK)


def _verb(record: Shown) -> str:
    if type(record) not in _VERBS:
        raise TypeError(f"no page for a {type(record).__name__}")
    return _VERBS[type(record)]


def _render(template: str, record: Shown, **values: Any) -> str:
    verb = _verb(record)
    machine = record if isinstance(record, Machine) else getattr(record, "machine", None)
    diagnosis = record if isinstance(record, Diagnosis) else None
    return str(
        render(
            template,
            record=record,
            verb=verb,
            body=f"{verb}.html.j2",
            head=head(record),
            charts=charts,
            drawn=roofline(machine, diagnosis) if machine and not values["compact"] else "",
            left_out=left_out(diagnosis) if diagnosis else 0,
            setting=words.machine_text(machine) if machine else "",
            **values,
        )
    )


def head(record: Shown) -> Head:
    """The opening of the page of a record."""
    if isinstance(record, Diagnosis):
        kicker = (words.program_text(record), words.setting_text(record))
        return Head(kicker, record.regime, words.sentence(record), record.regime)
    if isinstance(record, Verdict):
        kicker = (words.plain(record.candidate), f"for {words.plain(record.problem)}", f"on {record.device}")
        word, accent = ("accepted", "good") if record.accepted else ("rejected", "bad")
        return Head(kicker, word, words.verdict_sentence(record), accent)
    if isinstance(record, Bench):
        kicker = (words.plain(record.problem), f"on {words.machine_text(record.machine)}")
        word, accent = _outcome(record)
        return Head(kicker, word, words.bench_sentence(record), accent)
    kicker = (words.machine_text(record), words.ceilings_text(record))
    return Head(kicker, "ceilings", words.machine_sentence(record), "memory-bound")


def _outcome(bench: Bench) -> tuple[str, str]:
    """The word of a bench and its accent: the first comparison's, or that nothing was left to time."""
    if bench.comparisons:
        verdict = bench.comparisons[0].verdict
        return verdict, verdict
    return ("rejected", "bad") if words.rejected(bench) and not bench.arms else ("timed", "SAME")
