"""Whether code that a candidate runs as its own lies in an installed library: by the bytes around its instructions."""

from __future__ import annotations

import contextlib
import functools
import mmap
import re
import site
import sysconfig
from collections.abc import Sequence
from pathlib import Path

MOST_PIECES = 6
LEAST_BYTES = 1 << 16
SYSTEM_FOLDERS = ("/usr/lib", "/usr/lib64", "/usr/local/lib", "/opt/intel", "/opt/homebrew/lib")
NUMERIC = re.compile(r"blas|lapack|atlas|blis|mkl|dnn|fftw|gsl|armpl|sleef|xnnpack|eigen", re.IGNORECASE)
OTHERS = ("/nvidia/", "/triton/")
"""Packages whose libraries compute nothing on the host."""


def holder(pieces: Sequence[bytes]) -> str | None:
    """The installed library in which more than half of some of these pieces lie."""
    asked = pieces[:MOST_PIECES]
    for library in _libraries() if asked else ():
        if sum(_finds(library, asked)) > len(asked) / 2:
            return library.name
    return None


def _finds(library: Path, pieces: Sequence[bytes]) -> list[bool]:
    with contextlib.suppress(OSError, ValueError), library.open("rb") as file:
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        return [data.find(piece) >= 0 for piece in pieces]
    return []


@functools.cache
def _libraries() -> tuple[Path, ...]:
    """Those that compute: all of Python's packages, and the system's that are called so; the small ones first."""
    packages = {sysconfig.get_path("platlib"), sysconfig.get_path("purelib"), *site.getsitepackages()}
    own = [
        one for folder in packages for one in _shared_objects(folder) if not any(part in str(one) for part in OTHERS)
    ]
    system = [one for folder in SYSTEM_FOLDERS for one in _shared_objects(folder) if NUMERIC.search(one.name)]
    return tuple(sorted({*own, *system}, key=lambda one: one.stat().st_size))


def _shared_objects(folder: str) -> list[Path]:
    found = [one for one in Path(folder).rglob("*.so*") if one.is_file() and not one.is_symlink()]
    return [one for one in found if one.stat().st_size >= LEAST_BYTES]
