"""Options that several verbs share, spelt once."""

from __future__ import annotations

from typing import Annotated

import typer

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
