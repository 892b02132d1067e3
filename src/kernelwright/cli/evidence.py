"""kw evidence: measured rows, each tied to the code that ran."""

from __future__ import annotations

import math
from functools import partial
from typing import Annotated

import typer

from kernelwright import commands
from kernelwright.cli.options import DebugOption, DeviceOption, JsonOption
from kernelwright.cli.runner import OutputOptions, run_command
from kernelwright.commands.evidence import KINDS, KINDS_WITH_COMMANDS
from kernelwright.core.evidence import EvidenceRun, EvidenceStatus

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
            help="Examples, programs (FILE:FUNCTION, FILE), ladders, kernels, samples, problems (level2/41) or models "
            "(mlp, mlp/large), by name; else all."
        ),
    ] = None,
    kind: Annotated[
        str,
        typer.Option(
            "--kind",
            help="Diagnoses of the examples, programs of kw optimize, layouts on the hardware, ladders, kernels, "
            "the judge's verdicts on its corpus, kw optimize on a sample of KernelBench, or torch.compile with our "
            "backend on the example models.",
            metavar="|".join(KINDS),
        ),
    ] = "diagnosis",
    suite: Annotated[
        str,
        typer.Option(
            "--suite",
            help="A folder of programs or problem files in place of examples/suite; for kernelbench, that of its "
            "problems.",
        ),
    ] = "",
    fresh: Annotated[bool, typer.Option("--fresh", help="Measure programs again that have a current row.")] = False,
    rounds: Annotated[int, typer.Option("--rounds", help="How often to verify the corpus.", min=1)] = 1,
    workers: Annotated[int, typer.Option("--workers", help="Samples verified at the same time.", min=1)] = 1,
    limit: Annotated[
        float | None,
        typer.Option(
            "--limit",
            help="Seconds for the problems of KernelBench or the models of backend; the next call continues with those "
            "without a row.",
            metavar="SECONDS",
            min=1.0,
        ),
    ] = None,
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

    Example: kw evidence record --kind kernelbench --suite KernelBench --device cuda --limit 560

    Example: kw evidence record mlp tiny_vit/large --kind backend --device cuda
    """
    command = partial(
        commands.evidence_record,
        kind,
        names or (),
        suite=suite,
        fresh=fresh,
        rounds=rounds,
        workers=workers,
        limit_s=limit or math.inf,
        device=device,
        folder=folder,
    )
    output = OutputOptions(json=json, debug=debug, limit_memory=kind not in KINDS_WITH_COMMANDS)
    return run_command("evidence", command, EvidenceRun, output)


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
    """Show which rows are current, superseded by other code, or measured by an older instrument; nothing is measured.

    Example: kw evidence status

    Example: kw evidence status --kind kernel --update
    """
    command = partial(commands.evidence_status, kind, update=update, folder=folder)
    return run_command("evidence", command, EvidenceStatus, OutputOptions(json=json, debug=debug))


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
    command = partial(commands.evidence_refresh, kind, device=device, folder=folder)
    return run_command("evidence", command, EvidenceRun, OutputOptions(json=json, debug=debug))


@app.command("table")
def table(
    kind: KindOption = "",
    into: Annotated[
        str, typer.Option("--into", help="The page that holds the table, in place of the usual one.", metavar="FILE")
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
    command = partial(commands.evidence_table, kind, into=into, check=check, folder=folder)
    return run_command("evidence", command, EvidenceRun, OutputOptions(json=json, debug=debug))


@app.command("instrument")
def instrument(
    name: Annotated[str, typer.Argument(help="The instrument whose sources changed.")],
    same: Annotated[str, typer.Option("--same", help="Why it still measures the same.", metavar="WHY")] = "",
    new: Annotated[str, typer.Option("--new", help="What it measures differently.", metavar="WHAT")] = "",
    bound: Annotated[str, typer.Option("--bound", help="By how much at most, with --new.", metavar="SIZE")] = "",
    json: JsonOption = False,
    debug: DebugOption = False,
) -> int:
    """Note that changed sources of an instrument measure the same, or give it a new version.

    Example: kw evidence instrument "graph clock" --same "renamed a variable"
    """
    command = partial(commands.evidence_instrument, name, same=same, new=new, bound=bound)
    return run_command("evidence", command, EvidenceRun, OutputOptions(json=json, debug=debug))
