"""Results of a long run, written line by line to one file, so that an interrupted run loses none of them."""

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
    """JSON lines of records of one type; each record is appended complete_lines and synced to disk.

    A context manager that locks the file for one writer. A partial last line of a killed writer is removed.

    Args:
        path: created if missing.
        record_type: the type of the records, or a union of tagged types.
    Raises:
        UsageError: the file cannot be written, another process writes it, or it contains something else.
    """

    def __init__(self, path: Path, record_type: Any, *, option: str) -> None:
        require_writable(path, option)
        self._path, self._record_type, self._option = path, record_type, option
        self._file = -1

    def __enter__(self) -> ResultsLog[T]:
        with contextlib.ExitStack() as cleanup:
            try:
                self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
            except OSError as error:
                raise UsageError(f"cannot write {self._path}: {error.strerror}", next=f"{self._option} FILE") from error
            cleanup.callback(os.close, self._file)
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                message = f"another run is writing {self._path}"
                raise UsageError(message, next=f"wait for it, or {self._option} FILE") from error
            data = self._path.read_bytes()
            complete_lines = data[: data.rfind(b"\n") + 1]
            self.records = list(self._decode_lines(complete_lines))
            os.ftruncate(self._file, len(complete_lines))
            cleanup.pop_all()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        os.close(self._file)

    def _decode_lines(self, complete_lines: bytes) -> Iterator[T]:
        for number, line in enumerate(complete_lines.splitlines(), 1):
            try:
                yield msgspec.convert(msgspec.json.decode(line), self._record_type, strict=False)
            except msgspec.MsgspecError as error:
                message = f"line {number} of {self._path} is not a result of such a run: {error}"
                raise UsageError(message, next=f"{self._option} FILE, with a new file") from error

    def append(self, record: T) -> None:
        """Write a record and sync it to disk."""
        line = msgspec.json.encode(_encode_non_finite(msgspec.to_builtins(record))) + b"\n"
        os.write(self._file, line)
        os.fsync(self._file)
        self.records.append(record)


def _encode_non_finite(value: Any) -> Any:
    """Replace numbers that JSON cannot represent by their names, which are decoded to numbers again."""
    match value:
        case float() if not math.isfinite(value):
            return _NON_FINITE_NAMES.get(value, "nan")
        case dict():
            return {key: _encode_non_finite(one) for key, one in value.items()}
        case list() | tuple():
            return [_encode_non_finite(one) for one in value]
    return value
