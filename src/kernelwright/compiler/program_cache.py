"""What torch.compile and Triton compile for one program, in a folder of its own: other processes find it there."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kernelwright.core.cache import cache_dir, compiler_folders, digest
from kernelwright.problems.importing import split_target

MAX_PROGRAMS = 200
"""Folders that are kept, each of some 10 MB."""


def program_cache(target: str) -> Path:
    """The folder of the program that is loaded from `target`, creating it if needed; the oldest ones are deleted."""
    path = Path(split_target(target)[0])
    text = path.read_bytes() if path.is_file() else target.encode()
    folder = cache_dir("compiled") / digest(text)
    folder.mkdir(exist_ok=True)
    os.utime(folder)
    for old in sorted(folder.parent.iterdir(), key=os.path.getmtime, reverse=True)[MAX_PROGRAMS:]:
        shutil.rmtree(old, ignore_errors=True)
    return folder


@contextmanager
def using_program_cache(folder: Path) -> Iterator[None]:
    """Let torch.compile and Triton read and write a folder, here and in processes that are started within the block."""
    folders = compiler_folders(folder)
    before = {name: os.environ.get(name) for name in folders}
    os.environ.update(folders)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value
