"""Options that several verbs share, spelt once, and what their words mean."""

from __future__ import annotations

from typing import Annotated

import typer

from kernelwright.core.errors import UsageError

DeviceOption = Annotated[
    str, typer.Option("--device", help="cpu, cuda, or CUDA C++ emulated.", metavar="cpu|cuda|emulated")
]
SpecOption = Annotated[
    str | None,
    typer.Option("--spec", help="Answer for a machine that is not there, from its datasheet: h200, b200 ..."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
HtmlOption = Annotated[str | None, typer.Option("--html", help="Also write one self-contained page.", metavar="FILE")]
DebugOption = Annotated[bool, typer.Option("--debug", help="Show tracebacks.")]
ToleranceOption = Annotated[
    str | None,
    typer.Option(
        "--tolerance",
        help="Judge by ATOL,RTOL instead of the error budget, or exact: as the reference, to the last bit.",
        metavar="ATOL,RTOL|exact",
    ),
]
PolicyOption = Annotated[
    str, typer.Option("--policy", help="own-kernels: libraries must not do its work. any: they may.")
]
TimeOption = Annotated[float, typer.Option("--time", help="Longest time of a call of a candidate, in seconds.")]
BuildTimeOption = Annotated[
    float,
    typer.Option("--build-time", help="Longest time to import, compile and construct a candidate, in seconds."),
]


def _hide_seed(seed: int | None) -> int | None:
    """The candidate's process can read the command lines of others."""
    from kernelwright.sandbox.process_limits import hide_argument

    if seed is not None:
        hide_argument(str(seed))
    return seed


SeedOption = Annotated[
    int | None,
    typer.Option(
        "--seed",
        help="The seed of an earlier verdict: draws the same inputs, parameters and order again.",
        callback=_hide_seed,
        metavar="N",
    ),
]


def parse_policy(policy: str) -> bool:
    """
    Raises:
        UsageError: neither of the two.
    """
    if policy not in ("any", "own-kernels"):
        raise UsageError(f"--policy {policy!r} is neither any nor own-kernels", next="--policy own-kernels")
    return policy == "own-kernels"


def parse_tolerance(text: str | None) -> tuple[float, float] | None:
    """Absolute and relative; both 0 is exact, None the error budget.

    Raises:
        UsageError: neither exact nor two numbers.
    """
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
