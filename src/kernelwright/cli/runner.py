"""Runs the command of a verb in a supervised child, shows progress, prints the record and returns the exit code."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from kernelwright.commands.result import CommandResult
from kernelwright.core.commands import rerun_command
from kernelwright.core.document import build_document, build_error_document, encode
from kernelwright.core.errors import KernelwrightError, LimitError, UsageError
from kernelwright.core.paths import require_writable

T = TypeVar("T", bound=msgspec.Struct)
EXIT_INTERRUPTED = 130


@dataclass(frozen=True)
class OutputOptions:
    """The options `--json`, `--html` and `--debug` of every verb.

    `full` shows every part of a long report, `budget_s` is the time budget that the progress is shown against,
    `limit_memory` is that of `run_supervised`.
    """

    json: bool = False
    html: str | None = None
    debug: bool = False
    full: bool = False
    limit_memory: bool = True
    budget_s: float | None = None


def run_command(
    verb: str, command: Callable[[], CommandResult[T]], record_type: type[T], options: OutputOptions
) -> int:
    """Runs a command in a supervised child, prints its record and writes the page.

    Returns:
        0 if it is ok, 1 for a finding, else the error's exit code.
    """
    try:
        if options.html:
            require_writable(Path(options.html), "--html")
        packed, status, next_steps = msgspec.msgpack.decode(_run_supervised(command, options))
        found = msgspec.msgpack.decode(packed, type=record_type)
        if options.html:
            _write_page(found, Path(options.html), status, next_steps)
    except KernelwrightError as error:
        return print_error(verb, error, json=options.json)
    except KeyboardInterrupt:
        again = rerun_command(shlex.join(["kw", *sys.argv[1:]]))
        error = LimitError("interrupted; results that were already stored are reused by the next run", next=again)
        print_error(verb, error, json=options.json)
        return EXIT_INTERRUPTED
    if options.json:
        print(encode(build_document(verb, found, status=status, next=next_steps)))
    else:
        from kernelwright.report.terminal import show

        show(found, full=options.full)  # type: ignore[arg-type]
        if options.html:
            print(f"\nwrote {options.html}")
    return 1 if status == "finding" else 0


def print_error(verb: str, error: KernelwrightError, *, json: bool) -> int:
    """Prints an error as text or JSON and returns its exit code."""
    if json:
        print(encode(build_error_document(verb, error, ["kw", *sys.argv[1:]])))
    else:
        from rich.console import Console

        from kernelwright.report.terminal import show

        show(error, Console(stderr=True))
    return error.exit_code


def _pack(command: Callable[[], CommandResult[T]]) -> bytes:
    result = command()
    return msgspec.msgpack.encode((msgspec.msgpack.encode(result.record), result.status, result.next))


def _run_supervised(command: Callable[[], CommandResult[T]], options: OutputOptions) -> bytes:
    from kernelwright.sandbox import run_supervised

    with _Progress(options.budget_s) as progress:
        return run_supervised(
            partial(_pack, command),
            on_stage=progress.stage,
            on_tick=progress.tick,
            limit_memory=options.limit_memory,
            debug=options.debug,
        )


def _can_redraw() -> bool:
    return sys.stderr.isatty() and os.environ.get("TERM") not in (None, "", "dumb", "unknown")


class _Progress:
    """The current stage on stderr: a status line on a terminal, else one line per stage."""

    def __init__(self, budget_s: float | None = None) -> None:
        self._budget_s = budget_s

    def __enter__(self) -> _Progress:
        from kernelwright.sandbox import ElapsedTime, StageLines

        self._status, self._what = None, ""
        self._elapsed = ElapsedTime(self._budget_s)
        self._lines = None if _can_redraw() else StageLines(sys.stderr, budget_s=self._budget_s)
        return self

    def stage(self, what: str) -> None:
        self._what = what
        if self._lines:
            self._lines.stage(what)
        elif self._status:
            self._status.update(self._text())
        else:  # started only now: its thread must not exist when the child is forked
            from rich.console import Console

            self._status = Console(stderr=True).status(self._text())
            self._status.start()

    def tick(self) -> None:
        if self._lines:
            self._lines.tick()
        elif self._status and self._budget_s:
            self._status.update(self._text())

    def _text(self) -> str:
        return f"{self._elapsed.text.strip()}  {self._what}" if self._budget_s else self._what

    def __exit__(self, *_: object) -> None:
        if self._status:
            self._status.stop()


def _write_page(record: Any, path: Path, status: str, next_steps: list[str]) -> None:
    from kernelwright.report.page import render_page

    try:
        path.write_text(render_page(record, status=status, next=next_steps), encoding="utf-8")
    except OSError as error:
        raise UsageError(
            f"cannot write {path}: {error.strerror}", next="name a file in a folder that exists"
        ) from error
