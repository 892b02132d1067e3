"""kw evidence: records that tie a measured result to the sources it was built from."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from kernelwright.cli.answer import Manner, answer, choose_device
from kernelwright.cli.options import DebugOption, DeviceOption, JsonOption
from kernelwright.cli.steps import command
from kernelwright.core.errors import UsageError
from kernelwright.core.optimization import SuiteRecord
from kernelwright.core.records import EvidenceReport

KINDS = ("regimes", "optimize", "fragments", "ladder", "kernel", "judge")
app = typer.Typer(help="Record and check evidence.", no_args_is_help=True, rich_markup_mode=None)


@app.command("record")
def record(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            help="Examples, programs of the suite (FILE:FUNCTION, FILE), ladders or kernels, by name; else all."
        ),
    ] = None,
    kind: Annotated[
        str,
        typer.Option(
            "--kind",
            help="What examples wait on, what the suite gains, what instructions say of layouts, climbs, kernels, or "
            "what the judge says of its corpus.",
            metavar="|".join(KINDS),
        ),
    ] = "regimes",
    suite: Annotated[
        str | None, typer.Option("--suite", help="A folder of programs or problem files in place of examples/suite.")
    ] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Do programs of the suite again that are done.")] = False,
    rounds: Annotated[int, typer.Option("--rounds", help="How often to judge the corpus.")] = 1,
    workers: Annotated[int, typer.Option("--workers", help="Samples of the corpus judged beside each other.")] = 1,
    device: DeviceOption = "cpu",
    folder: Annotated[str, typer.Option("--folder", help="Where the records are kept.")] = "evidence",
    json: JsonOption = False,
    debug: DebugOption = False,
) -> int:
    """Run the examples on this machine and write what was seen, with the hash of every source behind it.

    Example: kw evidence record softmax --device cuda

    Example: kw evidence record --kind optimize --device cuda

    Example: kw evidence record --kind fragments

    Example: kw evidence record gemm_cpu --kind ladder

    Example: kw evidence record rms_norm --kind kernel

    Example: kw evidence record --kind judge --rounds 20 --workers 2
    """

    def examples() -> EvidenceReport:
        from kernelwright.judge import evidence

        if kind not in KINDS:
            raise UsageError(f"no records of kind {kind!r}", next=f"--kind {' or --kind '.join(KINDS)}")
        if kind == "fragments":
            return evidence.record_fragments(folder=folder)
        if kind == "kernel":
            return evidence.record_kernels(names or [], folder=folder)
        if kind == "ladder":
            return evidence.record_ladders(names or [], device=choose_device(device), folder=folder)
        if kind == "judge":
            on = choose_device(device)
            return evidence.record_corpus(device=on, rounds=rounds, workers=workers, folder=folder)
        return evidence.record(names or [], device=choose_device(device), folder=folder)

    def programs() -> SuiteRecord:
        from kernelwright.optimize.evidence import record

        return record(names or [], device=choose_device(device), folder=folder, suite=suite, fresh=fresh)

    if kind == "optimize":
        return answer(
            "evidence", programs, SuiteRecord, Manner(json=json, debug=debug), partial(_finish_suite, suite, device)
        )
    return answer("evidence", examples, EvidenceReport, Manner(json=json, debug=debug), _finish)


@app.command("check")
def check(
    folder: Annotated[str, typer.Option("--folder", help="Where the records are kept.")] = "evidence",
    json: JsonOption = False,
    debug: DebugOption = False,
) -> int:
    """Say which records no longer match the sources they were made from.

    Example: kw evidence check
    """

    def deed() -> EvidenceReport:
        from kernelwright.judge.evidence import check

        return check(folder)

    return answer("evidence", deed, EvidenceReport, Manner(json=json, debug=debug), _finish)


@app.command("table")
def table(
    folder: Annotated[str, typer.Option("--folder", help="Where the records are kept.")] = "evidence",
    kind: Annotated[
        str | None,
        typer.Option("--kind", help="Only the table of this kind.", metavar="|".join(KINDS)),
    ] = None,
    into: Annotated[
        str | None, typer.Option("--into", help="The page that holds it, else the one in docs/.", metavar="FILE")
    ] = None,
    json: JsonOption = False,
    debug: DebugOption = False,
) -> int:
    """Write the tables of all records into their pages, below the line that says so; --into alone is regimes.

    Example: kw evidence table
    """

    def deed() -> EvidenceReport:
        from kernelwright.judge.evidence import PAGES, check, write_table

        if kind not in (None, *KINDS):
            raise UsageError(f"no records of kind {kind!r}", next=f"--kind {' or --kind '.join(KINDS)}")
        found = check(folder)
        for one in [kind or "regimes"] if into else [one for one in PAGES if one.startswith(kind or "")]:
            write_table(folder, into or PAGES[one], one)
        return found

    return answer("evidence", deed, EvidenceReport, Manner(json=json, debug=debug), _finish)


def _finish(found: EvidenceReport) -> tuple[str, list[str]]:
    if not found.stale:
        return "ok", []
    stale = {kind for kind in KINDS for line in found.stale if f"/{kind}/" in line.partition(": ")[0]}
    return "finding", [f"kw evidence record --kind {kind}" for kind in KINDS if kind in stale]


def _finish_suite(suite: str | None, device: str, found: SuiteRecord) -> tuple[str, list[str]]:
    rejected = [row.name for row in found.rows if not row.accepted]
    if rejected:
        file, colon, function = rejected[0].partition(":")
        return "finding", [
            command("optimize", f"{suite or 'examples/suite'}/{file}.py{colon}{function}", device=device)
        ]
    return "ok", ["kw evidence table"]
