"""`kw bench`: is the candidate faster?"""

from __future__ import annotations

from collections.abc import Sequence

from kernelwright.commands.result import CommandResult, find_candidate_file, format_command, select_device
from kernelwright.core.bench import Bench
from kernelwright.core.commands import rerun_command


def bench(
    problem: str,
    candidates: Sequence[str],
    *,
    baselines: Sequence[str] = ("eager", "compile"),
    device: str = "cpu",
    pairs: int = 7,
    check: bool = True,
    build_timeout_s: float = 300.0,
    seed: int | None = None,
    spec: str | None = None,
) -> CommandResult[Bench]:
    """Times candidates against baselines; see `kernelwright.bench` for the arguments and errors."""
    from kernelwright import benchmark

    found = benchmark.bench(
        problem,
        *candidates,
        baselines=list(baselines),
        device=select_device(device),
        pairs=pairs,
        check=check,
        build_timeout_s=build_timeout_s,
        seed=seed,
        spec=spec,
    )
    wrong = [one.candidate for one in found.verdicts if one.reason]
    wrong += [one.name for one in found.variants if one.suspicious]
    slow = [one.variant for one in found.comparisons if one.verdict == "SLOWER"]
    steps = [
        format_command(verb, problem, file, device=device)
        for verb, names in (("verify", wrong), ("why", slow))
        for name in names
        if (file := find_candidate_file(name, candidates))
    ]
    if any(one.verdict == "UNCLEAR" for one in found.comparisons):
        steps.append(rerun_command(format_command("bench", problem, *candidates, device=device), "--pairs 21"))
    return CommandResult(found, "finding" if wrong or slow else "ok", (*dict.fromkeys(steps), *_advice(found)))


def _advice(found: Bench) -> list[str]:
    rejected = [f"fix {one.candidate}: {one.reason.detail}" for one in found.verdicts if one.reason]
    suspicious = [f"check {one.name}: {one.suspicious}" for one in found.variants if one.suspicious]
    slower = [
        f"{one.variant} is slower than {one.baseline}: see what limits it"
        for one in found.comparisons
        if one.verdict == "SLOWER"
    ]
    unclear = [
        f"{one.variant} against {one.baseline} is unclear: measure more pairs"
        for one in found.comparisons
        if one.verdict == "UNCLEAR"
    ]
    return [*rejected, *suspicious, *slower, *unclear]
