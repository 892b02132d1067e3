"""What a long run has found, line by line in one file, so that whoever is killed loses nothing that he knew."""

from __future__ import annotations

import contextlib
import fcntl
import math
import os
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, TypeVar

import msgspec

from kernelwright.core.errors import UsageError
from kernelwright.core.paths import require_writable

T = TypeVar("T", bound=msgspec.Struct)
_NON_FINITE_NAMES = {math.inf: "inf", -math.inf: "-inf"}


class ResultsLog(Generic[T]):
    """JSON lines of records of one type, appended whole and on the disk before anybody goes on.

    A context manager: one writer at a time. What a writer that was killed left of a last line is cut off.

    Args:
        path: made where it is missing.
        record_type: the type of the records, a union of tagged ones perhaps.
    Raises:
        UsageError: it cannot be written, somebody else writes it, or it holds other things.
    """

    def __init__(self, path: Path, record_type: Any, *, option: str) -> None:
        require_writable(path, option)
        self._path, self._record_type, self._option = path, record_type, option
        self._file = -1

    def __enter__(self) -> ResultsLog[T]:
        with contextlib.ExitStack() as undone:
            try:
                self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
            except OSError as fault:
                raise UsageError(f"cannot write {self._path}: {fault.strerror}", next=f"{self._option} FILE") from fault
            undone.callback(os.close, self._file)
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as fault:
                message = f"another run is writing {self._path}"
                raise UsageError(message, next=f"wait for it, or {self._option} FILE") from fault
            data = self._path.read_bytes()
            whole = data[: data.rfind(b"\n") + 1]
            self.records = list(self._decode_lines(whole))
            os.ftruncate(self._file, len(whole))
            undone.pop_all()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        os.close(self._file)

    def _decode_lines(self, whole: bytes) -> Iterator[T]:
        for number, line in enumerate(whole.splitlines(), 1):
            try:
                yield msgspec.convert(msgspec.json.decode(line), self._record_type, strict=False)
            except msgspec.MsgspecError as fault:
                message = f"line {number} of {self._path} is none of these results: {fault}"
                raise UsageError(message, next=f"{self._option} FILE, one that is not there yet") from fault

    def append(self, record: T) -> None:
        line = msgspec.json.encode(_encode_non_finite(msgspec.to_builtins(record))) + b"\n"
        os.write(self._file, line)
        os.fsync(self._file)
        self.records.append(record)


def _encode_non_finite(value: Any) -> Any:
    """Numbers that JSON has no letters for as their names, which are read as numbers again."""
    match value:
        case float() if not math.isfinite(value):
            return _NON_FINITE_NAMES.get(value, "nan")
        case dict():
            return {key: _encode_non_finite(one) for key, one in value.items()}
        case list() | tuple():
            return [_encode_non_finite(one) for one in value]
    return value
