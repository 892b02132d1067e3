"""A rung is one source file: `03_shared_tile.cu`. Its head says why it exists.

// rung: question   What does it cost that ...?
// rung: hypothesis What is expected, and by how much; it may take several lines.
// rung: next       What its reading says to do next.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from kernelwright.core.errors import NotFoundError, UsageError

LADDERS_DIR = Path(__file__).resolve().parent
SUFFIXES = (".cu", ".cpp")
HEADER_FIELDS = ("question", "hypothesis", "next")
_FILE = re.compile(r"(\d\d)_(\w+)")
_LINE = re.compile(r"^//\s*rung:\s*(\w+)\s+(.*?)\s*$", re.MULTILINE)


@dataclass(frozen=True)
class Rung:
    """One step of a ladder: `number` counts from 1, `title` is the first line of its source."""

    ladder: str
    number: int
    name: str
    path: Path
    title: str
    question: str
    hypothesis: str
    next: str


def ladder_names() -> list[str]:
    return sorted(folder.name for folder in LADDERS_DIR.iterdir() if folder.is_dir() and any(_source_files(folder)))


def read_rungs(ladder: str) -> list[Rung]:
    """The rungs of a ladder, from the ground.

    Raises:
        NotFoundError: no such ladder. UsageError: a source without its head.
    """
    folder = LADDERS_DIR / ladder
    if ladder not in ladder_names():
        raise NotFoundError(f"no ladder {ladder!r}", next=f"there are {', '.join(ladder_names())}")
    return [_parse_rung(ladder, path) for path in sorted(_source_files(folder))]


def find_rung(ladder: str, selector: str) -> Rung:
    """One rung, by its number or its name.

    Raises:
        NotFoundError: there is none.
    """
    there = read_rungs(ladder)
    for one in there:
        if selector in (str(one.number), one.name, one.path.stem):
            return one
    known = ", ".join(f"{one.number} {one.name}" for one in there)
    raise NotFoundError(f"no rung {selector!r} in {ladder}", next=f"there are {known}")


def _source_files(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.suffix in SUFFIXES and _FILE.fullmatch(path.stem)]


def _parse_rung(ladder: str, path: Path) -> Rung:
    text = path.read_text(encoding="utf-8")
    said = {word: " ".join(line for kind, line in _LINE.findall(text) if kind == word) for word in HEADER_FIELDS}
    if missing := [word for word in HEADER_FIELDS if not said[word]]:
        raise UsageError(f"{path} has no `// rung: {missing[0]}`", where=str(path))
    number, name = _FILE.fullmatch(path.stem).groups()  # type: ignore[union-attr]  # `_files` has matched it
    title = text.splitlines()[0].removeprefix("//").strip()
    return Rung(ladder, int(number), name, path, title, **said)


def task_path(ladder: str) -> Path:
    """The module that says what a ladder computes: its reference, its peer, its sizes."""
    return LADDERS_DIR / ladder / f"{ladder}.py"


def ladder_device(ladder: str) -> str:
    """`cuda` for a ladder in CUDA C++, else `cpu`."""
    return "cuda" if read_rungs(ladder)[0].path.suffix == ".cu" else "cpu"
