"""`kw suite run`: verify and time the candidates of a folder of problems."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kernelwright.commands.result import CommandResult, format_command, select_device
from kernelwright.core.suite_run import SuiteRun

MAX_NEXT_STEPS = 5


def suite_run(
    folder: str,
    candidates: str | None = None,
    *,
    baselines: Sequence[str] = ("eager", "compile"),
    workers: int = 1,
    results: str | None = None,
    pairs: int = 7,
    device: str = "cpu",
    tolerance: tuple[float, float] | None = None,
    own_kernels: bool = False,
    call_timeout_s: float = 60.0,
    build_timeout_s: float = 300.0,
) -> CommandResult[SuiteRun]:
    """Verifies and times every candidate of a folder; see `kernelwright.evaluation.suite_run` for the arguments."""
    from kernelwright.evaluation.suite_run import SuiteOptions, run_suite

    options = SuiteOptions(
        device=select_device(device),
        baselines=tuple(baselines),
        tolerance=tolerance,
        own_kernels=own_kernels,
        call_timeout_s=call_timeout_s,
        build_timeout_s=build_timeout_s,
        pairs=pairs,
    )
    found = run_suite(folder, candidates, results=results, workers=workers, options=options)
    wrong = [one for one in found.outcomes if one.error or not one.accepted]
    root, within = Path(folder), Path(candidates or folder)
    steps = [
        step
        for one in wrong[:MAX_NEXT_STEPS]
        for step in (
            format_command("verify", f"{root / one.problem}.py", str(within / one.candidate), device=device),
            f"fix {one.candidate}: {one.status_text}",
        )
    ]
    return CommandResult(found, "finding" if wrong else "ok", tuple(steps))
