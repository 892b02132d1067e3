"""kw machine: the measured ceilings of this machine."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from kernelwright import commands
from kernelwright.cli.options import DebugOption, DeviceOption, HtmlOption, JsonOption, SpecOption
from kernelwright.cli.runner import OutputOptions, run_command
from kernelwright.core.machine import Machine


def machine(
    device: DeviceOption = "cpu",
    spec: SpecOption = None,
    remeasure: Annotated[bool, typer.Option("--remeasure", help="Measure again and ignore the cache.")] = False,
    json: JsonOption = False,
    html: HtmlOption = None,
    debug: DebugOption = False,
) -> int:
    """How fast can this machine be? Measured ceilings, cached by device and software version.

    Example: kw machine --spec h200
    """
    command = partial(commands.machine, device=device, spec=spec, remeasure=remeasure)
    return run_command("machine", command, Machine, OutputOptions(json, html, debug))
