"""From a source to machine code, once for each content, architecture and compiler."""

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
    r"^(?P<place>.*\(\d+\)): (?:catastrophic )?error(?: #\d+-D)?: (?P<text>.*(?:\n  .*)*)", re.MULTILINE
)
_LINE = re.compile(r"^(.*)\((\d+)\)$")
_ARCH = re.compile(r"sm_\d{2,3}[af]?")
NO_DEFINES: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True)
class Cubin:
    """Machine code for one architecture, and what the compiler said on the way."""

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
    """The machine code of a source, with line numbers.

    Args:
        arch: such as sm_90a, where wgmma and TMA exist, or sm_80.
        defines: macros by name.
        include_dirs: where `#include "..."` looks, before this package's own headers.
        name: what the compiler calls the source in its errors: a path, usually.
        max_registers: the most that a thread may have.
    Raises:
        UsageError: no such architecture. MissingDependency: cuda-core or NVRTC is not installed.
        CompileError: the compiler refused; the message holds its first errors with the lines that they mean, `where`
            the file and line of the first.
    """
    if not _ARCH.fullmatch(arch):
        raise UsageError(f"no architecture {arch!r}", next="name one such as sm_80, sm_90a or sm_100a")
    core, places = import_cuda_core(), [*include_dirs, INCLUDE_DIR]
    headers = [part for path, text in sorted(read_includes(source, places).items()) for part in (path.name, text)]
    options = [f"{key}={value}" for key, value in sorted(defines.items())] + [f"registers={max_registers}"]
    key = digest(source, arch, CPP_STANDARD, nvrtc_version(), name, *options, *headers)
    entry = cache_dir("cuda") / f"{key}.sha256"
    if there := load_entry(entry):
        return Cubin(there.content, arch, there.note)
    said = io.StringIO()
    settings = core.ProgramOptions(
        name=name,
        arch=arch,
        std=CPP_STANDARD,
        lineinfo=True,
        define_macro=list(defines.items()) or None,
        include_path=list(map(str, places)),
        max_register_count=max_registers,
    )
    try:
        code = bytes(core.Program(source, "c++", settings).compile("cubin", logs=said).code)
    except Exception as fault:  # NVRTC's own error holds the log
        raise _compile_failure(str(fault).replace("\0", ""), name) from fault
    warnings = said.getvalue().replace("\0", "").strip()
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
    """The PTX of a source, without line numbers, by NVRTC itself: cuda-core asks for a driver before it makes PTX.

    Args and raises as `compile_cubin`.
    """
    from cuda.bindings import nvrtc  # pyright: ignore[reportAttributeAccessIssue]

    places = [*include_dirs, INCLUDE_DIR]
    headers = [part for path, text in sorted(read_includes(source, places).items()) for part in (path.name, text)]
    macros = [f"-D{key}={value}" for key, value in sorted(defines.items())]
    entry = cache_dir("cuda") / f"{digest(source, arch, CPP_STANDARD, nvrtc_version(), *macros, *headers)}.ptx"
    if entry.exists():
        return entry.read_text("utf-8")
    options = [f"--gpu-architecture={arch.replace('sm_', 'compute_')}", f"--std={CPP_STANDARD}", *macros]
    options += [f"-I{place}" for place in places]
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
    """The compiler's first errors, each with the source line that it means, and the place of the first."""
    errors = list(_ERROR.finditer(log))
    shown = [f"{error['place']}: {error['text']}" for error in errors[:ERRORS_SHOWN]]
    if len(errors) > ERRORS_SHOWN:
        shown.append(f"and {len(errors) - ERRORS_SHOWN} more")
    if not errors:
        shown = [line for line in log.splitlines() if "error" in line][:ERRORS_SHOWN] or [log[:500]]
    place = _LINE.match(errors[0]["place"]) if errors else None
    where = f"{place[1]}:{place[2]}" if place else name
    return CompileError("the compiler refused it:\n" + "\n".join(shown), where=where, next="mend the source, run again")


def import_cuda_core() -> Any:
    """cuda-core.

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
    """NVRTC's, as `13.0`."""
    from cuda.bindings import nvrtc  # pyright: ignore[reportAttributeAccessIssue]

    return ".".join(map(str, nvrtc.nvrtcVersion()[1:]))
