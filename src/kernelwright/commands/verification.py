"""`kw verify`: is the candidate right?"""

from __future__ import annotations

from kernelwright.commands.result import CommandResult, format_command, select_device
from kernelwright.core.commands import rerun_command
from kernelwright.core.verdict import Verdict


def verify(
    problem: str,
    candidate: str,
    *,
    device: str = "cpu",
    tolerance: tuple[float, float] | None = None,
    own_kernels: bool = False,
    fresh_outputs: bool = False,
    call_timeout_s: float = 60.0,
    build_timeout_s: float = 300.0,
    seed: int | None = None,
    spec: str | None = None,
) -> CommandResult[Verdict]:
    """Verifies one candidate; see `kernelwright.verify` for the arguments and errors."""
    from kernelwright import verification

    verdict = verification.verify(
        problem,
        candidate,
        device=select_device(device),
        tolerance=tolerance,
        own_kernels=own_kernels,
        fresh_outputs=fresh_outputs,
        call_timeout_s=call_timeout_s,
        build_timeout_s=build_timeout_s,
        seed=seed,
        spec=spec,
        check_problem=True,
    )
    emulated = device == "emulated"
    diagnose = format_command("why", problem, candidate, device=device)
    if verdict.reason is None:
        options = ["--spec", spec] if spec else []
        bench = format_command("bench", problem, candidate, device=device, options=options)
        return CommandResult(verdict, next=(diagnose if emulated else bench,))
    again = rerun_command(format_command("verify", problem, candidate, device=device))
    advice = f"fix {candidate}: {verdict.reason.detail}"
    return CommandResult(verdict, "finding", (*[diagnose] * emulated, again, advice))
