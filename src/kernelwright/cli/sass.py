"""kw sass: the machine code of a kernel, explained."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from kernelwright import commands
from kernelwright.cli.options import DebugOption, HtmlOption, JsonOption
from kernelwright.cli.runner import OutputOptions, run_command
from kernelwright.core.errors import UsageError
from kernelwright.core.machine_code import CodeDifference, MachineCode


def sass(
    target: Annotated[
        str, typer.Argument(help="FILE.cu, FILE.cubin, FILE.py:KERNEL, ladders/NAME:RUNG, or kernels/NAME.")
    ],
    diff: Annotated[str | None, typer.Option("--diff", help="Another target, to see what changed.")] = None,
    arch: Annotated[str, typer.Option("--arch", help="Compile for this architecture.")] = "sm_90a",
    define: Annotated[list[str] | None, typer.Option("--define", "-D", help="A macro.", metavar="NAME=VALUE")] = None,
    signature: Annotated[
        str, typer.Option("--signature", help="Types of a Triton kernel's parameters.", metavar='"*fp32, i32, 1024"')
    ] = "",
    json: JsonOption = False,
    html: HtmlOption = None,
    debug: DebugOption = False,
) -> int:
    """What does the GPU execute? Registers, spills, load widths, the hot loop line by line, and a summary.

    Example: kw sass ladders/gemm_fp32:tile_2d

    Example: kw sass ladders/gemm_fp32:5 --diff ladders/gemm_fp32:6
    """
    defines = dict(map(_parse_define, define or ()))
    output = OutputOptions(json, html, debug)
    if diff:
        command = partial(commands.sass_diff, target, diff, arch=arch, signature=signature, defines=defines)
        return run_command("sass", command, CodeDifference, output)
    command = partial(commands.sass, target, arch=arch, signature=signature, defines=defines)
    return run_command("sass", command, MachineCode, output)


def _parse_define(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name.isidentifier():
        raise UsageError(f"--define {text!r} is not NAME or NAME=VALUE", next="--define BK=16")
    return name, value if equals else "1"
