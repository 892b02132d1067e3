"""kw suite: folders of problems, with candidates for them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

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
from kernelwright.cli.runner import OutputOptions, resolve_device, run_command
from kernelwright.cli.steps import format_command
from kernelwright.core.suite_run import SuiteRun

app = typer.Typer(help="Judge folders of problems.", no_args_is_help=True, rich_markup_mode=None)
MAX_NEXT_STEPS = 5


@app.callback()
def main() -> None:
    """Judge folders of problems."""


@app.command("run")
def run(
    folder: Annotated[str, typer.Argument(help="A folder of problems.", metavar="DIR")],
    candidates: Annotated[
        str | None,
        typer.Option(
            "--candidates",
            help="The folder of what is judged, its files called like the problems; "
            "else the ModelNew in each problem's own file.",
            metavar="DIR",
        ),
    ] = None,
    baseline: Annotated[
        str, typer.Option("--baseline", help="What to time beside: eager, compile; none is empty.")
    ] = "eager,compile",
    workers: Annotated[int, typer.Option("--workers", help="Candidates judged beside each other.")] = 1,
    results: Annotated[
        str | None,
        typer.Option(
            "--results",
            help="JSON lines, one for each verdict and each timing. What is in there is not done "
            "again. Else NAME.results.jsonl here, after the folder.",
            metavar="FILE",
        ),
    ] = None,
    pairs: Annotated[int, typer.Option("--pairs", help="Fresh process pairs of a comparison, five at least.")] = 7,
    device: DeviceOption = "cpu",
    tolerance: ToleranceOption = None,
    policy: PolicyOption = "any",
    call_timeout_s: TimeOption = 60.0,
    build_timeout_s: BuildTimeOption = 300.0,
    json: JsonOption = False,
    html: HtmlOption = None,
    debug: DebugOption = False,
) -> int:
    """Who is right, and who is faster? Judges every candidate for a folder of problems and times those that are
    accepted. Stopped, or killed, it goes on where it was when it is asked again.

    Example: kw suite run KernelBench/level1 --candidates mine --workers 2
    """

    def call() -> SuiteRun:
        from kernelwright.evaluation.suite_run import SuiteOptions as Judging
        from kernelwright.evaluation.suite_run import run_suite

        manner = Judging(
            device=resolve_device(device),
            baselines=tuple(filter(None, baseline.split(","))),
            tolerance=parse_tolerance(tolerance),
            own_kernels=parse_policy(policy),
            call_timeout_s=call_timeout_s,
            build_timeout_s=build_timeout_s,
            pairs=pairs,
        )
        return run_suite(folder, candidates, results=results, workers=workers, options=manner)

    def finish(found: SuiteRun) -> tuple[str, list[str]]:
        wrong = [one for one in found.outcomes if one.error or not one.accepted]
        root, within = Path(folder), Path(candidates or folder)
        steps = [
            step
            for one in wrong[:MAX_NEXT_STEPS]
            for step in (
                format_command("verify", f"{root / one.problem}.py", str(within / one.candidate), device=device),
                f"fix {one.candidate}: {one.status_text}",
            )
        ]
        return ("finding" if wrong else "ok"), steps

    return run_command("suite", call, SuiteRun, OutputOptions(json, html, debug), finish)
