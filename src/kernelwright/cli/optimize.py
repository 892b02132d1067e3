"""kw optimize: write a faster version of a program, verified and in one file."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from kernelwright import commands
from kernelwright.cli.options import DebugOption, DeviceOption, HtmlOption, JsonOption
from kernelwright.cli.runner import OutputOptions, run_command
from kernelwright.core.errors import UsageError
from kernelwright.core.optimization import DEFAULT_BUDGET_S, Optimization


def optimize(
    problem: Annotated[str, typer.Argument(help="A problem: FILE, FILE:FUNCTION or MODULE:FUNCTION.")],
    out: Annotated[
        str | None,
        typer.Option("--out", help="What to write; by default NAME_optimized.py next to the problem.", metavar="FILE"),
    ] = None,
    device: DeviceOption = "cpu",
    baseline: Annotated[
        str, typer.Option("--baseline", help="Baselines that are timed and may win: eager, compile.")
    ] = "eager,compile",
    budget: Annotated[
        float | None,
        typer.Option(
            "--budget",
            help="Seconds for everything, compilation included; by default 60 on a GPU, 90 on a CPU.",
            metavar="SECONDS",
            min=1.0,
        ),
    ] = None,
    precision: Annotated[
        str | None,
        typer.Option(
            "--precision",
            help="Let the operands of FP32 products be rounded; by default they keep the precision of the program.",
            metavar="tf32|bf16",
        ),
    ] = None,
    train: Annotated[bool, typer.Option("--train", help="Also generate the backward pass.")] = False,
    show: Annotated[
        str | None,
        typer.Option(
            "--show",
            help="Stop at the plan and show which regions would become kernels: the largest, or all.",
            metavar="regions|all",
        ),
    ] = None,
    without: Annotated[
        list[str] | None,
        typer.Option("--without", help="Do not apply this rewrite of the program; repeatable.", metavar="NAME"),
    ] = None,
    rewrite_degenerate: Annotated[
        bool,
        typer.Option(
            "--rewrite-degenerate",
            help="Replace results that do not depend on the inputs, as long as these are finite, by constants.",
        ),
    ] = False,
    json: JsonOption = False,
    html: HtmlOption = None,
    debug: DebugOption = False,
) -> int:
    """Write faster code for this program: fuse, generate kernels, tune, verify, time, and write one file.

    Example: kw optimize examples/add_scale_bias_relu.py --html optimized.html
    """
    if show not in (None, "regions", "all"):
        raise UsageError(f"--show {show!r}: there are regions and all", next="--show regions")
    shown_budget_s = budget or DEFAULT_BUDGET_S.get(device, DEFAULT_BUDGET_S["cpu"])
    command = partial(
        commands.optimize,
        problem,
        out,
        device=device,
        baselines=baseline.split(","),
        train=train,
        plan_only=show is not None,
        budget_s=budget,
        precision=precision,
        without=without or (),
        rewrite_degenerate=rewrite_degenerate,
    )
    output = OutputOptions(json, html, debug, full=show == "all", budget_s=None if show else shown_budget_s)
    return run_command("optimize", command, Optimization, output)
