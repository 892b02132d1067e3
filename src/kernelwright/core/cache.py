"""The cache folder: content-addressed entries, written atomically."""

from __future__ import annotations

import hashlib
import os
import secrets
from pathlib import Path

from kernelwright.core.errors import SetupError

READ_ONLY_CACHE = "KERNELWRIGHT_READ_ONLY_CACHE"
"""Variable with the root of a second cache, which a sandboxed process reads and cannot write."""


def cache_dir(kind: str) -> Path:
    """Return the folder of one kind of entry, creating it if needed; `KERNELWRIGHT_CACHE` sets the root.

    Raises:
        SetupError: the folder cannot be created or is not writable.
    """
    root = os.environ.get("KERNELWRIGHT_CACHE")
    folder = (Path(root) if root else Path.home() / ".cache" / "kernelwright") / kind
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unwritable(folder, error.strerror) from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise _unwritable(folder, "Permission denied")
    return folder


def compiler_folders(folder: Path) -> dict[str, str]:
    """The variables that direct what torch.compile and Triton compile into a folder."""
    return {"TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"), "TRITON_CACHE_DIR": str(folder / "triton")}


def read_only_entry(entry: Path) -> Path | None:
    """The path of an entry in the read-only cache; None if there is no such cache."""
    root = os.environ.get(READ_ONLY_CACHE)
    return Path(root, entry.parent.name, entry.name) if root else None


def _unwritable(folder: Path, reason: str | None) -> SetupError:
    return SetupError(
        f"cannot write to the cache folder {folder}: {reason}",
        next="set a writable folder: KERNELWRIGHT_CACHE=DIR kw ...",
    )


def digest(*parts: str | bytes) -> str:
    """Return a short content hash over length-prefixed parts, so that moving a boundary changes the hash."""
    hasher = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        hasher.update(len(data).to_bytes(8, "little") + data)
    return hasher.hexdigest()[:24]


def write_atomic(path: Path, data: bytes) -> None:
    """Write a file atomically: readers see the old or the new content, also with concurrent writers.

    Raises:
        SetupError: the folder is not writable, or the disk is full.
    """
    partial = path.with_name(f".partial-{os.getpid()}-{secrets.token_hex(4)}")
    try:
        partial.write_bytes(data)
        partial.replace(path)
    except OSError as error:
        raise _unwritable(path.parent, error.strerror) from error
    finally:
        partial.unlink(missing_ok=True)
