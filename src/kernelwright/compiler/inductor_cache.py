"""What torch.compile compiles for one program, in a folder of its own: other processes find it there."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kernelwright.core.cache import cache_dir, digest
from kernelwright.problems.importing import split_target

VARIABLE = "TORCHINDUCTOR_CACHE_DIR"


def inductor_cache(target: str) -> Path:
    """The folder of the program that is loaded from `target`, creating it if needed."""
    path = Path(split_target(target)[0])
    text = path.read_bytes() if path.is_file() else target.encode()
    folder = cache_dir("inductor") / digest(text)
    folder.mkdir(exist_ok=True)
    return folder


@contextmanager
def using_inductor_cache(folder: Path) -> Iterator[None]:
    """Let torch.compile read and write a folder, here and in processes that are started within the block."""
    before = os.environ.get(VARIABLE)
    os.environ[VARIABLE] = str(folder)
    try:
        yield
    finally:
        os.environ.pop(VARIABLE)
        if before is not None:
            os.environ[VARIABLE] = before
