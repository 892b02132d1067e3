"""What a command returns, and how it writes the commands to run next."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Literal, TypeVar

import msgspec

from kernelwright.core.errors import UsageError

T = TypeVar("T", bound=msgspec.Struct)
Status = Literal["ok", "finding"]
DEVICES = ("cpu", "cuda", "emulated")


@dataclass(frozen=True)
class CommandResult(Generic[T]):
    """The record of a command.

    Attributes:
        status: `finding` if something was rejected, slower, suspicious or not current.
        next: commands to run next, and advice that is no command.
    """

    record: T
    status: Status = "ok"
    next: tuple[str, ...] = ()


def select_device(device: str) -> str:
    """`cpu` or `cuda`. CUDA C++ that is emulated runs on the CPU. On `cuda` the examples take their larger size.

    Raises:
        UsageError: unknown device.
    """
    if device not in DEVICES:
        raise UsageError(f"no device {device!r}; there are {', '.join(DEVICES)}")
    if device == "cuda":
        os.environ.setdefault("KW_SIZE", "gpu")
    return "cpu" if device == "emulated" else device


def format_command(*words: str, device: str = "cpu", options: Sequence[str] = ()) -> str:
    """`kw` with these words and options, and `--device` unless it is the default."""
    on = ["--device", device] if device != "cpu" else []
    return shlex.join(["kw", *words, *on, *options])


def find_candidate_file(name: str, files: Sequence[str]) -> str | None:
    """The file of the candidate that a record names: the only one, or the one with that stem."""
    if len(files) == 1:
        return files[0]
    return next((file for file in files if Path(file.partition(":")[0]).stem == name.partition(" (")[0]), None)
