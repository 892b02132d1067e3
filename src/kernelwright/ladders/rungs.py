"""Rungs of a ladder: source files such as `03_shared_tile.cu`, whose header states why they exist.

// rung: question   What does ... cost?
// rung: hypothesis The expected effect with a number; a field may span several lines.
// rung: next       What to try next, from its measurements and machine code.
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
_TENSOR_MAP = re.compile(r"^//\s*kw:\s*map\b", re.MULTILINE)
_LINE = re.compile(r"^//\s*rung:\s*(\w+)\s+(.*?)\s*$", re.MULTILINE)


@dataclass(frozen=True)
class Rung:
    """One rung of a ladder; `number` counts from 1, `title` is the first line of the source."""

    ladder: str
    number: int
    name: str
    path: Path
    title: str
    question: str
    hypothesis: str
    next: str


def ladder_names() -> list[str]:
    """Names of all ladders, sorted."""
    return sorted(folder.name for folder in LADDERS_DIR.iterdir() if folder.is_dir() and any(_source_files(folder)))


def read_rungs(ladder: str) -> list[Rung]:
    """Read the rungs of a ladder, in order.

    Raises:
        NotFoundError: no such ladder. UsageError: a source lacks a header field.
    """
    folder = LADDERS_DIR / ladder
    if ladder not in ladder_names():
        raise NotFoundError(f"no ladder {ladder!r}", next=f"there are {', '.join(ladder_names())}")
    return [_parse_rung(ladder, path) for path in sorted(_source_files(folder))]


def find_rung(ladder: str, selector: str) -> Rung:
    """Find a rung by its number, name or file stem.

    Raises:
        NotFoundError: no such rung.
    """
    rungs = read_rungs(ladder)
    for rung in rungs:
        if selector in (str(rung.number), rung.name, rung.path.stem):
            return rung
    names = ", ".join(f"{rung.number} {rung.name}" for rung in rungs)
    raise NotFoundError(f"no rung {selector!r} in {ladder}", next=f"there are {names}")


def _source_files(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.suffix in SUFFIXES and _FILE.fullmatch(path.stem)]


def _parse_rung(ladder: str, path: Path) -> Rung:
    text = path.read_text(encoding="utf-8")
    lines = _LINE.findall(text)
    fields = {field: " ".join(value for name, value in lines if name == field) for field in HEADER_FIELDS}
    if missing := [field for field in HEADER_FIELDS if not fields[field]]:
        raise UsageError(f"{path} has no `// rung: {missing[0]}`", where=str(path))
    number, name = _FILE.fullmatch(path.stem).groups()  # type: ignore[union-attr]  # `_source_files` has matched it
    title = text.splitlines()[0].removeprefix("//").strip()
    return Rung(ladder, int(number), name, path, title, **fields)


def task_path(ladder: str) -> Path:
    """Path of a ladder's problem module: reference, baseline and sizes."""
    return LADDERS_DIR / ladder / f"{ladder}.py"


def ladder_device(ladder: str) -> str:
    """Device of a ladder: `cuda` for CUDA C++ sources, else `cpu`."""
    return "cuda" if read_rungs(ladder)[0].path.suffix == ".cu" else "cpu"


def needs_tma(ladder: str) -> bool:
    """Whether a ladder's rungs use tensor maps: only a GPU with TMA can run them, nothing emulates them."""
    return any(_TENSOR_MAP.search(rung.path.read_text(encoding="utf-8")) for rung in read_rungs(ladder))
