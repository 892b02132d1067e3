"""kw suite: verify and time the candidates of a folder of problems."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from kernelwright import commands
from kernelwright.cli.options import (
    BuildTimeOption,
    DebugOption,
    DeviceOption,
    HtmlOption,
    JsonOption,
    PolicyOption,
    TimeOption,
    ToleranceOption,
    parse_policy,
    parse_tolerance,
)
from kernelwright.cli.runner import OutputOptions, run_command
from kernelwright.core.suite_run import SuiteRun

app = typer.Typer(help="Verify and time folders of problems.", no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def main() -> None:
    """Verify and time folders of problems."""


@app.command("run")
def run(
    folder: Annotated[str, typer.Argument(help="A folder of problems.", metavar="DIR")],
    candidates: Annotated[
        str | None,
        typer.Option(
            "--candidates",
            help="The folder of candidates, files named like the problems; "
            "by default the ModelNew in each problem's own file.",
            metavar="DIR",
        ),
    ] = None,
    baseline: Annotated[
        str, typer.Option("--baseline", help="Baselines: eager, compile; empty for none.")
    ] = "eager,compile",
    workers: Annotated[int, typer.Option("--workers", help="Candidates verified at the same time.")] = 1,
    results: Annotated[
        str | None,
        typer.Option(
            "--results",
            help="JSON lines, one for each verdict and each timing; results in it are reused. "
            "By default NAME.results.jsonl in the current folder.",
            metavar="FILE",
        ),
    ] = None,
    pairs: Annotated[int, typer.Option("--pairs", help="Fresh process pairs of a comparison, at least five.")] = 7,
    device: DeviceOption = "cpu",
    tolerance: ToleranceOption = None,
    policy: PolicyOption = "any",
    call_timeout_s: TimeOption = 60.0,
    build_timeout_s: BuildTimeOption = 300.0,
    json: JsonOption = False,
    html: HtmlOption = None,
    debug: DebugOption = False,
) -> int:
    """Which candidates are right, and which are faster? Verifies every candidate for a folder of problems and times
    those that are accepted. Run again after an interruption, it continues where it stopped.

    Example: kw suite run KernelBench/level1 --candidates mine --workers 2
    """
    command = partial(
        commands.suite_run,
        folder,
        candidates,
        baselines=tuple(filter(None, baseline.split(","))),
        workers=workers,
        results=results,
        pairs=pairs,
        device=device,
        tolerance=parse_tolerance(tolerance),
        own_kernels=parse_policy(policy),
        call_timeout_s=call_timeout_s,
        build_timeout_s=build_timeout_s,
    )
    return run_command("suite", command, SuiteRun, OutputOptions(json, html, debug))
