"""Files that a CUDA source includes; their content is part of the compiler's cache key."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

INCLUDE_DIR = Path(__file__).resolve().parent.parent / "include"
"""This package's device headers: small named wrappers of PTX instructions."""
_INCLUDED = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"]+)"', re.MULTILINE)


def read_includes(source: str, folders: Sequence[Path]) -> dict[Path, str]:
    """Read every file that a source includes with quotes, directly or transitively.

    Headers in angle brackets belong to the compiler and are covered by its version. A file that is in none of the
    folders is skipped: the compiler reports it.

    Returns:
        The text of each file by its path.
    """
    texts: dict[Path, str] = {}
    todo = [(name, None) for name in _INCLUDED.findall(source)]
    while todo:
        name, own_folder = todo.pop()
        search = [*([own_folder] if own_folder else []), *folders]
        path = next((folder / name for folder in search if (folder / name).is_file()), None)
        if path is None or path in texts:
            continue
        texts[path] = path.read_text(encoding="utf-8", errors="replace")
        todo += [(inner, path.parent) for inner in _INCLUDED.findall(texts[path])]
    return texts
