"""`kw optimize`: write a faster version."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from kernelwright.commands.result import CommandResult, format_command, select_device
from kernelwright.core.errors import DeviceError, UsageError
from kernelwright.core.optimization import Optimization


def optimize(
    problem: str,
    out: str | None = None,
    *,
    device: str = "cpu",
    baselines: Sequence[str] = ("eager", "compile"),
    train: bool = False,
    plan_only: bool = False,
    budget_s: float | None = None,
    precision: str | None = None,
    without: Sequence[str] = (),
    rewrite_degenerate: bool = False,
) -> CommandResult[Optimization]:
    """Writes a file with a faster `ModelNew`; see `kernelwright.compiler.optimize_file` for arguments and errors.

    Args:
        without: names of rewrites that are not applied.
        rewrite_degenerate: results that do not depend on the arguments become constants.
    Raises:
        UsageError: `precision` is unknown, or `without` names no rewrite.
    """
    from kernelwright.compiler import optimize_file
    from kernelwright.compiler.rewrites.registry import select_disabled
    from kernelwright.compiler.stage_times import stage_times

    disabled = select_disabled(without, rewrite_degenerate)
    where = select_device(device)
    try:
        with stage_times() as times:
            found = optimize_file(
                problem,
                out,
                device=where,
                baselines=list(baselines),
                train=train,
                plan_only=plan_only,
                budget_s=budget_s,
                precision=_checked_precision(precision),
                disabled=disabled,
            )
    except DeviceError as error:
        raise DeviceError(error.message, next="--device cpu") from error
    if found.budget:
        budget = msgspec.structs.replace(found.budget, stages=times.longest())
        found = msgspec.structs.replace(found, budget=budget)
    if found.verdict is None:
        return CommandResult(found, next=(format_command("optimize", problem, device=device),))
    verb = "why" if found.verdict.accepted else "verify"
    status = "ok" if found.verdict.accepted else "finding"
    return CommandResult(found, status, (format_command(verb, problem, found.output_file, device=device),))


def _checked_precision(precision: str | None) -> Any:
    from kernelwright.verification.outcome import WIDENED

    if precision not in (None, *WIDENED):
        raise UsageError(f"--precision {precision!r}: there are {' and '.join(WIDENED)}", next="--precision tf32")
    return precision
