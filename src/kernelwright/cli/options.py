"""Options shared by several verbs, and their parsers."""

from __future__ import annotations

from typing import Annotated

import typer

from kernelwright.core.errors import UsageError

DeviceOption = Annotated[
    str, typer.Option("--device", help="cpu, cuda, or emulated: CUDA C++ on the CPU.", metavar="cpu|cuda|emulated")
]
SpecOption = Annotated[
    str | None,
    typer.Option("--spec", help="Predict for a machine from its datasheet, without running there: h200, b200 ..."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
HtmlOption = Annotated[str | None, typer.Option("--html", help="Also write one self-contained page.", metavar="FILE")]
DebugOption = Annotated[bool, typer.Option("--debug", help="Show tracebacks.")]
ToleranceOption = Annotated[
    str | None,
    typer.Option(
        "--tolerance",
        help="Use ATOL,RTOL instead of the error budget, or exact: bitwise equal to the reference.",
        metavar="ATOL,RTOL|exact",
    ),
]
PolicyOption = Annotated[
    str, typer.Option("--policy", help="own-kernels: rejected if libraries do the work. any: libraries may.")
]
TimeOption = Annotated[float, typer.Option("--time", help="Timeout of one call of a candidate, in seconds.")]
BuildTimeOption = Annotated[
    float,
    typer.Option("--build-time", help="Timeout to import, compile and construct a candidate, in seconds."),
]


def _hide_seed(seed: int | None) -> int | None:
    """Hide the seed: the candidate's process can read the command lines of other processes."""
    from kernelwright.sandbox.process_limits import hide_argument

    if seed is not None:
        hide_argument(str(seed))
    return seed


SeedOption = Annotated[
    int | None,
    typer.Option(
        "--seed",
        help="Seed of an earlier verdict: repeats its inputs, parameters and order.",
        callback=_hide_seed,
        metavar="N",
    ),
]


def parse_policy(policy: str) -> bool:
    """Whether libraries are forbidden.

    Raises:
        UsageError: neither `any` nor `own-kernels`.
    """
    if policy not in ("any", "own-kernels"):
        raise UsageError(f"--policy {policy!r} is neither any nor own-kernels", next="--policy own-kernels")
    return policy == "own-kernels"


def parse_tolerance(text: str | None) -> tuple[float, float] | None:
    """(absolute, relative); both 0 for `exact`, None for the error budget.

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
