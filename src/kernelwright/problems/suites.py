"""Folders of problems, and of candidates for them, without running either.

A problem is every Python file that defines what `loading` wants of one. Its candidates are the files that are called
like it, by their place in the folder: of `level1/19_ReLU.py` these are `level1/19_ReLU.cpp`, `level1/19_ReLU_v2.py`,
everything in the folder `level1/19_ReLU/`, and, where no other problem is called so, `19_ReLU.py`; besides
`level_1_problem_19_sample_0_kernel.py`, as KernelBench's own runs name it. Without a folder of candidates a problem's
file holds its own, `ModelNew`.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kernelwright.core.errors import NotFoundError
from kernelwright.problems.loaders import SOURCE_LOADERS

_KERNELBENCH_SAMPLE = re.compile(r"level_(\d+)_problem_(\d+)_sample_\d+(_kernel)?")


@dataclass(frozen=True)
class CandidatePair:
    """A problem's file and a candidate's, and what they are called."""

    problem: str
    candidate: str
    problem_file: Path
    candidate_file: Path


@dataclass(frozen=True)
class PairingResult:
    """
    Attributes:
        problems_without_candidate: problems without a candidate.
        candidates_without_problem: candidates without a problem.
        unreadable_files: Python files that are no problem.
    """

    pairs: tuple[CandidatePair, ...]
    problems_without_candidate: tuple[str, ...]
    candidates_without_problem: tuple[str, ...]
    unreadable_files: tuple[str, ...]


def find_pairs(folder: str, candidates: str | None = None) -> PairingResult:
    """Every candidate with its problem, by name.

    Raises:
        NotFoundError: there is no such folder, or no problem, or no candidate in it.
    """
    root = _folder(folder)
    within = _folder(candidates) if candidates else None
    files = [
        path for path in _source_files(root, {".py"}) if not (within and within != root and within in path.parents)
    ]
    names = {path: _top_level_names(path) for path in files}
    problems = {path: _relative_name(path, root) for path in files if _is_problem(path, names[path])}
    if not problems:
        raise NotFoundError(
            f"no problem among {len(files)} Python files in {folder}",
            next="a problem file defines Model and get_inputs(), or a function of the file's name and get_inputs()",
        )
    if within is None:
        found = [(path, path) for path in problems if "ModelNew" in (names[path] or ())]
        lost: tuple[str, ...] = ()
    else:
        others = [path for path in _source_files(within, set(SOURCE_LOADERS)) if path not in problems]
        match = _ProblemMatcher(problems)
        found = [(problem, path) for path in others if (problem := match.find_problem(path, within))]
        lost = tuple(str(path.relative_to(within)) for path in others if path not in {one for _, one in found})
    if not found:
        where = f"{candidates} has no file called like" if within else "no file holds a ModelNew beside the Model of"
        raise NotFoundError(
            f"{where} any of the {len(problems)} problems in {folder}",
            next=f"name them like the problems: kw suite run {folder} --candidates DIR",
        )
    pairs = [CandidatePair(problems[a], str(b.relative_to(within or root)), a, b) for a, b in found]
    had = {pair.problem for pair in pairs}
    return PairingResult(
        pairs=tuple(sorted(pairs, key=lambda one: (_natural_key(one.problem), _natural_key(one.candidate)))),
        problems_without_candidate=tuple(
            sorted((one for one in problems.values() if one not in had), key=_natural_key)
        ),
        candidates_without_problem=lost,
        unreadable_files=tuple(
            str(path.relative_to(root)) for path in files if path not in problems and names[path] is None
        ),
    )


def _folder(name: str) -> Path:
    path = Path(name).absolute()
    if not path.is_dir():
        raise NotFoundError(f"no folder {name}", next="name a folder that exists: kw suite run DIR [--candidates DIR]")
    return path


def _source_files(root: Path, wanted: set[str]) -> list[Path]:
    """Files with such a suffix; hidden folders and files that begin with an underscore are somebody's own affair."""
    found = (path for path in sorted(root.rglob("*")) if path.suffix in wanted and path.is_file())
    return [path for path in found if not any(part[0] in "._" for part in path.relative_to(root).parts)]


def _relative_name(path: Path, root: Path) -> str:
    return str(path.relative_to(root).with_suffix(""))


def _top_level_names(path: Path) -> set[str] | None:
    """What a file defines or imports at its top; None where it cannot be read."""
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError, OSError):
        return None
    return set(_iter_top_level_names(tree))


def _iter_top_level_names(tree: ast.Module) -> Iterator[str]:
    for node in tree.body:
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name):
                yield name
            case ast.Assign(targets=targets):
                yield from (one.id for one in targets if isinstance(one, ast.Name))
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                yield from (one.asname or one.name for one in names)


def _is_problem(path: Path, names: set[str] | None) -> bool:
    return bool(names) and bool({"Model", path.stem} & names) and bool({"get_inputs", f"{path.stem}_inputs"} & names)


class _ProblemMatcher:
    """Problems by every name that a candidate may have."""

    def __init__(self, problems: dict[Path, str]) -> None:
        self._by_place = {name: path for path, name in problems.items()}
        stems = Counter(path.stem for path in problems)
        self._by_stem = {path.stem: path for path in problems if stems[path.stem] == 1}
        self._by_number = {number: path for path in problems if (number := _level_and_number(path))}

    def find_problem(self, path: Path, root: Path) -> Path | None:
        place = path.relative_to(root).with_suffix("")
        if made := _KERNELBENCH_SAMPLE.fullmatch(path.stem):
            return self._by_number.get((made[1], made[2]))
        for one in (place, *(parent for parent in place.parents if parent.name)):
            for name in _name_prefixes(one.name):
                if found := self._by_place.get(str(one.with_name(name))) or self._by_stem.get(name):
                    return found
        return None


def _name_prefixes(name: str) -> Iterator[str]:
    """softmax_triton_v2, softmax_triton, softmax."""
    while name:
        yield name
        name = name.rpartition("_")[0]


def _level_and_number(path: Path) -> tuple[str, str] | None:
    """Of `level1/19_ReLU.py` 1 and 19."""
    level, number = re.fullmatch(r"level_?(\d+)", path.parent.name), re.match(r"(\d+)_", path.stem)
    return (level[1], number[1]) if level and number else None


def _natural_key(name: str) -> list[tuple[int, str]]:
    """2 before 10."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]
