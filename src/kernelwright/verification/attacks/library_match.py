"""Detects code of an installed library in a candidate's own code, by the bytes around its instructions."""

from __future__ import annotations

import contextlib
import functools
import mmap
import re
import site
import sysconfig
from collections.abc import Sequence
from pathlib import Path

MAX_CODE_SAMPLES = 6
MIN_LIBRARY_BYTES = 1 << 16
SYSTEM_FOLDERS = ("/usr/lib", "/usr/lib64", "/usr/local/lib", "/opt/intel", "/opt/homebrew/lib")
NUMERIC_LIBRARY_PATTERN = re.compile(
    r"blas|lapack|atlas|blis|mkl|dnn|fftw|gsl|armpl|sleef|xnnpack|eigen", re.IGNORECASE
)
EXCLUDED_PACKAGES = ("/nvidia/", "/triton/")
"""Packages whose libraries do not compute on the host."""


def find_library(code_samples: Sequence[bytes]) -> str | None:
    """The installed library that contains more than half of the code samples, or None."""
    samples = code_samples[:MAX_CODE_SAMPLES]
    for library in _numeric_libraries() if samples else ():
        if sum(_contains_samples(library, samples)) > len(samples) / 2:
            return library.name
    return None


def _contains_samples(library: Path, code_samples: Sequence[bytes]) -> list[bool]:
    with contextlib.suppress(OSError, ValueError), library.open("rb") as file:
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        return [data.find(sample) >= 0 for sample in code_samples]
    return []


@functools.cache
def _numeric_libraries() -> tuple[Path, ...]:
    """Libraries that compute, smallest first: all shared objects of Python packages, and system libraries with a
    numeric library's name."""
    packages = {sysconfig.get_path("platlib"), sysconfig.get_path("purelib"), *site.getsitepackages()}
    own = [
        one
        for folder in packages
        for one in _shared_objects(folder)
        if not any(part in str(one) for part in EXCLUDED_PACKAGES)
    ]
    system = [
        one for folder in SYSTEM_FOLDERS for one in _shared_objects(folder) if NUMERIC_LIBRARY_PATTERN.search(one.name)
    ]
    return tuple(sorted({*own, *system}, key=lambda one: one.stat().st_size))


def _shared_objects(folder: str) -> list[Path]:
    paths = [one for one in Path(folder).rglob("*.so*") if one.is_file() and not one.is_symlink()]
    return [one for one in paths if one.stat().st_size >= MIN_LIBRARY_BYTES]
