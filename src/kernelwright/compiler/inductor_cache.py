"""What torch.compile compiles for one program, in a folder of its own: other processes find it there."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from kernelwright.core.cache import cache_dir, digest
from kernelwright.problems.importing import split_target

VARIABLE = "TORCHINDUCTOR_CACHE_DIR"


@dataclass(frozen=True)
class InductorCache:
    """The folder of a program."""

    folder: Path

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Let torch.compile read and write it, here and in processes that are started within the block."""
        self.folder.mkdir(parents=True, exist_ok=True)
        before = os.environ.get(VARIABLE)
        os.environ[VARIABLE] = str(self.folder)
        try:
            yield
        finally:
            os.environ.pop(VARIABLE)
            if before is not None:
                os.environ[VARIABLE] = before


def inductor_cache(target: str) -> InductorCache:
    """The folder of the program that is loaded from `target`."""
    path = Path(split_target(target)[0])
    text = path.read_bytes() if path.is_file() else target.encode()
    return InductorCache(cache_dir("inductor") / digest(text))
