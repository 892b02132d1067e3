"""kw optimize: hand over a slow program, get back faster code that is proved and that you own."""

from __future__ import annotations

from typing import Annotated

import typer

from kernelwright.cli.options import DebugOption, DeviceOption, HtmlOption, JsonOption
from kernelwright.cli.runner import OutputOptions, resolve_device, run_command
from kernelwright.cli.steps import format_command
from kernelwright.core.errors import DeviceError, UsageError
from kernelwright.core.optimization import Optimization


def optimize(
    problem: Annotated[str, typer.Argument(help="A problem: FILE, FILE:FUNCTION or MODULE:FUNCTION.")],
    out: Annotated[
        str | None,
        typer.Option("--out", help="What to write; else NAME_optimized.py beside the problem.", metavar="FILE"),
    ] = None,
    device: DeviceOption = "cpu",
    baseline: Annotated[
        str, typer.Option("--baseline", help="What competes and is compared with: eager, compile.")
    ] = "eager,compile",
    train: Annotated[bool, typer.Option("--train", help="Give the kernels their gradients too.")] = False,
    show: Annotated[
        str | None,
        typer.Option("--show", help="Stop at the plan: what would become kernels.", metavar="regions"),
    ] = None,
    json: JsonOption = False,
    html: HtmlOption = None,
    debug: DebugOption = False,
) -> int:
    """Write faster code for this program: find what to fuse, generate kernels, tune, prove, time, leave one file.

    Example: kw optimize examples/add_scale_bias_relu.py --html optimized.html
    """

    def call() -> Optimization:
        from kernelwright.compiler import optimize_file

        if show not in (None, "regions"):
            raise UsageError(f"--show {show!r}", next="--show regions")
        where = resolve_device(device)
        options = {"baselines": baseline.split(","), "train": train, "plan_only": show == "regions"}
        try:
            return optimize_file(problem, out, device=where, **options)
        except DeviceError as fault:
            raise DeviceError(fault.message, next="--device cpu") from fault

    def finish(found: Optimization) -> tuple[str, list[str]]:
        if found.verdict is None:
            return "ok", [format_command("optimize", problem, device=device)]
        if found.verdict.accepted:
            return "ok", [format_command("why", problem, found.output_file, device=device)]
        return "finding", [format_command("verify", problem, found.output_file, device=device)]

    return run_command("optimize", call, Optimization, OutputOptions(json, html, debug), finish)
