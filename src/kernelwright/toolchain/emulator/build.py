"""A CUDA C++ source to a library, or to the program of a sanitizer's process, through the machine's own compiler.

Three texts: the runtime, compiled once and never instrumented; what a kernel sees (`cuda_on_cpu.h`); the kernel itself,
behind `#line 1`, so that errors and reports name the user's own lines.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelwright.core.errors import CandidateError, SetupError
from kernelwright.toolchain.cpp import FLAGS, IS_MACOS, compile_shared
from kernelwright.toolchain.emulator.source import CudaSource

RUNTIME_DIR = Path(__file__).parent
RUNTIME = ("fibers.h", "runtime.h", "surroundings.h", "runtime.cpp")
_CUDA_DIALECT_FLAGS = ("-fno-strict-aliasing", "-fvisibility=hidden", "-w", *(() if IS_MACOS else ("-fno-gnu-unique",)))
_BASE_FLAGS = tuple(flag for flag in FLAGS if flag not in ("-O3", "-fopenmp"))
RELEASE_FLAGS = (*FLAGS, *_CUDA_DIALECT_FLAGS)
COUNTING_FLAGS = (
    *(flag for flag in _BASE_FLAGS if flag != "-Wl,-z,defs"),
    *_CUDA_DIALECT_FLAGS,
    "-O0",
    "-g",
    "-fsanitize=thread",
    "-fsanitize-coverage=trace-pc",
    "-nodefaultlibs",  # the hooks are the runtime's, not ThreadSanitizer's
    "-lm",
    "-lc",
    "-Wl,-z,now",  # what the loader itself defines cannot be named here, so it finds what is missing
)
_EXECUTABLE_FLAGS = tuple(flag for flag in _BASE_FLAGS if flag not in ("-shared", "-fPIC"))
SANITIZER_FLAGS = {
    sanitizer: (*_EXECUTABLE_FLAGS, *_CUDA_DIALECT_FLAGS, "-O0", "-g", f"-fsanitize={sanitizer}", "-DKW_PROCESS")
    for sanitizer in ("address", "thread")
}


class Parameter(ctypes.Structure):
    """`KwParameter` of runtime.h."""

    kind: int
    bytes: int
    inner: int
    inner_bytes: int
    _fields_ = [(name, ctypes.c_int) for name in ("kind", "bytes", "inner", "inner_bytes")]


@dataclass(frozen=True)
class EmulatedLibrary:
    """A kernel that can be called: the library of its source, and the runtime that it is linked to."""

    path: Path
    runtime: ctypes.CDLL
    call: Any
    dynamic_shared: Any
    parameters: tuple[Parameter, ...]


def load_library(source: CudaSource, name: str, *, counting: bool = False) -> EmulatedLibrary:
    """The library of a source, with one of its kernels.

    Raises:
        CandidateError: no such kernel.
        CompileError: the compiler refused; `where` is the user's line.
    """
    if counting and IS_MACOS:
        raise SetupError("counting needs g++ and its -fsanitize=thread: not on macOS", next="count on Linux")
    runtime = build_runtime(counting)
    loaded = ctypes.CDLL(str(runtime), mode=ctypes.RTLD_GLOBAL if IS_MACOS else ctypes.DEFAULT_MODE)
    path = compile_shared(
        compose_translation_unit(source, name),
        flags=_link_flags(COUNTING_FLAGS if counting else RELEASE_FLAGS, runtime),
        name=source.path,
    )
    try:
        library = ctypes.CDLL(str(path))
    except OSError as fault:
        raise CandidateError(f"{source.path} compiled but does not load: {fault}", where=source.path) from fault
    number = source.exported_kernels(name).index(name)
    return EmulatedLibrary(
        path, loaded, library[f"kw_call_{number}"], library["kw_dynamic"], _parameters(library, number)
    )  # fmt: skip


def build_process(source: CudaSource, name: str, sanitizer: str) -> Path:
    """The program that runs a kernel of a source under `address` or `thread` sanitizer; it is no executable file yet.

    Raises: as `load_library`, and SetupError on macOS.
    """
    if IS_MACOS:
        raise SetupError("the sanitizers of kernels need Linux", next="run them on Linux")
    return compile_shared(
        compose_translation_unit(source, name) + _call_table(source, name) + _read_with_line_marker("process.cpp"),
        flags=_link_flags(SANITIZER_FLAGS[sanitizer], build_runtime(False)),
        name=source.path,
    )


def build_runtime(counting: bool, extra: tuple[str, ...] = ()) -> Path:
    """The runtime, with the hooks that count or without."""
    text = "".join(map(_read_with_line_marker, RUNTIME))
    defined = ("-DKW_COUNTED",) if counting else ()
    flags = (*FLAGS, "-O2", "-fvisibility=hidden", *defined, *extra)
    return compile_shared(
        text + (_read_with_line_marker("counting.cpp") if counting else ""), flags=flags, name="runtime.cpp"
    )


def compose_translation_unit(source: CudaSource, name: str) -> str:
    """What the compiler sees of a kernel's library."""
    exports = "".join(f"KW_EXPORT({number}, {one})\n" for number, one in enumerate(source.exported_kernels(name)))
    own = source.path.replace("\\", "\\\\").replace('"', '\\"')
    last = max(1, len(source.text.rstrip().splitlines()))
    # What is missing at the end of the source is found by the assertion, in a line of the source.
    return (
        f"{_read_with_line_marker('runtime.h')}{_read_with_line_marker('cuda_on_cpu.h')}#line 1 "
        f'"{own}"\n{source.text}\n'
        f'#line {last} "{own}"\nstatic_assert(true);\n#line 1 "kw-exports"\n{exports}'
    )


def _call_table(source: CudaSource, name: str) -> str:
    names = ", ".join(f"kw_call_{number}" for number in range(len(source.exported_kernels(name))))
    return f"static void (*const kw_calls[])(void**) = {{{names}}};\n"


def _read_with_line_marker(name: str) -> str:
    return f'#line 1 "{name}"\n{(RUNTIME_DIR / name).read_text()}'


def _link_flags(flags: tuple[str, ...], runtime: Path) -> tuple[str, ...]:
    """The runtime by its path, which is in the key of the cache as its content is."""
    return (*flags, "-Wl,-undefined,dynamic_lookup") if IS_MACOS else (*flags, f"-Wl,--no-as-needed,{runtime}")


def _parameters(library: ctypes.CDLL, number: int) -> tuple[Parameter, ...]:
    rows = ctypes.POINTER(Parameter)()
    count = library[f"kw_parameters_{number}"](ctypes.byref(rows))
    return tuple(rows[:count])
