"""Pair folders of problems with candidates, without running either.

A problem is any Python file that defines what `loading` requires. Its candidates have its name and relative path: for
`level1/19_ReLU.py` these are `level1/19_ReLU.cpp`, `level1/19_ReLU_v2.py`, everything in the folder `level1/19_ReLU/`,
and, if no other problem has that name, `19_ReLU.py`; also `level_1_problem_19_sample_0_kernel.py`, as written by
KernelBench. Without a folder of candidates, a problem's file holds its own, `ModelNew`.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kernelwright.core.errors import NotFoundError
from kernelwright.problems.candidate_loaders import SOURCE_LOADERS

_KERNELBENCH_SAMPLE = re.compile(r"level_(\d+)_problem_(\d+)_sample_\d+(_kernel)?")


@dataclass(frozen=True)
class CandidatePair:
    """Files and names of a problem and a candidate for it."""

    problem: str
    candidate: str
    problem_file: Path
    candidate_file: Path


@dataclass(frozen=True)
class PairingResult:
    """Candidates paired with problems.

    Attributes:
        pairs: sorted by problem and candidate.
        problems_without_candidate: names of the problems without one.
        candidates_without_problem: files that match no problem.
        unreadable_files: Python files that cannot be parsed.
    """

    pairs: tuple[CandidatePair, ...]
    problems_without_candidate: tuple[str, ...]
    candidates_without_problem: tuple[str, ...]
    unreadable_files: tuple[str, ...]


def find_pairs(folder: str, candidates: str | None = None) -> PairingResult:
    """Pair every candidate with its problem by name.

    Raises:
        NotFoundError: the folder does not exist, or holds no problem or no candidate.
    """
    root = _folder(folder)
    candidate_root = _folder(candidates) if candidates else None
    nested = candidate_root if candidate_root != root else None
    files = [path for path in _source_files(root, {".py"}) if not (nested and nested in path.parents)]
    names = {path: _top_level_names(path) for path in files}
    problems = {path: _relative_name(path, root) for path in files if _is_problem(path, names[path])}
    if not problems:
        raise NotFoundError(
            f"no problem among {len(files)} Python files in {folder}",
            next="a problem file defines Model and get_inputs(), or a function of the file's name and get_inputs()",
        )
    if candidate_root is None:
        matches = [(path, path) for path in problems if "ModelNew" in (names[path] or ())]
        unmatched: tuple[str, ...] = ()
    else:
        candidate_files = [path for path in _source_files(candidate_root, set(SOURCE_LOADERS)) if path not in problems]
        matcher = _ProblemMatcher(problems)
        matches = [(found, path) for path in candidate_files if (found := matcher.find_problem(path, candidate_root))]
        paired = {path for _, path in matches}
        unmatched = tuple(str(path.relative_to(candidate_root)) for path in candidate_files if path not in paired)
    if not matches:
        named, alone = f"no file in {candidates} has the name of", "no file defines ModelNew next to the Model of"
        raise NotFoundError(
            f"{named if candidate_root else alone} any of the {len(problems)} problems in {folder}",
            next=f"name candidates like the problems: kw suite run {folder} --candidates DIR",
        )
    pairs = [CandidatePair(problems[a], str(b.relative_to(candidate_root or root)), a, b) for a, b in matches]
    matched = {pair.problem for pair in pairs}
    return PairingResult(
        pairs=tuple(sorted(pairs, key=lambda one: (_natural_key(one.problem), _natural_key(one.candidate)))),
        problems_without_candidate=tuple(
            sorted((one for one in problems.values() if one not in matched), key=_natural_key)
        ),
        candidates_without_problem=unmatched,
        unreadable_files=tuple(
            str(path.relative_to(root)) for path in files if path not in problems and names[path] is None
        ),
    )


def _folder(name: str) -> Path:
    path = Path(name).absolute()
    if not path.is_dir():
        raise NotFoundError(f"no folder {name}", next="name a folder that exists: kw suite run DIR [--candidates DIR]")
    return path


def _source_files(root: Path, suffixes: set[str]) -> list[Path]:
    """Files with these suffixes; hidden folders and files that begin with an underscore are ignored."""
    files = (path for path in sorted(root.rglob("*")) if path.suffix in suffixes and path.is_file())
    return [path for path in files if not any(part[0] in "._" for part in path.relative_to(root).parts)]


def _relative_name(path: Path, root: Path) -> str:
    return str(path.relative_to(root).with_suffix(""))


def _top_level_names(path: Path) -> set[str] | None:
    """Names that a file defines or imports at top level; None if it cannot be parsed."""
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
    """Finds the problem of a candidate file by path, name or number."""

    def __init__(self, problems: dict[Path, str]) -> None:
        self._by_place = {name: path for path, name in problems.items()}
        stems = Counter(path.stem for path in problems)
        self._by_stem = {path.stem: path for path in problems if stems[path.stem] == 1}
        self._by_number = {number: path for path in problems if (number := _level_and_number(path))}

    def find_problem(self, path: Path, root: Path) -> Path | None:
        """The problem of a candidate file under `root`; None if none matches."""
        location = path.relative_to(root).with_suffix("")
        if sample := _KERNELBENCH_SAMPLE.fullmatch(path.stem):
            return self._by_number.get((sample[1], sample[2]))
        for one in (location, *(parent for parent in location.parents if parent.name)):
            for name in _name_prefixes(one.name):
                if found := self._by_place.get(str(one.with_name(name))) or self._by_stem.get(name):
                    return found
        return None


def _name_prefixes(name: str) -> Iterator[str]:
    """The name and its prefixes: softmax_triton_v2, softmax_triton, softmax."""
    while name:
        yield name
        name = name.rpartition("_")[0]


def _level_and_number(path: Path) -> tuple[str, str] | None:
    """Level and number in a KernelBench path: 1 and 19 of `level1/19_ReLU.py`."""
    level, number = re.fullmatch(r"level_?(\d+)", path.parent.name), re.match(r"(\d+)_", path.stem)
    return (level[1], number[1]) if level and number else None


def _natural_key(name: str) -> list[tuple[int, str]]:
    """Sort key that puts 2 before 10."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]
