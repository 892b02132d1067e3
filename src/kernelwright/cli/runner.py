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

from kernelwright.core.commands import add_options
from kernelwright.core.document import build_document, build_error_document, encode
from kernelwright.core.errors import KernelwrightError, LimitError, UsageError
from kernelwright.core.paths import require_writable

T = TypeVar("T", bound=msgspec.Struct)
EXIT_INTERRUPTED = 130
DEVICES = ("cpu", "cuda", "emulated")


@dataclass(frozen=True)
class OutputOptions:
    """How a person wants the answer."""

    json: bool = False
    html: str | None = None
    debug: bool = False


def run_command(
    verb: str,
    call: Callable[[], T],
    record: type[T],
    options: OutputOptions,
    finish: Callable[[T], tuple[str, list[str]]] = lambda _: ("ok", []),
) -> int:
    """Runs `call` in a child within limits, prints its record, writes the page.

    Args:
        finish: gives the document's status and what to do next.
    Returns:
        0 for ok, 1 for a finding, the error's own code otherwise.
    """
    try:
        if options.html:
            require_writable(Path(options.html), "--html")
        found = msgspec.msgpack.decode(_run_supervised(call, options), type=record)
        status, next_steps = finish(found)
        if options.html:
            _write_page(found, Path(options.html), status, next_steps)
    except KernelwrightError as fault:
        return print_error(verb, fault, json=options.json)
    except KeyboardInterrupt:
        fault = LimitError("interrupted; what is measured and kept counts the next time", next=rerun_command())
        print_error(verb, fault, json=options.json)
        return EXIT_INTERRUPTED
    if options.json:
        print(encode(build_document(verb, found, status=status, next=next_steps)))
    else:
        from kernelwright.report.terminal import show

        show(found)  # type: ignore[arg-type]
        if options.html:
            print(f"\nwrote {options.html}")
    return 1 if status == "finding" else 0


def rerun_command(options: str = "") -> str:
    """The command that runs now, with other options if any."""
    command = ["kw", *sys.argv[1:]]
    return add_options(command, options) or shlex.join(command)


def print_error(verb: str, error: KernelwrightError, *, json: bool) -> int:
    """Prints an error in the manner asked for and gives its exit code."""
    if json:
        print(encode(build_error_document(verb, error, ["kw", *sys.argv[1:]])))
    else:
        from rich.console import Console

        from kernelwright.report.terminal import show

        show(error, Console(stderr=True))
    return error.exit_code


def resolve_device(device: str) -> str:
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


def _run_supervised(call: Callable[[], Any], options: OutputOptions) -> bytes:
    from kernelwright.sandbox import run_supervised

    with _Progress() as progress:
        return run_supervised(
            lambda: msgspec.msgpack.encode(call()),
            on_stage=progress.stage,
            on_tick=progress.tick,
            debug=options.debug,
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
    from kernelwright.report.page import render_page

    try:
        path.write_text(render_page(record, status=status, next=next_steps), encoding="utf-8")
    except OSError as fault:
        raise UsageError(
            f"cannot write {path}: {fault.strerror}", next="name a file in a folder that exists"
        ) from fault
