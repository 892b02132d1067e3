"""The tree of errors that kernelwright reports to the user.

KernelwrightError
├── UsageError                the request is invalid                       exit 2
│   ├── NotFoundError         a missing file, name or machine
│   ├── LayoutError           an invalid layout (defined in layouts)
│   ├── ProblemError          the reference program does not load or run
│   └── CandidateError        the candidate does not load (verify turns it into a rejection)
│       ├── CompileError      the source does not compile
│       └── SignatureError    its arguments or parameters differ from the reference's
├── SetupError                this machine lacks a requirement             exit 2
│   ├── MissingDependency     a package that an extra installs
│   └── DeviceError           no such device on this machine
├── LimitError                a process was stopped or died                exit 2
│   ├── TimeLimitError
│   ├── MemoryLimitError
│   └── CrashError            a signal or an abort
│       └── TamperingError    the process reported a forged result
└── InternalError             our own bug                                  exit 101
"""

from __future__ import annotations


class KernelwrightError(Exception):
    """An error with its value in the message, a stable code, and the next step.

    Args:
        message: what is wrong, with the offending value.
        next: one step per line: a command that runs unchanged, or a sentence; or only options to add to the command
            that failed (`--device cpu`). A JSON document lists commands in `next` and sentences in `advice`.
        where: the file, line or stage of the error.
    """

    code = "error"
    exit_code = 2
    default_next = "kw --help"

    def __init__(self, message: str, *, next: str = "", where: str = "") -> None:
        super().__init__(message)
        self.message, self.next, self.where = message, next or self.default_next, where


class UsageError(KernelwrightError):
    """The request is invalid."""

    code = "usage"


class NotFoundError(UsageError):
    """A file, name or machine does not exist."""

    code = "not-found"


class ProblemError(UsageError):
    """The reference program does not load or run."""

    code = "problem-error"


class CandidateError(UsageError):
    """The candidate does not load."""

    code = "candidate-error"


class CompileError(CandidateError):
    """The candidate's source does not compile."""

    code = "compile-error"


class SignatureError(CandidateError):
    """The candidate's arguments or parameters differ from the reference's."""

    code = "wrong-parameters"


class SetupError(KernelwrightError):
    """This machine lacks a requirement."""

    code = "environment"


class MissingDependency(SetupError):
    """A package of an optional extra is not installed."""

    code = "missing-dependency"


class DeviceError(SetupError):
    """The device does not exist on this machine."""

    code = "no-device"


class LimitError(KernelwrightError):
    """A process exceeded a limit or died."""

    code = "limit"


class TimeLimitError(LimitError):
    """A process exceeded its time limit."""

    code = "timeout"
    default_next = "use smaller inputs, or a higher time limit"


class MemoryLimitError(LimitError):
    """A process ran out of memory."""

    code = "out-of-memory"
    default_next = "use smaller inputs, or a machine with more memory"


class CrashError(LimitError):
    """A process died from a signal or an abort."""

    code = "crash"
    default_next = "run the file by itself, without kw, to see the cause"


class TamperingError(CrashError):
    """A process reported a forged result."""

    code = "forged-answer"
    default_next = "return plain tensors and do not modify the process that runs the program"


class InternalError(KernelwrightError):
    """A bug in kernelwright."""

    code = "internal"
    exit_code = 101
    default_next = "run the command again with --debug and report its output"


def error_types_by_code() -> dict[str, type[KernelwrightError]]:
    """Map every error code to its class, to rebuild an error from another process."""
    types, todo = {}, [KernelwrightError]
    while todo:
        cls = todo.pop()
        types[cls.code] = cls
        todo.extend(cls.__subclasses__())
    return types
