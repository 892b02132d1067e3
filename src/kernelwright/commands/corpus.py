"""`kw judge-check`: run the judge on its adversarial corpus."""

from __future__ import annotations

from collections.abc import Sequence

from kernelwright.commands.result import CommandResult, format_command, select_device
from kernelwright.core.corpus import CorpusReport


def judge_check(
    names: Sequence[str] = (), *, device: str = "cpu", rounds: int = 1, workers: int = 1
) -> CommandResult[CorpusReport]:
    """Verifies every sample of the corpus and compares the verdicts with those expected.

    Args:
        names: parts of samples' names; all samples by default.
    Raises:
        NotFoundError: no sample has such a name.
    """
    from kernelwright.redteam.corpus import check_corpus

    found = check_corpus(device=select_device(device), rounds=rounds, only=names, workers=workers)
    steps = (format_command("judge-check", one.name, device=device, options=["--json"]) for one in found.wrong_outcomes)
    return CommandResult(found, "finding" if found.wrong_outcomes else "ok", tuple(steps))
