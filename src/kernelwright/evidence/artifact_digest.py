"""The code of GPU launches as normalised PTX, without names and line numbers; compiled without a GPU."""

from __future__ import annotations

import re
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, compile, make_backend
from triton.runtime.jit import create_function_from_signature

from kernelwright.core.cache import cache_dir, digest, write_atomic
from kernelwright.core.errors import NotFoundError
from kernelwright.evidence.source_digests import normalize_python
from kernelwright.kernels.rows.planning import CudaLaunch, LaunchPlan, Target, TritonLaunch
from kernelwright.toolchain.cuda.compiler import compile_ptx, nvrtc_version
from kernelwright.toolchain.triton_target import compiling_for

TOOLCHAIN = f"triton {triton.__version__}, nvrtc {nvrtc_version()}"
HOPPER = Target(multiprocessors=132, shared_bytes=232_448, capability=(9, 0))
"""H100 SXM and H200, which differ only in memory."""
_DEBUG_SECTION = re.compile(r"\.section\s+\.debug_\w+\s*\{.*?\n\s*\}", re.DOTALL)
_DROPPED_LINE = re.compile(r"\s*(//|\.loc\b|\.file\b|\.version\b|\$L__tmp|\$L__func_|\$L__info)")
_NAME = re.compile(r"\.(?:entry|func(?:\s*\([^)]*\))?)\s+([\w$]+)")


def target_from_spec(machine: str) -> Target:
    """The GPU target of a machine name.

    Raises:
        NotFoundError: launches cannot be planned for this GPU.
    """
    if re.search(r"H100 80GB HBM3|H200$", machine):
        return HOPPER
    raise NotFoundError(f"launches on {machine} cannot be planned on another machine; supported are H100 SXM and H200")


def artifact_digest(plan: LaunchPlan) -> str:
    """Digest of the code of all launches in order."""
    major, minor = plan.target.capability
    return digest(*(_compile_launch(one, 10 * major + minor) for one in plan.launches))


def normalize_ptx(text: str) -> str:
    """PTX without line information, compiler version and the names of its functions."""
    text = _DEBUG_SECTION.sub("", text)
    for i, name in enumerate(dict.fromkeys(_NAME.findall(text))):
        text = re.sub(rf"(?<![\w$]){re.escape(name)}(?=(_param_\d+)?(?![\w$]))", f"function{i}", text)
    lines = (line.partition("//")[0].strip() for line in text.splitlines() if not _DROPPED_LINE.match(line))
    return "\n".join(filter(None, lines))


def _compile_launch(launch: TritonLaunch | CudaLaunch, capability: int) -> str:
    if isinstance(launch, CudaLaunch):
        source = launch.source.read_text("utf-8")
        return normalize_ptx(
            compile_ptx(source, f"sm_{capability}a", defines=launch.macros, include_dirs=[launch.include])
        )
    function, signature, constants, attributes, options = _specialize(launch, GPUTarget("cuda", capability, 32))
    settings = {key: value for key, value in vars(options).items() if isinstance(value, str | int | float | bool)}
    parts = [repr(sorted(one.items(), key=str)) for one in (signature, constants, attributes, settings)]
    key = digest(
        TOOLCHAIN, str(capability), _kernel_source(function), *(re.sub(r"0x[0-9a-f]+", "", one) for one in parts)
    )
    entry = cache_dir("ptx") / f"{key}.ptx"
    if not entry.exists():
        source = ASTSource(fn=function, signature=signature, constexprs=constants, attrs=attributes)
        target = GPUTarget("cuda", capability, 32)
        with compiling_for(target):
            compiled = compile(source, target=target, options=options.__dict__)
        write_atomic(entry, normalize_ptx(compiled.asm["ptx"]).encode())
    return entry.read_text("utf-8")


def _kernel_source(function: Any) -> str:
    """The source of a kernel and of all functions it calls, with local variables numbered."""
    known: dict[int, Any] = {}
    todo = [function]
    while todo:
        one = todo.pop()
        if id(one) in known:
            continue
        known[id(one)] = one
        used = getattr(one.fn, "__globals__", {})
        names = one.fn.__code__.co_names
        todo += [used[name] for name in names if isinstance(used.get(name), triton.runtime.JITFunction)]
    texts = sorted(normalize_python(one.src) for one in known.values())
    constants = sorted(
        f"{name}={value!r}"
        for one in known.values()
        for name in one.fn.__code__.co_names
        if isinstance(value := one.fn.__globals__.get(name), triton.language.constexpr | int | float | str | bool)
    )
    return "\n".join([*texts, *constants])


def _specialize(launch: TritonLaunch, target: GPUTarget) -> tuple[Any, Any, Any, Any, Any]:
    """The specialization that Triton compiles for the arguments of a launch."""
    function, backend = launch.kernel, make_backend(target)
    bind = create_function_from_signature(function.signature, function.params, backend)
    keywords = {"debug": False, **launch.options}
    bound, specialization, options = bind(*launch.arguments, **keywords)
    settings, signature, constants, attributes = function._pack_args(backend, keywords, bound, specialization, options)
    return function, signature, constants, attributes, settings
