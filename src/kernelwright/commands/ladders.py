"""`kw ladder`: run a ladder of kernels, from naive to beyond the library."""

from __future__ import annotations

from collections.abc import Sequence

from kernelwright.commands.result import DEVICES, CommandResult, format_command
from kernelwright.core.errors import UsageError
from kernelwright.core.ladder import LadderRun


def ladder(
    name: str,
    *,
    rungs: Sequence[str] = (),
    sizes: Sequence[tuple[int, ...]] = (),
    device: str = "",
    recorded: str | None = None,
    machine_code: bool = False,
) -> CommandResult[LadderRun]:
    """Verifies and times the rungs of a ladder against the library.

    Args:
        rungs: numbers or names; all by default.
        sizes: (M, N, K) in place of the ladder's own.
        device: by default the ladder's own.
        recorded: show the rows of this folder instead of measuring.
        machine_code: also compile the rungs and compare their machine code.
    Raises:
        NotFoundError: no such ladder or rung. UsageError: unknown device.
    """
    from kernelwright.commands.ladder_machine_code import add_machine_code
    from kernelwright.evidence.ladder_runs import load_recorded_run, run_or_load_ladder

    if recorded:
        found = load_recorded_run(name, recorded, rungs, list(sizes))
    elif device and device not in DEVICES:
        known = ", ".join(DEVICES)
        raise UsageError(f"no device {device!r}; there are {known}", next=format_command("ladder", name))
    else:
        found = run_or_load_ladder(name, rungs, list(sizes), device)
    found = add_machine_code(found) if machine_code else found
    rejected = [rung for rung in found.rungs if not rung.accepted]
    if not rejected:
        return CommandResult(found, next=(found.rungs[-1].next,))
    advice = [f"fix rung {rung.number}, {rung.name}: {rung.reason}" for rung in rejected]
    return CommandResult(
        found, "finding", (*advice, format_command("ladder", name, options=["--rung", rejected[0].name]))
    )
