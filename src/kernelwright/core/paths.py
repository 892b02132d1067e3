"""Whether a file can be written, known before the work and not after it."""

from __future__ import annotations

import tempfile
from pathlib import Path

from kernelwright.core.errors import UsageError


def require_writable(path: Path, option: str) -> None:
    """
    Args:
        option: with which a person names the file, such as `--out`.
    Raises:
        UsageError: it is a folder, or its folder is missing or takes no new files.
    """
    elsewhere = f"name a file in a folder that can be written: {option} FILE"
    if path.is_dir():
        raise UsageError(f"cannot write {path}: it is a folder", next=elsewhere)
    if not path.parent.is_dir():
        raise UsageError(f"cannot write {path}: no folder {path.parent}", next=elsewhere)
    try:
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as fault:  # closed, read-only, full, or no place for files though it looks like one, as /proc
        raise UsageError(f"cannot write {path}: its folder takes no new files", next=elsewhere) from fault
