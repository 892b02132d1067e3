"""C++ for the CPU: compile one source text to a shared library with the system compiler.

Libraries are cached by source, flags, compiler and CPU (`toolchain.artifact_cache`).
"""

from __future__ import annotations

import functools
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from kernelwright.core.cache import cache_dir, digest
from kernelwright.core.errors import MissingDependency
from kernelwright.toolchain.artifact_cache import load_entry, save_entry
from kernelwright.toolchain.compiler_errors import parse_compile_error

IS_MACOS = sys.platform == "darwin"
OPENMP_FLAG = "-fopenmp"
FLAGS = (
    "-O3",
    "-mcpu=native" if IS_MACOS and platform.machine() != "x86_64" else "-march=native",
    "-std=c++20",
    "-fPIC",
    "-shared",
    OPENMP_FLAG,
    "-ffp-contract=fast",
    *(() if IS_MACOS else ("-Wl,-z,defs",)),  # undefined symbols fail at link time, not at the first call
)
COMPILE_LIMIT_S = 300


def compile_shared(source: str, *, flags: Sequence[str] = FLAGS, name: str = "kernel.cpp") -> Path:
    """Compile a C++ source to a shared library, once per content, flags, compiler and CPU.

    The source must be self-contained: it can include system headers, but not other files of its folder, whose content
    would be missing from the cache key.

    Args:
        source: the text of one translation unit.
        flags: all compiler flags; without `-fopenmp` (one thread) if the compiler lacks OpenMP.
        name: the name of the source in compiler errors, usually its path.
    Returns:
        The path of the shared library in the cache.
    Raises:
        MissingDependency: no C++ compiler on this machine.
        SetupError: the cache folder cannot be written.
        CompileError: compilation failed; the message holds the first errors, `where` the file and line.
    """
    compiler = find_compiler()
    key = digest(source, "\0".join(flags), compiler_version(compiler), cpu_fingerprint())
    entry = cache_dir("cpp") / f"{key}.sha256"
    cached = load_entry(entry) or save_entry(entry, _compile(compiler, source, flags, name), Path(name).stem, ".so")
    return cached.path


def find_compiler() -> str:
    """Path of the C++ compiler: `CXX`, else the first of c++, g++, clang++ on PATH.

    Raises:
        MissingDependency: none was found.
    """
    cxx = os.environ.get("CXX")
    for command in (cxx,) if cxx else ("c++", "g++", "clang++"):
        if path := shutil.which(command):
            return path
    install = "xcode-select --install" if IS_MACOS else "apt-get install g++"
    missing = f"CXX={cxx} is not an executable" if cxx else "no C++ compiler found (tried c++, g++, clang++)"
    raise MissingDependency(missing, next=install)


@functools.cache
def compiler_version(compiler: str) -> str:
    """Path and version text of a compiler, part of the cache key."""
    run = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=False)
    return compiler + run.stdout


@functools.cache
def cpu_fingerprint() -> str:
    """Model and features of this CPU: code built for `native` may not run on another CPU with the same home folder."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return f"{platform.machine()} {platform.processor()} {platform.mac_ver()[0]}"
    return "\n".join(
        sorted({line for line in lines if line.startswith(("model name", "flags", "Features", "CPU part"))})
    )


def _compile(compiler: str, source: str, flags: Sequence[str], name: str) -> bytes:
    """Compile to the bytes of a library. `ulimit -t` limits CPU time, which also ends a compiler that was orphaned."""
    text = f'#line 1 "{_escape(name)}"\n{source}'
    with tempfile.TemporaryDirectory(prefix="kernelwright-") as folder:
        output = Path(folder) / "library.so"
        limited = ["sh", "-c", f'ulimit -t {COMPILE_LIMIT_S}; exec "$@"', "sh", compiler]
        command = [*limited, *flags, "-fno-diagnostics-color", "-x", "c++", "-", "-o", str(output)]
        run = subprocess.run(command, input=text, capture_output=True, text=True, cwd=folder, check=False)
        if run.returncode == 0:
            return output.read_bytes()
    if OPENMP_FLAG in flags and re.search(r"fopenmp|-l[ig]?omp\b", run.stderr):
        return _compile(compiler, source, [flag for flag in flags if flag != OPENMP_FLAG], name)
    raise parse_compile_error(run.stderr or f"{compiler} exited with status {run.returncode}", name)


def _escape(name: str) -> str:
    return name.replace("\\", "\\\\").replace('"', '\\"')
