"""kw machine: what this machine can do at best, measured."""

from __future__ import annotations

from typing import Annotated

import typer

from kernelwright.cli.options import DebugOption, DeviceOption, HtmlOption, JsonOption, SpecOption
from kernelwright.cli.runner import OutputOptions, resolve_device, run_command
from kernelwright.core.records import Machine


def machine(
    device: DeviceOption = "cpu",
    spec: SpecOption = None,
    remeasure: Annotated[bool, typer.Option("--remeasure", help="Measure again, whatever is cached.")] = False,
    json: JsonOption = False,
    html: HtmlOption = None,
    debug: DebugOption = False,
) -> int:
    """What can this machine do at best? Its measured ceilings, cached per device and software version.

    Example: kw machine --spec h200
    """

    def call() -> Machine:
        from kernelwright.machines import machine

        return machine(resolve_device(device), spec=spec, remeasure=remeasure)

    return run_command("machine", call, Machine, OutputOptions(json, html, debug))
