"""kw verify: is the candidate right."""

from __future__ import annotations

from typing import Annotated

import typer

from kernelwright.cli.answer import Manner, answer, choose_device
from kernelwright.cli.options import DebugOption, DeviceOption, HtmlOption, JsonOption, SpecOption
from kernelwright.core.errors import UsageError
from kernelwright.core.records import Verdict


def verify(
    problem: Annotated[str, typer.Argument(help="A problem: FILE, FILE:FUNCTION or MODULE:FUNCTION.")],
    candidate: Annotated[str, typer.Argument(help="A candidate: a Python file, or a .cpp with a kw: header.")],
    device: DeviceOption = "cpu",
    tolerance: Annotated[
        str | None,
        typer.Option(
            "--tolerance",
            help="Judge by ATOL,RTOL instead of the error budget, or exact: as the reference, to the last bit.",
            metavar="ATOL,RTOL|exact",
        ),
    ] = None,
    policy: Annotated[
        str, typer.Option("--policy", help="own-kernels: libraries must not do its work. any: they may.")
    ] = "any",
    time_s: Annotated[float, typer.Option("--time", help="Longest time of the candidate, in seconds.")] = 60.0,
    spec: SpecOption = None,
    json: JsonOption = False,
    html: HtmlOption = None,
    debug: DebugOption = False,
) -> int:
    """Is this candidate right? Accepted, or rejected with one named reason and the evidence.

    Example: kw verify examples/softmax.py examples/wrong/softmax_fp16.py
    """

    def deed() -> Verdict:
        from kernelwright.verify import verify

        options = {"tolerance": _tolerance(tolerance), "time_s": time_s, "spec": spec, "own_kernels": _own(policy)}
        return verify(problem, candidate, device=choose_device(device), question=True, **options)

    def finish(found: Verdict) -> tuple[str, list[str]]:
        if found.accepted:
            return "ok", [f"kw bench {problem} {candidate}"]
        if device == "emulated":
            return "finding", [f"kw why {problem} {candidate} --device emulated"]
        return "finding", [f"mend {candidate}: {found.reason.detail if found.reason else ''}"]

    return answer("verify", deed, Verdict, Manner(json, html, debug), finish)


def _own(policy: str) -> bool:
    if policy not in ("any", "own-kernels"):
        raise UsageError(f"--policy {policy!r} is neither any nor own-kernels", next="--policy own-kernels")
    return policy == "own-kernels"


def _tolerance(text: str | None) -> tuple[float, float] | None:
    if text is None:
        return None
    if text == "exact":
        return 0.0, 0.0
    try:
        absolute, relative = (float(part) for part in text.split(","))
    except ValueError:
        message = f"--tolerance {text!r} is neither exact nor two numbers"
        raise UsageError(message, next="--tolerance 1e-4,1e-3") from None
    return absolute, relative
