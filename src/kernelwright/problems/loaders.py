"""One interface for candidates in every language: a suffix and who loads it.

To accept another language write a `SourceLoader` and name it in `SOURCE_LOADERS`, or `register_loader` it from outside.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Protocol

from kernelwright.core.errors import CandidateError
from kernelwright.problems.problem import Candidate, Problem


class SourceLoader(Protocol):
    """Makes a candidate from one source file."""

    def load(self, path: Path, name: str, problem: Problem, device: str) -> Candidate:
        """The candidate in `path`.

        Args:
            name: what the target named after the colon, or empty.
            device: where the candidate will run, `cpu` or `cuda`.
        Raises:
            CandidateError: it does not load or compile.
            SignatureError: it takes other arguments or parameters than the reference.
        """
        ...


# By the module that holds LOADER, so that a language costs nothing until a file of it is asked for.
SOURCE_LOADERS: dict[str, str | SourceLoader] = {
    ".py": "kernelwright.problems.python",
    ".cpp": "kernelwright.problems.cpp",
    ".cu": "kernelwright.problems.cuda",
}


def register_loader(suffix: str, loader: str | SourceLoader) -> None:
    """Accepts files that end in `suffix`; `loader` is one, or the module that holds it as `LOADER`."""
    SOURCE_LOADERS[suffix] = loader


def find_loader(path: Path) -> SourceLoader:
    """Who loads a file.

    Raises:
        CandidateError: nobody; lists the suffixes that are accepted.
    """
    loader = SOURCE_LOADERS.get(path.suffix)
    if loader is None:
        accepted = ", ".join(SOURCE_LOADERS)
        raise CandidateError(
            f"{path} ends in {path.suffix or 'nothing'!r}; candidates end in {accepted}", where=str(path)
        )
    return import_module(loader).LOADER if isinstance(loader, str) else loader
