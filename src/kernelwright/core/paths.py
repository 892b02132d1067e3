"""Check that an output file can be written before the work starts."""

from __future__ import annotations

import tempfile
from pathlib import Path

from kernelwright.core.errors import UsageError


def require_writable(path: Path, option: str) -> None:
    """Raise unless `path` can be created or replaced.

    Args:
        option: the option that sets the file, such as `--out`, for the message.
    Raises:
        UsageError: the path is a folder, or its folder is missing or not writable.
    """
    next_step = f"choose a file in a writable folder: {option} FILE"
    if path.is_dir():
        raise UsageError(f"cannot write {path}: it is a folder", next=next_step)
    if not path.parent.is_dir():
        raise UsageError(f"cannot write {path}: no folder {path.parent}", next=next_step)
    try:
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:  # no permission, read-only, full, or a file system without regular files, such as /proc
        raise UsageError(f"cannot write {path}: its folder is not writable", next=next_step) from error
