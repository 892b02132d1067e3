"""What a compiler made, kept by what it was made from, and trusted only while its bytes are what they were.

`KEY` names the content that belongs to a source, its flags and a compiler; `LABEL-CONTENT.SUFFIX` is that content. The
content is written before the entry that names it and both appear whole, so any number of processes may compile the same
source at once; a file that was cut short is made again.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import NamedTuple

from kernelwright.core.cache import write_atomic

MAX_LABEL_LENGTH = 40


class CacheEntry(NamedTuple):
    path: Path
    content: bytes
    note: str


def load_entry(entry: Path) -> CacheEntry | None:
    """What an entry names, with its note, if both are there and the bytes have the hash in their name."""
    try:
        name, _, note = entry.read_text().partition("\n")
        path = entry.with_name(name)
        content = path.read_bytes()
    except (OSError, ValueError):
        return None
    return CacheEntry(path, content, note) if path.stem.endswith(f"-{hashlib.sha256(content).hexdigest()}") else None


def save_entry(entry: Path, content: bytes, label: str, suffix: str, note: str = "") -> CacheEntry:
    """Writes a content under a name that people recognise, then the entry that names it."""
    name = re.sub(r"\W", "_", label)[:MAX_LABEL_LENGTH]
    path = entry.with_name(f"{name}-{hashlib.sha256(content).hexdigest()}{suffix}")
    write_atomic(path, content)
    write_atomic(entry, f"{path.name}\n{note}".encode())
    return CacheEntry(path, content, note)
