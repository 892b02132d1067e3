"""How every verb answers: runs its call in a guarded child, shows progress, prints the record, gives the exit code."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from kernelwright.core.commands import with_options
from kernelwright.core.document import document, encode, error_document
from kernelwright.core.errors import KernelwrightError, LimitError, UsageError
from kernelwright.core.paths import require_place

T = TypeVar("T", bound=msgspec.Struct)
INTERRUPTED = 130
DEVICES = ("cpu", "cuda", "emulated")


@dataclass(frozen=True)
class Manner:
    """How a person wants the answer."""

    json: bool = False
    html: str | None = None
    debug: bool = False


def answer(
    verb: str,
    call: Callable[[], T],
    record: type[T],
    manner: Manner,
    finish: Callable[[T], tuple[str, list[str]]] = lambda _: ("ok", []),
) -> int:
    """Runs `call` in a child within limits, prints its record, writes the page.

    Args:
        finish: gives the document's status and what to do next.
    Returns:
        0 for ok, 1 for a finding, the error's own code otherwise.
    """
    try:
        if manner.html:
            require_place(Path(manner.html), "--html")
        found = msgspec.msgpack.decode(_guarded(call, manner), type=record)
        status, next_steps = finish(found)
        if manner.html:
            _write_page(found, Path(manner.html), status, next_steps)
    except KernelwrightError as fault:
        return fail(verb, fault, json=manner.json)
    except KeyboardInterrupt:
        fault = LimitError("interrupted; what is measured and kept counts the next time", next=again())
        fail(verb, fault, json=manner.json)
        return INTERRUPTED
    if manner.json:
        print(encode(document(verb, found, status=status, next=next_steps)))
    else:
        from kernelwright.report.terminal import show

        show(found)  # type: ignore[arg-type]
        if manner.html:
            print(f"\nwrote {manner.html}")
    return 1 if status == "finding" else 0


def again(options: str = "") -> str:
    """The command that runs now, with other options if any."""
    command = ["kw", *sys.argv[1:]]
    return with_options(command, options) or shlex.join(command)


def fail(verb: str, error: KernelwrightError, *, json: bool) -> int:
    """Prints an error in the manner asked for and gives its exit code."""
    if json:
        print(encode(error_document(verb, error, ["kw", *sys.argv[1:]])))
    else:
        from rich.console import Console

        from kernelwright.report.terminal import show

        show(error, Console(stderr=True))
    return error.exit_code


def choose_device(device: str) -> str:
    """Checks the name of a device and lets the examples take their size from it.

    `emulated` is the CPU: that is how CUDA C++ runs there.

    Raises:
        UsageError: none of these.
    """
    if device not in DEVICES:
        raise UsageError(f"no device {device!r}; there are {', '.join(DEVICES)}")
    if device == "cuda":
        os.environ.setdefault("KW_SIZE", "gpu")
    return "cpu" if device == "emulated" else device


def _guarded(call: Callable[[], Any], manner: Manner) -> bytes:
    from kernelwright.sandbox import guard

    with _Progress() as progress:
        return guard(
            lambda: msgspec.msgpack.encode(call()),
            on_stage=progress.stage,
            on_tick=progress.tick,
            debug=manner.debug,
        )


def _can_redraw() -> bool:
    return sys.stderr.isatty() and os.environ.get("TERM") not in (None, "", "dumb", "unknown")


class _Progress:
    """What is being done, on stderr: a status line that moves on a terminal, else plain lines."""

    def __enter__(self) -> _Progress:
        from kernelwright.sandbox import StageLines

        self._status = None
        self._lines = None if _can_redraw() else StageLines(sys.stderr)
        return self

    def stage(self, what: str) -> None:
        if self._lines:
            self._lines.stage(what)
        elif self._status:
            self._status.update(what)
        else:  # started here, not before: its thread must not be there when the child is forked
            from rich.console import Console

            self._status = Console(stderr=True).status(what)
            self._status.start()

    def tick(self) -> None:
        if self._lines:
            self._lines.tick()

    def __exit__(self, *_: object) -> None:
        if self._status:
            self._status.stop()


def _write_page(record: Any, path: Path, status: str, next_steps: list[str]) -> None:
    from kernelwright.report.page import page

    try:
        path.write_text(page(record, status=status, next=next_steps), encoding="utf-8")
    except OSError as fault:
        raise UsageError(
            f"cannot write {path}: {fault.strerror}", next="name a file in a folder that exists"
        ) from fault
