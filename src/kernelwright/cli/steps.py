"""Commands to run next, as they are typed."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path


def format_command(*words: str, device: str = "cpu", options: Sequence[str] = ()) -> str:
    """`kw` with these words and options, on the device unless that is the default."""
    on = ["--device", device] if device != "cpu" else []
    return shlex.join(["kw", *words, *on, *options])


def find_candidate_file(name: str, files: Sequence[str]) -> str | None:
    """The file of a candidate that a report calls by its name: the only one, or the one of that stem."""
    if len(files) == 1:
        return files[0]
    return next((file for file in files if Path(file.partition(":")[0]).stem == name.partition(" (")[0]), None)
