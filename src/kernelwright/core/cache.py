"""The one cache folder: content-addressed, atomic, and never trusted without a check."""

from __future__ import annotations

import hashlib
import os
import secrets
from pathlib import Path

from kernelwright.core.errors import SetupError


def cache_dir(kind: str) -> Path:
    """The folder of one kind of entry, made when missing; `KERNELWRIGHT_CACHE` moves the root.

    Raises:
        SetupError: it cannot be made, or not be written.
    """
    root = os.environ.get("KERNELWRIGHT_CACHE")
    folder = (Path(root) if root else Path.home() / ".cache" / "kernelwright") / kind
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as fault:
        raise _unwritable(folder, fault.strerror) from fault
    if not os.access(folder, os.W_OK | os.X_OK):
        raise _unwritable(folder, "Permission denied")
    return folder


def _unwritable(folder: Path, reason: str | None) -> SetupError:
    return SetupError(
        f"cannot write into the cache folder {folder}: {reason}",
        next="name a folder that can be written: KERNELWRIGHT_CACHE=DIR kw ...",
    )


def digest(*parts: str | bytes) -> str:
    """A short content hash over parts, each with its length, so that parts cannot run together."""
    state = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        state.update(len(data).to_bytes(8, "little") + data)
    return state.hexdigest()[:24]


def write_atomic(path: Path, data: bytes) -> None:
    """Writes the whole file or nothing: a reader never sees half of it, and two writers cannot mix.

    Raises:
        SetupError: the folder cannot be written, or the disk is full.
    """
    partial = path.with_name(f".partial-{os.getpid()}-{secrets.token_hex(4)}")
    try:
        partial.write_bytes(data)
        partial.replace(path)
    except OSError as fault:
        raise _unwritable(path.parent, fault.strerror) from fault
    finally:
        partial.unlink(missing_ok=True)
