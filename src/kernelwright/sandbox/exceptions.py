"""How an exception crosses a process boundary: described as a tree of strings there, raised again as ours here."""

from __future__ import annotations

import os
import re
import signal
import sysconfig
import traceback
from pathlib import Path
from typing import Any

from kernelwright.core.errors import CrashError, InternalError, KernelwrightError, MemoryLimitError, by_code

PACKAGE = Path(__file__).resolve().parent.parent
FRAME = re.compile(r'File "(.+)", line (\d+)')
ALLOCATOR_WORDS = ("can't allocate memory", "DefaultCPUAllocator", "CUDA out of memory", "out of memory. Tried to")


class TaskError(KernelwrightError):
    """The person's program raised; `where` is the last line of it in the person's own file."""

    code = "runtime-error"


def is_out_of_memory(fault: BaseException) -> bool:
    """MemoryError, torch.OutOfMemoryError (known by name: torch is not imported here), or the CPU allocator's."""
    named = any(cls.__name__ == "OutOfMemoryError" for cls in type(fault).__mro__)
    return named or isinstance(fault, MemoryError) or any(words in str(fault) for words in ALLOCATOR_WORDS)


def is_own(file: str) -> bool:
    """Whether a frame's file belongs to the person, not to this package, the library or an installed package."""
    installed = (Path(sysconfig.get_paths()[key]) for key in ("stdlib", "platstdlib", "purelib", "platlib"))
    return not any(is_within(file, folder) for folder in (PACKAGE, *installed))


def is_within(file: str, folder: Path) -> bool:
    return file.startswith("<") or Path(file).is_relative_to(folder)


def place(fault: BaseException) -> str:
    """`file:line` of the last frame in the person's own file, or in an installed package when there is none."""
    if isinstance(fault, SyntaxError) and fault.filename:
        return f"{fault.filename}:{fault.lineno}"
    foreign = [frame for frame in traceback.extract_tb(fault.__traceback__) if not is_within(frame.filename, PACKAGE)]
    frames = [frame for frame in foreign if is_own(frame.filename)] or foreign
    return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else ""


def text_of(fault: BaseException) -> str:
    if isinstance(fault, SystemExit):
        return f"it called sys.exit({'' if fault.code is None else repr(fault.code)})"
    message = str(fault).strip()
    return f"{type(fault).__name__}: {message}" if message else type(fault).__name__


def task_error(fault: BaseException) -> KernelwrightError:
    """What the person reads when their program raised: a MemoryLimitError for memory, else a TaskError."""
    if isinstance(fault, KernelwrightError):
        return fault
    cls = MemoryLimitError if is_out_of_memory(fault) else TaskError
    return cls(text_of(fault), where=place(fault))


def describe(fault: BaseException, *, foreign: bool) -> dict[str, str]:
    """The exception as strings.

    Args:
        foreign: the code that raised is a person's: anything unknown becomes a TaskError, else an InternalError.
    """
    trace = "".join(traceback.format_exception(fault))
    if foreign or isinstance(fault, (KernelwrightError, SystemExit, KeyboardInterrupt)) or is_out_of_memory(fault):
        error = task_error(fault)
    else:
        error = InternalError(f"{text_of(fault)}\n{trace}", next="report this with the text above")
    return {
        "code": error.code,
        "message": error.message,
        "next": error.next,
        "where": error.where,
        "trace": trace,
    }


def revive(fault: dict[str, Any]) -> KernelwrightError:
    """The error that `describe` told of, with the far traceback as a note."""
    fields = {key: str(fault.get(key, "")) for key in ("code", "message", "next", "where", "trace")}
    cls = by_code().get(fields["code"], KernelwrightError)
    error = cls(fields["message"], next=fields["next"], where=fields["where"])
    error.add_note("in the child process:\n" + fields["trace"])
    return error


def crash(status: int | None, output: str, where: str = "") -> CrashError:
    """A process that ended without an answer; `status` as os.waitpid gives it, None when nobody could tell."""
    if status is None:
        how = "the process vanished"
    elif os.WIFSIGNALED(status):
        how = f"the process died of {_signal_text(os.WTERMSIG(status))}"
    else:
        how = f"the process ended with exit status {os.waitstatus_to_exitcode(status)} and gave no answer"
    lines = [line for line in output.splitlines() if line.strip() and not is_noise(line)]
    frames = [match for match in map(FRAME.search, lines) if match and is_own(match[1])]
    if frames:  # faulthandler writes the innermost call first
        where = f"{frames[0][1]}:{frames[0][2]}"
    return CrashError("\n".join([how, *lines[-12:]]), where=where)


def is_noise(line: str) -> bool:
    """Frames of this package and what faulthandler adds say nothing about the person's program."""
    frame = FRAME.search(line)
    return is_within(frame[1], PACKAGE) if frame else line.startswith("Extension modules:")


def _signal_text(number: int) -> str:
    try:
        name = signal.Signals(number).name
    except ValueError:
        name = f"signal {number}"
    return name + (" (perhaps the kernel's out-of-memory killer)" if number == signal.SIGKILL else "")
