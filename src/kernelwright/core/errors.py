"""Every error that a person can meet, as one tree.

KernelwrightError
├── UsageError                what was asked for cannot be done            exit 2
│   ├── NotFoundError         a file, a name or a machine that is not there
│   ├── LayoutError           a layout that cannot be (defined in layouts)
│   ├── ProblemError          the reference program does not load or run
│   └── CandidateError        the candidate cannot be loaded (verify turns it into a rejection)
│       ├── CompileError      the compiler refused the source
│       └── SignatureError    it takes other arguments or parameters than the reference
├── SetupError          this machine lacks what is needed            exit 2
│   ├── MissingDependency     a package that an extra installs
│   └── DeviceError           no such device here
├── LimitError                stopped from outside                         exit 2
│   ├── TimeLimitError
│   ├── MemoryLimitError
│   └── CrashError            the process died: a signal, an abort
│       └── ForgedError       it said what is not so
└── InternalError             our own bug                                  exit 101
"""

from __future__ import annotations


class KernelwrightError(Exception):
    """An error with its value in the message, a stable code, and the next step.

    Args:
        message: what was wrong, with the value that was wrong.
        next: one step a line: a command that runs as it stands, or a sentence; or nothing but options to add to the
            command that failed (`--device cpu`). Only commands are in the `next` of a JSON document; a sentence is in
            its `advice`.
        where: the file, line or stage in which it happened.
    """

    code = "error"
    exit_code = 2
    default_next = "kw --help"

    def __init__(self, message: str, *, next: str = "", where: str = "") -> None:
        super().__init__(message)
        self.message, self.next, self.where = message, next or self.default_next, where


class UsageError(KernelwrightError):
    code = "usage"


class NotFoundError(UsageError):
    code = "not-found"


class ProblemError(UsageError):
    code = "problem-error"


class CandidateError(UsageError):
    code = "candidate-error"


class CompileError(CandidateError):
    code = "compile-error"


class SignatureError(CandidateError):
    code = "wrong-parameters"


class SetupError(KernelwrightError):
    code = "environment"


class MissingDependency(SetupError):
    code = "missing-dependency"


class DeviceError(SetupError):
    code = "no-device"


class LimitError(KernelwrightError):
    code = "limit"


class TimeLimitError(LimitError):
    code = "timeout"
    default_next = "try smaller inputs, or allow more time"


class MemoryLimitError(LimitError):
    code = "out-of-memory"
    default_next = "try smaller inputs, or a machine with more memory"


class CrashError(LimitError):
    code = "crash"
    default_next = "run the file by itself, without kw, to see what kills it"


class TamperingError(CrashError):
    code = "forged-answer"
    default_next = "return plain tensors, and leave the process around the program alone"


class InternalError(KernelwrightError):
    code = "internal"
    exit_code = 101
    default_next = "run it again with --debug and report what it says"


def error_types_by_code() -> dict[str, type[KernelwrightError]]:
    """Every error class of the tree by its code, so that an error can cross a process boundary."""
    found, todo = {}, [KernelwrightError]
    while todo:
        cls = todo.pop()
        found[cls.code] = cls
        todo.extend(cls.__subclasses__())
    return found
