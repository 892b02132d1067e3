"""kw judge-check: does the judge reject what is dishonest, and accept what is honest."""

from __future__ import annotations

from typing import Annotated

import typer

from kernelwright.cli.options import DebugOption, DeviceOption, HtmlOption, JsonOption
from kernelwright.cli.runner import OutputOptions, resolve_device, run_command
from kernelwright.cli.steps import format_command
from kernelwright.core.corpus import CorpusReport


def judge_check(
    only: Annotated[list[str] | None, typer.Argument(help="Parts of samples' names; all where none is given.")] = None,
    device: DeviceOption = "cpu",
    rounds: Annotated[int, typer.Option("--rounds", help="How often to judge each sample.")] = 1,
    workers: Annotated[int, typer.Option("--workers", help="Samples judged beside each other.")] = 1,
    json: JsonOption = False,
    html: HtmlOption = None,
    debug: DebugOption = False,
) -> int:
    """Can the judge be fooled? Judges every sample of the corpus: cheats that must be rejected, each by its own code,
    and honest candidates, some of them odd, that must be accepted.

    Example: kw judge-check late_thread honest
    """

    def call() -> CorpusReport:
        from kernelwright.redteam.corpus import check_corpus

        return check_corpus(device=resolve_device(device), rounds=rounds, only=only or (), workers=workers)

    def finish(found: CorpusReport) -> tuple[str, list[str]]:
        return ("finding" if found.wrong_outcomes else "ok"), [
            format_command("judge-check", one.name, device=device, options=["--json"]) for one in found.wrong_outcomes
        ]

    return run_command("judge-check", call, CorpusReport, OutputOptions(json, html, debug), finish)
