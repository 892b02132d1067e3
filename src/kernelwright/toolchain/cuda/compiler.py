"""CUDA C++ to cubin or PTX with NVRTC, cached by content, architecture and compiler version."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from kernelwright.core.cache import cache_dir, digest, write_atomic
from kernelwright.core.errors import CompileError, MissingDependency, UsageError
from kernelwright.toolchain.artifact_cache import load_entry, save_entry
from kernelwright.toolchain.cuda.includes import INCLUDE_DIR, read_includes

CPP_STANDARD = "c++17"
ERRORS_SHOWN = 3
_ERROR = re.compile(
    r"^(?P<location>.*\(\d+\)): (?:catastrophic )?error(?: #\d+-D)?: (?P<text>.*(?:\n  .*)*)", re.MULTILINE
)
_LINE = re.compile(r"^(.*)\((\d+)\)$")
_ARCH = re.compile(r"sm_\d{2,3}[af]?")
NO_DEFINES: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True)
class Cubin:
    """Machine code for one architecture, with the compiler's warnings."""

    code: bytes
    arch: str
    warnings: str = ""


def compile_cubin(
    source: str,
    arch: str = "sm_90a",
    *,
    defines: Mapping[str, str] = NO_DEFINES,
    include_dirs: Sequence[Path] = (),
    name: str = "kernel.cu",
    max_registers: int | None = None,
) -> Cubin:
    """Compile a source to machine code with line information.

    Args:
        arch: such as sm_80, or sm_90a, which has wgmma and setmaxnreg.
        defines: macros by name.
        include_dirs: searched for `#include "..."` before this package's own headers.
        name: the name of the source in compiler errors, usually its path.
        max_registers: limit per thread (`-maxrregcount`).
    Raises:
        UsageError: unknown architecture. MissingDependency: cuda-core or NVRTC is not installed.
        CompileError: compilation failed; the message holds the first errors with their source lines, `where` the file
            and line of the first.
    """
    if not _ARCH.fullmatch(arch):
        raise UsageError(f"no architecture {arch!r}", next="use one such as sm_80, sm_90a or sm_100a")
    core, folders = import_cuda_core(), [*include_dirs, INCLUDE_DIR]
    headers = [part for path, text in sorted(read_includes(source, folders).items()) for part in (path.name, text)]
    options = [f"{key}={value}" for key, value in sorted(defines.items())] + [f"registers={max_registers}"]
    key = digest(source, arch, CPP_STANDARD, nvrtc_version(), name, *options, *headers)
    entry = cache_dir("cuda") / f"{key}.sha256"
    if cached := load_entry(entry):
        return Cubin(cached.content, arch, cached.note)
    log = io.StringIO()
    program_options = core.ProgramOptions(
        name=name,
        arch=arch,
        std=CPP_STANDARD,
        lineinfo=True,
        define_macro=list(defines.items()) or None,
        include_path=list(map(str, folders)),
        max_register_count=max_registers,
    )
    try:
        code = bytes(core.Program(source, "c++", program_options).compile("cubin", logs=log).code)
    except Exception as fault:  # the log is in the message of NVRTC's error
        raise _compile_failure(str(fault).replace("\0", ""), name) from fault
    warnings = log.getvalue().replace("\0", "").strip()
    save_entry(entry, code, Path(name).stem, ".cubin", warnings)
    return Cubin(code, arch, warnings)


def compile_ptx(
    source: str,
    arch: str,
    *,
    defines: Mapping[str, str] = NO_DEFINES,
    include_dirs: Sequence[Path] = (),
    name: str = "k.cu",
) -> str:
    """Compile a source to PTX without line information.

    Calls NVRTC directly, because cuda-core needs a driver to produce PTX. Arguments and errors as for `compile_cubin`.
    """
    from cuda.bindings import nvrtc  # pyright: ignore[reportAttributeAccessIssue]

    folders = [*include_dirs, INCLUDE_DIR]
    headers = [part for path, text in sorted(read_includes(source, folders).items()) for part in (path.name, text)]
    macros = [f"-D{key}={value}" for key, value in sorted(defines.items())]
    entry = cache_dir("cuda") / f"{digest(source, arch, CPP_STANDARD, nvrtc_version(), *macros, *headers)}.ptx"
    if entry.exists():
        return entry.read_text("utf-8")
    options = [f"--gpu-architecture={arch.replace('sm_', 'compute_')}", f"--std={CPP_STANDARD}", *macros]
    options += [f"-I{folder}" for folder in folders]
    program = nvrtc.nvrtcCreateProgram(source.encode(), name.encode(), 0, [], [])[1]
    (code,) = nvrtc.nvrtcCompileProgram(program, len(options), [one.encode() for one in options])
    if code != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        log = b" " * nvrtc.nvrtcGetProgramLogSize(program)[1]
        nvrtc.nvrtcGetProgramLog(program, log)
        raise _compile_failure(log.decode().replace("\0", ""), name)
    text = b" " * nvrtc.nvrtcGetPTXSize(program)[1]
    nvrtc.nvrtcGetPTX(program, text)
    nvrtc.nvrtcDestroyProgram(program)
    write_atomic(entry, text.rstrip(b"\0"))
    return text.rstrip(b"\0").decode()


def _compile_failure(log: str, name: str) -> CompileError:
    """Build a CompileError from the first errors, each with its source line; `where` is the line of the first."""
    errors = list(_ERROR.finditer(log))
    shown = [f"{error['location']}: {error['text']}" for error in errors[:ERRORS_SHOWN]]
    if len(errors) > ERRORS_SHOWN:
        shown.append(f"and {len(errors) - ERRORS_SHOWN} more")
    if not errors:
        shown = [line for line in log.splitlines() if "error" in line][:ERRORS_SHOWN] or [log[:500]]
    location = _LINE.match(errors[0]["location"]) if errors else None
    where = f"{location[1]}:{location[2]}" if location else name
    return CompileError("compilation failed:\n" + "\n".join(shown), where=where, next="fix the source and run again")


def import_cuda_core() -> Any:
    """Import `cuda.core`.

    Raises:
        MissingDependency: it is not installed.
    """
    try:
        import cuda.core
    except ImportError as fault:
        raise MissingDependency(
            f"cuda-core is not installed: {fault}", next="pip install 'kernelwright[cuda]'"
        ) from None
    return cuda.core


def nvrtc_version() -> str:
    """Version of NVRTC, such as `13.0`."""
    from cuda.bindings import nvrtc  # pyright: ignore[reportAttributeAccessIssue]

    return ".".join(map(str, nvrtc.nvrtcVersion()[1:]))
