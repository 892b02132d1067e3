"""Build of a CUDA C++ source with the host compiler, as a library or as an executable for a sanitizer.

The runtime is compiled once and never instrumented. A kernel's translation unit is `cuda_on_cpu.h` followed by the
user's source after `#line 1`, so that errors and reports name the user's lines.
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
RUNTIME = ("fibers.h", "runtime.h", "process_hooks.h", "runtime.cpp", "cluster.cpp", "interface.cpp")
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
    "-nodefaultlibs",  # the runtime defines the instrumentation hooks, not libtsan
    "-lm",
    "-lc",
    "-Wl,-z,now",  # undefined symbols fail at load: -z defs would reject the symbols of the dynamic loader
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
    """A loaded kernel: the library of its source, and the runtime that it is linked to."""

    path: Path
    runtime: ctypes.CDLL
    call: Any
    dynamic_shared: Any
    parameters: tuple[Parameter, ...]


def load_library(source: CudaSource, name: str, *, counting: bool = False) -> EmulatedLibrary:
    """Compile and load the library of a source, with one of its kernels.

    Raises:
        CandidateError: no such kernel.
        CompileError: compilation failed; `where` is the user's line.
        SetupError: `counting` on macOS.
    """
    if counting and IS_MACOS:
        raise SetupError("access counting needs g++ -fsanitize=thread, which macOS lacks", next="count on Linux")
    runtime = build_runtime(counting)
    loaded_runtime = ctypes.CDLL(str(runtime), mode=ctypes.RTLD_GLOBAL if IS_MACOS else ctypes.DEFAULT_MODE)
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
        path, loaded_runtime, library[f"kw_call_{number}"], library["kw_dynamic"], _parameters(library, number)
    )  # fmt: skip


def build_process(source: CudaSource, name: str, sanitizer: str) -> Path:
    """Build the program that runs a kernel under the `address` or `thread` sanitizer.

    The file in the cache lacks the executable bit. Raises as `load_library`, and SetupError on macOS.
    """
    if IS_MACOS:
        raise SetupError("kernel sanitizers need Linux", next="run them on Linux")
    return compile_shared(
        compose_translation_unit(source, name) + _call_table(source, name) + _read_with_line_marker("process.cpp"),
        flags=_link_flags(SANITIZER_FLAGS[sanitizer], build_runtime(False)),
        name=source.path,
    )


def build_runtime(counting: bool, extra: tuple[str, ...] = ()) -> Path:
    """Compile the runtime, optionally with the counting hooks."""
    text = "".join(map(_read_with_line_marker, RUNTIME))
    counting_flags = ("-DKW_COUNTED",) if counting else ()
    flags = (*FLAGS, "-O2", "-fvisibility=hidden", *counting_flags, *extra)
    return compile_shared(
        text + (_read_with_line_marker("counting.cpp") if counting else ""), flags=flags, name="runtime.cpp"
    )


def compose_translation_unit(source: CudaSource, name: str) -> str:
    """Compose the translation unit of a kernel's library: headers, source, exports."""
    exports = "".join(f"KW_EXPORT({number}, {one})\n" for number, one in enumerate(source.exported_kernels(name)))
    path = source.path.replace("\\", "\\\\").replace('"', '\\"')
    last = max(1, len(source.text.rstrip().splitlines()))
    # The static_assert makes the compiler report an unfinished source (a missing brace) on a line of the source.
    return (
        f"{_read_with_line_marker('runtime.h')}{_read_with_line_marker('cuda_on_cpu.h')}#line 1 "
        f'"{path}"\n{source.text}\n'
        f'#line {last} "{path}"\nstatic_assert(true);\n#line 1 "kw-exports"\n{exports}'
    )


def _call_table(source: CudaSource, name: str) -> str:
    names = ", ".join(f"kw_call_{number}" for number in range(len(source.exported_kernels(name))))
    return f"static void (*const kw_calls[])(void**) = {{{names}}};\n"


def _read_with_line_marker(name: str) -> str:
    return f'#line 1 "{name}"\n{(RUNTIME_DIR / name).read_text()}'


def _link_flags(flags: tuple[str, ...], runtime: Path) -> tuple[str, ...]:
    """Add the runtime by its path, which contains its content hash and so enters the cache key."""
    return (*flags, "-Wl,-undefined,dynamic_lookup") if IS_MACOS else (*flags, f"-Wl,--no-as-needed,{runtime}")


def _parameters(library: ctypes.CDLL, number: int) -> tuple[Parameter, ...]:
    rows = ctypes.POINTER(Parameter)()
    count = library[f"kw_parameters_{number}"](ctypes.byref(rows))
    return tuple(rows[:count])
