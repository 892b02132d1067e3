"""kw evidence: records that tie a measured result to the sources it was built from."""

from __future__ import annotations

from typing import Annotated

import typer

from kernelwright.cli.answer import Manner, answer, choose_device
from kernelwright.cli.options import DebugOption, DeviceOption, JsonOption
from kernelwright.core.records import EvidenceReport

app = typer.Typer(help="Record and check evidence.", no_args_is_help=True, rich_markup_mode=None)


@app.command("record")
def record(
    names: Annotated[list[str] | None, typer.Argument(help="Examples by name; all when none is given.")] = None,
    device: DeviceOption = "cpu",
    folder: Annotated[str, typer.Option("--folder", help="Where the records are kept.")] = "evidence",
    json: JsonOption = False,
    debug: DebugOption = False,
) -> int:
    """Run the examples on this machine and write what was seen, with the hash of every source behind it.

    Example: kw evidence record softmax --device cuda
    """

    def deed() -> EvidenceReport:
        from kernelwright.judge.evidence import record

        return record(names or [], device=choose_device(device), folder=folder)

    return answer("evidence", deed, EvidenceReport, Manner(json=json, debug=debug), _finish)


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
    into: Annotated[
        str, typer.Option("--into", help="The page that holds the table.", metavar="FILE")
    ] = "docs/regimes.md",
    json: JsonOption = False,
    debug: DebugOption = False,
) -> int:
    """Write the table of all records into its page, below the line that says so.

    Example: kw evidence table
    """

    def deed() -> EvidenceReport:
        from kernelwright.judge.evidence import check, write_table

        found = check(folder)
        write_table(folder, into)
        return found

    return answer("evidence", deed, EvidenceReport, Manner(json=json, debug=debug), _finish)


def _finish(found: EvidenceReport) -> tuple[str, list[str]]:
    return ("finding", ["kw evidence record"]) if found.stale else ("ok", [])
