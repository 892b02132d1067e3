"""How an exception crosses a process boundary: described as a tree of strings there, raised again as ours here."""

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
    """The person's program raised; `where` is the last line of it in the person's own file."""

    code = "runtime-error"


def is_out_of_memory(fault: BaseException) -> bool:
    """MemoryError, torch.OutOfMemoryError (known by name: torch is not imported here), or the CPU allocator's."""
    named = any(cls.__name__ == "OutOfMemoryError" for cls in type(fault).__mro__)
    return named or isinstance(fault, MemoryError) or any(words in str(fault) for words in OUT_OF_MEMORY_TEXTS)


def is_user_file(file: str) -> bool:
    """Whether a frame's file belongs to the person, not to this package, the library or an installed package."""
    installed = (Path(sysconfig.get_paths()[key]) for key in ("stdlib", "platstdlib", "purelib", "platlib"))
    return not any(is_within(file, folder) for folder in (PACKAGE_DIR, *installed))


def is_within(file: str, folder: Path) -> bool:
    return file.startswith("<") or Path(file).is_relative_to(folder)


def find_location(error: BaseException) -> str:
    """`file:line` of the last frame in the person's own file, or in an installed package when there is none."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}"
    foreign = [
        frame for frame in traceback.extract_tb(error.__traceback__) if not is_within(frame.filename, PACKAGE_DIR)
    ]
    frames = [frame for frame in foreign if is_user_file(frame.filename)] or foreign
    return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else ""


def format_error(error: BaseException) -> str:
    if isinstance(error, SystemExit):
        return f"it called sys.exit({'' if error.code is None else repr(error.code)})"
    message = str(error).strip()
    return f"{type(error).__name__}: {message}" if message else type(error).__name__


def to_task_error(error: BaseException) -> KernelwrightError:
    """What the person reads when their program raised: a MemoryLimitError for memory, else a TaskError."""
    if isinstance(error, KernelwrightError):
        return error
    cls = MemoryLimitError if is_out_of_memory(error) else TaskError
    return cls(format_error(error), where=find_location(error))


def serialize_error(exception: BaseException, *, user_code: bool) -> dict[str, str]:
    """The exception as strings.

    Args:
        user_code: the code that raised is a person's: anything unknown becomes a TaskError, else an InternalError.
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
    """The error that `serialize_error` told of, with the far traceback as a note."""
    fields = {key: str(fault.get(key, "")) for key in ("code", "message", "next", "where", "trace")}
    cls = error_types_by_code().get(fields["code"], KernelwrightError)
    error = cls(fields["message"], next=fields["next"], where=fields["where"])
    error.add_note("in the child process:\n" + fields["trace"])
    return error


def make_crash_error(status: int | None, output: str, where: str = "") -> CrashError:
    """A process that ended without an answer; `status` as os.waitpid gives it, None when nobody could tell."""
    if status is None:
        how = "the process vanished"
    elif os.WIFSIGNALED(status):
        how = f"the process died of {_signal_text(os.WTERMSIG(status))}"
    else:
        how = f"the process ended with exit status {os.waitstatus_to_exitcode(status)} and gave no answer"
    lines = [line for line in output.splitlines() if line.strip() and not is_internal_line(line)]
    frames = [match for match in map(FRAME_PATTERN.search, lines) if match and is_user_file(match[1])]
    if frames:  # faulthandler writes the innermost call first
        where = f"{frames[0][1]}:{frames[0][2]}"
    return CrashError("\n".join([how, *lines[-12:]]), where=where)


def is_internal_line(line: str) -> bool:
    """Frames of this package and what faulthandler adds say nothing about the person's program."""
    frame = FRAME_PATTERN.search(line)
    return is_within(frame[1], PACKAGE_DIR) if frame else line.startswith("Extension modules:")


def _signal_text(number: int) -> str:
    try:
        name = signal.Signals(number).name
    except ValueError:
        name = f"signal {number}"
    return name + (" (perhaps the kernel's out-of-memory killer)" if number == signal.SIGKILL else "")
