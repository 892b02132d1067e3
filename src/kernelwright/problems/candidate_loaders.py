"""One interface for candidates in every language: file suffixes and their loaders.

To support another language, write a `SourceLoader` and add it to `SOURCE_LOADERS`, or call `register_loader`.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Protocol

from kernelwright.core.errors import CandidateError
from kernelwright.problems.problem import Candidate, Problem


class SourceLoader(Protocol):
    """Loads a candidate from one source file."""

    def load(self, path: Path, name: str, problem: Problem, device: str) -> Candidate:
        """Load the candidate in `path`.

        Args:
            name: the part of the target after the colon, or empty.
            device: where the candidate will run, `cpu` or `cuda`.
        Raises:
            CandidateError: it does not load or compile.
            SignatureError: it has other arguments or parameters than the reference.
        """
        ...


# By name of the module that holds LOADER, so that a language is imported only when it is used.
SOURCE_LOADERS: dict[str, str | SourceLoader] = {
    ".py": "kernelwright.problems.python",
    ".cpp": "kernelwright.problems.cpp",
    ".cu": "kernelwright.problems.cuda",
}


def register_loader(suffix: str, loader: str | SourceLoader) -> None:
    """Accept files with this suffix; `loader` is a SourceLoader or the name of a module with one as `LOADER`."""
    SOURCE_LOADERS[suffix] = loader


def find_loader(path: Path) -> SourceLoader:
    """The loader of a file, by its suffix.

    Raises:
        CandidateError: no loader accepts the suffix; lists those that are accepted.
    """
    loader = SOURCE_LOADERS.get(path.suffix)
    if loader is None:
        accepted = ", ".join(SOURCE_LOADERS)
        raise CandidateError(
            f"{path} ends in {path.suffix or 'nothing'!r}; candidates end in {accepted}", where=str(path)
        )
    return import_module(loader).LOADER if isinstance(loader, str) else loader
