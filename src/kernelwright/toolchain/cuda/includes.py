"""The files that a source includes, and their content, which is part of what its machine code is made from."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

INCLUDE_DIR = Path(__file__).resolve().parent.parent / "include"
"""Where this package's own headers are: small named functions around PTX."""
_INCLUDED = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"]+)"', re.MULTILINE)


def read_includes(source: str, folders: Sequence[Path]) -> dict[Path, str]:
    """Every file that a source includes in quotation marks, directly or through others, with its text.

    The compiler's own headers, in angle brackets, go with its version. A file that no folder holds is left to the
    compiler to miss.
    """
    found: dict[Path, str] = {}
    todo = [(name, None) for name in _INCLUDED.findall(source)]
    while todo:
        name, beside = todo.pop()
        places = [*([beside] if beside else []), *folders]
        path = next((place / name for place in places if (place / name).is_file()), None)
        if path is None or path in found:
            continue
        found[path] = path.read_text(encoding="utf-8", errors="replace")
        todo += [(inner, path.parent) for inner in _INCLUDED.findall(found[path])]
    return found
