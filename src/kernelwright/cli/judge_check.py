"""kw judge-check: does the judge reject every cheat and accept every legitimate candidate?"""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from kernelwright import commands
from kernelwright.cli.options import DebugOption, DeviceOption, HtmlOption, JsonOption
from kernelwright.cli.runner import OutputOptions, run_command
from kernelwright.core.corpus import CorpusReport


def judge_check(
    names: Annotated[list[str] | None, typer.Argument(help="Parts of samples' names; all by default.")] = None,
    device: DeviceOption = "cpu",
    rounds: Annotated[int, typer.Option("--rounds", help="How often to verify each sample.")] = 1,
    workers: Annotated[int, typer.Option("--workers", help="Samples verified at the same time.")] = 1,
    json: JsonOption = False,
    html: HtmlOption = None,
    debug: DebugOption = False,
) -> int:
    """Can the judge be fooled? Verifies every sample of the corpus: cheats that must be rejected, each with its own
    code, and legitimate candidates, some of them unusual, that must be accepted.

    Example: kw judge-check late_thread two_passes
    """
    command = partial(commands.judge_check, names or (), device=device, rounds=rounds, workers=workers)
    return run_command("judge-check", command, CorpusReport, OutputOptions(json, html, debug))
