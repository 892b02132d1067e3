"""kw evidence: measured rows, each tied to the code that ran."""

from __future__ import annotations

from typing import Annotated

import typer

from kernelwright.cli.options import DebugOption, DeviceOption, JsonOption
from kernelwright.cli.runner import OutputOptions, resolve_device, run_command
from kernelwright.core.errors import UsageError
from kernelwright.core.evidence import EvidenceRun, EvidenceStatus

KINDS = ("diagnosis", "optimize", "layout", "ladder", "kernel", "redteam")
app = typer.Typer(
    help="Measure rows of evidence and see which are current.", no_args_is_help=True, rich_markup_mode=None
)
FolderOption = Annotated[str, typer.Option("--folder", help="Where the rows are kept.")]
KindOption = Annotated[str, typer.Option("--kind", help="Only rows of this kind.", metavar="|".join(KINDS))]


@app.command("record")
def record(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            help="Examples, programs (FILE:FUNCTION, FILE), ladders, kernels or samples, by name; else all."
        ),
    ] = None,
    kind: Annotated[
        str,
        typer.Option(
            "--kind",
            help="What examples wait on, what kw optimize gains, what instructions say of layouts, ladders, kernels, "
            "or what the judge says of its corpus.",
            metavar="|".join(KINDS),
        ),
    ] = "diagnosis",
    suite: Annotated[
        str, typer.Option("--suite", help="A folder of programs or problem files in place of examples/suite.")
    ] = "",
    fresh: Annotated[bool, typer.Option("--fresh", help="Measure programs again that have a current row.")] = False,
    rounds: Annotated[int, typer.Option("--rounds", help="How often to judge the corpus.", min=1)] = 1,
    workers: Annotated[int, typer.Option("--workers", help="Samples judged beside each other.", min=1)] = 1,
    device: DeviceOption = "cpu",
    folder: FolderOption = "evidence",
    json: JsonOption = False,
    debug: DebugOption = False,
) -> int:
    """Measure on this machine and write one row for each workload, with the digest of the code that ran.

    Example: kw evidence record softmax --device cuda

    Example: kw evidence record --kind optimize --device cuda

    Example: kw evidence record rms_norm --kind kernel --device cuda

    Example: kw evidence record --kind redteam --rounds 20 --workers 2
    """

    def call() -> EvidenceRun:
        from kernelwright.evidence.kinds import MeasureRequest
        from kernelwright.evidence.recording import record_rows

        _require_kind(kind)
        request = MeasureRequest(resolve_device(device), folder, tuple(names or ()), suite, fresh, rounds, workers)
        return record_rows(kind, request)

    return run_command("evidence", call, EvidenceRun, OutputOptions(json=json, debug=debug), _finish_run)


@app.command("status")
def status(
    kind: KindOption = "",
    update: Annotated[
        bool, typer.Option("--update", help="Write today's sources into rows whose code is the same.")
    ] = False,
    folder: FolderOption = "evidence",
    json: JsonOption = False,
    debug: DebugOption = False,
) -> int:
    """Say which rows are current, superseded by other code, or measured by an older instrument; nothing is measured.

    Example: kw evidence status

    Example: kw evidence status --kind kernel --update
    """

    def call() -> EvidenceStatus:
        from kernelwright.evidence.status import compute_status

        _require_kind(kind or KINDS[0])
        return compute_status(folder, update=update, kind=kind)

    return run_command("evidence", call, EvidenceStatus, OutputOptions(json=json, debug=debug), _finish)


@app.command("refresh")
def refresh(
    kind: KindOption = "",
    device: DeviceOption = "cpu",
    folder: FolderOption = "evidence",
    json: JsonOption = False,
    debug: DebugOption = False,
) -> int:
    """Measure again the rows of this machine that are not current.

    Example: kw evidence refresh --device cuda
    """

    def call() -> EvidenceRun:
        from kernelwright.evidence.kinds import MeasureRequest
        from kernelwright.evidence.recording import refresh_rows

        _require_kind(kind or KINDS[0])
        return refresh_rows(MeasureRequest(resolve_device(device), folder), kind=kind)

    return run_command("evidence", call, EvidenceRun, OutputOptions(json=json, debug=debug), _finish_run)


@app.command("table")
def table(
    kind: KindOption = "",
    into: Annotated[
        str, typer.Option("--into", help="The page that holds it, else the usual one.", metavar="FILE")
    ] = "",
    check: Annotated[
        bool, typer.Option("--check", help="Write nothing; fail where README.md quotes what is not current.")
    ] = False,
    folder: FolderOption = "evidence",
    json: JsonOption = False,
    debug: DebugOption = False,
) -> int:
    """Write the tables of all rows into their pages, each row with its state and commit.

    Example: kw evidence table

    Example: kw evidence table --check
    """

    def call() -> EvidenceRun:
        from kernelwright.evidence.tables import PAGES, outdated_tables, write_tables

        _require_kind(kind or KINDS[0])
        if check:
            return EvidenceRun(written=(), failed=tuple(f"README.md: {one}" for one in outdated_tables(folder)))
        wanted = [kind or KINDS[0]] if into else [one for one in PAGES if one.startswith(kind)]
        return EvidenceRun(written=tuple(write_tables(folder, wanted, into)))

    return run_command("evidence", call, EvidenceRun, OutputOptions(json=json, debug=debug), _finish_table)


@app.command("instrument")
def instrument(
    name: Annotated[str, typer.Argument(help="The instrument whose sources changed.")],
    same: Annotated[str, typer.Option("--same", help="Why it still measures the same.", metavar="WHY")] = "",
    new: Annotated[str, typer.Option("--new", help="What it measures otherwise now.", metavar="WHAT")] = "",
    bound: Annotated[str, typer.Option("--bound", help="By how much at most, with --new.", metavar="SIZE")] = "",
    json: JsonOption = False,
    debug: DebugOption = False,
) -> int:
    """Note that changed sources of an instrument measure the same, or give it a new version.

    Example: kw evidence instrument "graph clock" --same "renamed a variable"
    """

    def call() -> EvidenceRun:
        from kernelwright.evidence.instruments import record_change

        if bool(same) == bool(new):
            raise UsageError("say either --same WHY or --new WHAT", next="kw evidence instrument --help")
        return EvidenceRun(written=(f"{name} {record_change(name, same=same, new=new, bound=bound).version}",))

    return run_command("evidence", call, EvidenceRun, OutputOptions(json=json, debug=debug), lambda _: ("ok", []))


def _require_kind(kind: str) -> None:
    if kind not in KINDS:
        raise UsageError(f"no rows of kind {kind!r}", next=f"--kind {' or --kind '.join(KINDS)}")


def _finish(found: EvidenceStatus) -> tuple[str, list[str]]:
    stale = {row.kind for row in found.rows if row.state in ("superseded", "older instrument")}
    return (
        ("finding", [f"kw evidence refresh --kind {kind}" for kind in KINDS if kind in stale]) if stale else ("ok", [])
    )


def _finish_run(found: EvidenceRun) -> tuple[str, list[str]]:
    return ("finding" if found.failed else "ok"), ["kw evidence table"]


def _finish_table(found: EvidenceRun) -> tuple[str, list[str]]:
    return ("finding", ["kw evidence table"]) if found.failed else ("ok", [])
