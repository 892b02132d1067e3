"""`kw machine`: the measured ceilings of a machine."""

from __future__ import annotations

from kernelwright.commands.result import CommandResult, select_device
from kernelwright.core.machine import Machine


def machine(*, device: str = "cpu", spec: str | None = None, remeasure: bool = False) -> CommandResult[Machine]:
    """The ceilings of this machine, or of a datasheet; see `kernelwright.machine` for the arguments and errors."""
    from kernelwright import machines

    return CommandResult(machines.machine(select_device(device), spec=spec, remeasure=remeasure))
