"""Cache of compiler output, keyed by source, flags and compiler, and verified by hash on every load.

The entry file `KEY` holds the name of the artifact `LABEL-SHA256.SUFFIX`. The artifact is written before its entry and
both writes are atomic, so any number of processes may compile the same source concurrently; a truncated artifact is
compiled again.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import NamedTuple

from kernelwright.core.cache import read_only_entry, write_atomic

MAX_LABEL_LENGTH = 40


class CacheEntry(NamedTuple):
    """A cached artifact: its path, its bytes and the note stored with it, such as compiler warnings."""

    path: Path
    content: bytes
    note: str


def load_entry(entry: Path) -> CacheEntry | None:
    """Load the artifact of an entry, also from the read-only cache.

    Returns:
        None if a file is missing or the bytes do not match the hash in their name.
    """
    shared = read_only_entry(entry)
    return _read_entry(entry) or (_read_entry(shared) if shared else None)


def _read_entry(entry: Path) -> CacheEntry | None:
    try:
        name, _, note = entry.read_text().partition("\n")
        path = entry.with_name(name)
        content = path.read_bytes()
    except (OSError, ValueError):
        return None
    return CacheEntry(path, content, note) if path.stem.endswith(f"-{hashlib.sha256(content).hexdigest()}") else None


def save_entry(entry: Path, content: bytes, label: str, suffix: str, note: str = "") -> CacheEntry:
    """Write an artifact under a readable name, then the entry that points to it."""
    name = re.sub(r"\W", "_", label)[:MAX_LABEL_LENGTH]
    path = entry.with_name(f"{name}-{hashlib.sha256(content).hexdigest()}{suffix}")
    write_atomic(path, content)
    write_atomic(entry, f"{path.name}\n{note}".encode())
    return CacheEntry(path, content, note)
