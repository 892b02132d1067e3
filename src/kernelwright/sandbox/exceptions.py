"""Serialize an exception in the child and raise it again in the parent as an error of this package."""

from __future__ import annotations

import os
import re
import signal
import sysconfig
import traceback
from pathlib import Path
from typing import Any

from kernelwright.core.errors import CrashError, InternalError, KernelwrightError, MemoryLimitError, error_types_by_code

PACKAGE_DIR = Path(__file__).resolve().parent.parent
FRAME_PATTERN = re.compile(r'File "(.+)", line (\d+)')
OUT_OF_MEMORY_TEXTS = ("can't allocate memory", "DefaultCPUAllocator", "CUDA out of memory", "out of memory. Tried to")


class TaskError(KernelwrightError):
    """The user's program raised; `where` is the last frame in the user's own file."""

    code = "runtime-error"


MAX_TEXT = 2_000
CHANGED_ARGUMENT = "adds, removes or replaces a value of an argument"


class ChangedArgumentError(TaskError):
    """The user's program added, removed or replaced a value of an argument, such as an entry of a dict."""

    code = "input-mutated"


def is_out_of_memory(error: BaseException) -> bool:
    """Whether it is a MemoryError, torch.OutOfMemoryError (matched by name: torch is not imported here), or one of the
    CPU allocator."""
    named = any(cls.__name__ == "OutOfMemoryError" for cls in type(error).__mro__)
    return named or isinstance(error, MemoryError) or any(text in str(error) for text in OUT_OF_MEMORY_TEXTS)


def is_user_file(file: str) -> bool:
    """Whether a frame's file is user code, not part of this package, the standard library or an installed package."""
    installed = (Path(sysconfig.get_paths()[key]) for key in ("stdlib", "platstdlib", "purelib", "platlib"))
    return not any(is_within(file, folder) for folder in (PACKAGE_DIR, *installed))


def is_within(file: str, folder: Path) -> bool:
    """Whether a frame's file is generated (`<...>`) or located under the folder."""
    return file.startswith("<") or Path(file).is_relative_to(folder)


def find_location(error: BaseException) -> str:
    """`file:line` of the last frame in user code, or in an installed package if there is none."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}"
    outside = [
        frame for frame in traceback.extract_tb(error.__traceback__) if not is_within(frame.filename, PACKAGE_DIR)
    ]
    frames = [frame for frame in outside if is_user_file(frame.filename)] or outside
    return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else ""


def format_error(error: BaseException) -> str:
    """One-line text of an exception: type and message."""
    if isinstance(error, SystemExit):
        return f"sys.exit({'' if error.code is None else repr(error.code)})"
    name, message = _shorten(type(error).__name__), _shorten(str(error).strip())
    return f"{name}: {message}" if message else name


def _shorten(text: str) -> str:
    """Without control characters, and at most `MAX_TEXT` characters: a candidate chooses the texts of its errors."""
    printable = "".join(one if one.isprintable() or one == "\n" else "?" for one in text[: MAX_TEXT + 1])
    return printable if len(printable) <= MAX_TEXT else printable[:MAX_TEXT] + "..."


def to_task_error(error: BaseException) -> KernelwrightError:
    """The error reported to the user: MemoryLimitError when memory ran out, else TaskError."""
    if isinstance(error, KernelwrightError):
        return error
    cls = MemoryLimitError if is_out_of_memory(error) else TaskError
    return cls(format_error(error), where=find_location(error))


def serialize_error(exception: BaseException, *, user_code: bool) -> dict[str, str]:
    """Convert an exception to a tree of strings.

    Args:
        user_code: the raising code is the user's, so an unknown exception becomes a TaskError, not an InternalError.
    """
    trace = "".join(traceback.format_exception(exception))
    if (
        user_code
        or isinstance(exception, (KernelwrightError, SystemExit, KeyboardInterrupt))
        or is_out_of_memory(exception)
    ):
        error = to_task_error(exception)
    else:
        error = InternalError(f"{format_error(exception)}\n{trace}", next="report this with the text above")
    return {
        "code": error.code,
        "message": error.message,
        "next": error.next,
        "where": error.where,
        "trace": trace,
    }


def deserialize_error(fault: dict[str, Any]) -> KernelwrightError:
    """Rebuild the error from `serialize_error`, with the child's traceback as a note."""
    fields = {key: str(fault.get(key, "")) for key in ("code", "message", "next", "where", "trace")}
    cls = error_types_by_code().get(fields["code"], KernelwrightError)
    error = cls(fields["message"], next=fields["next"], where=fields["where"])
    error.add_note("in the child process:\n" + fields["trace"])
    return error


def make_crash_error(status: int | None, output: str, where: str = "") -> CrashError:
    """The error for a process that ended without a result.

    Args:
        status: as os.waitpid returns it; None if unknown.
        output: what the process wrote to stdout and stderr.
        where: location to report if `output` holds no user frame.
    """
    if status is None:
        how = "the process vanished"
    elif os.WIFSIGNALED(status):
        how = f"the process was killed by {_signal_text(os.WTERMSIG(status))}"
    else:
        how = f"the process ended with exit status {os.waitstatus_to_exitcode(status)} and returned no result"
    lines = [line for line in output.splitlines() if line.strip() and not is_internal_line(line)]
    frames = [match for match in map(FRAME_PATTERN.search, lines) if match and is_user_file(match[1])]
    if frames:  # faulthandler writes the innermost call first
        where = f"{frames[0][1]}:{frames[0][2]}"
    return CrashError("\n".join([how, *lines[-12:]]), where=where)


def is_internal_line(line: str) -> bool:
    """Whether a line of output is a frame of this package or a faulthandler footer, of no use to the user."""
    frame = FRAME_PATTERN.search(line)
    return is_within(frame[1], PACKAGE_DIR) if frame else line.startswith("Extension modules:")


def _signal_text(number: int) -> str:
    try:
        name = signal.Signals(number).name
    except ValueError:
        name = f"signal {number}"
    return name + (" (perhaps the kernel's out-of-memory killer)" if number == signal.SIGKILL else "")
