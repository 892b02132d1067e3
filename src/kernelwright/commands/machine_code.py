"""The machine code of a target: CUDA C++, a rung, a cubin, a Triton kernel. No GPU is needed."""

from __future__ import annotations

import ast
import inspect
import re
import shlex
from collections.abc import Mapping
from importlib import import_module
from math import prod
from pathlib import Path
from types import MappingProxyType
from typing import Any

from kernelwright.core.errors import CompileError, MissingDependency, NotFoundError, SignatureError, UsageError
from kernelwright.core.machine_code import CodeDifference, MachineCode
from kernelwright.core.progress import report_stage
from kernelwright.kernels.catalog import find_signature
from kernelwright.kernels.kernel_spec import CudaSignature
from kernelwright.ladders import find_rung
from kernelwright.problems.header import LaunchDeclaration, parse_header
from kernelwright.problems.importing import find_file, import_file, split_target
from kernelwright.problems.integer_expressions import NUMBER_FUNCTIONS, evaluate
from kernelwright.toolchain.cuda import compile_cubin
from kernelwright.toolchain.sass import diff_machine_code, read_cubin, read_cubin_file
from kernelwright.toolchain.triton_target import compiling_for

ARCH = "sm_90a"
LADDER_PREFIX = "ladders/"
LIBRARY_PREFIX = "kernels/"
TRITON_TYPE = re.compile(r"\*?(i|u|fp|bf)\d+")
"""As Triton writes one."""
_SIGNATURE_TYPE = re.compile(r"\*?(fp8e4nv|fp8e5|fp16|bf16|fp32|fp64|i1|i8|i16|i32|i64|u8|u16|u32|u64)")
_CONSTANT = re.compile(r"-?\d+(\.\d+)?|True|False|None|'.*'|\".*\"")
NO_DEFINES: Mapping[str, str] = MappingProxyType({})


def disassemble(
    target: str, *, arch: str = ARCH, signature: str = "", defines: Mapping[str, str] = NO_DEFINES
) -> MachineCode:
    """One kernel of a target.

    Args:
        target: `file.cu`, `file.cubin`, `file.py` with Triton kernels, each with `:KERNEL` where it holds several, or
            `ladders/NAME:RUNG`, with `:KERNEL` likewise, or `kernels/NAME`, with `:VARIANT`, of the library.
        signature: the types of a Triton kernel's parameters in order, constants as numbers: `*fp32, *fp32, i32, 1024`.
        defines: macros of CUDA C++.
    Raises:
        NotFoundError: no such file, rung or kernel. UsageError: several kernels, or a target that has no machine code.
        CompileError: it does not compile.
    """
    whole, found = _compile_target(target, arch, signature, defines)
    first, *others = found
    if others:
        names, largest = ", ".join(one.kernel for one in found), max(found, key=lambda one: one.num_instructions)
        raise UsageError(
            f"{target} holds {len(found)} kernels: {names}",
            next=shlex.join(["kw", "sass", f"{whole}:{largest.kernel}"]),
        )
    return first


def disassemble_largest(target: str) -> MachineCode:
    """The one of a target's kernels that has the most instructions, which is where the work is done."""
    return max(_compile_target(target, ARCH, "", NO_DEFINES)[1], key=lambda one: one.num_instructions)


def _compile_target(
    target: str, arch: str, signature: str, defines: Mapping[str, str]
) -> tuple[str, tuple[MachineCode, ...]]:
    """The target without the name of a kernel, and the kernels that are meant."""
    if target.startswith(LIBRARY_PREFIX):
        if defines or signature:
            raise UsageError(f"{target} is compiled as it is launched", next="--define is for .cu, --signature for .py")
        report_stage(f"compiling {target} for {arch}")
        return target, _from_library(target, arch)
    if target.startswith(LADDER_PREFIX):
        ladder, which, name = [*target.removeprefix(LADDER_PREFIX).split(":", 2), "", ""][:3]
        path, whole = find_rung(ladder, which).path, f"{LADDER_PREFIX}{ladder}:{which}"
    else:
        whole, name = split_target(target)
        path = find_file(whole)
    report_stage(f"compiling {path.name} for {arch}")
    match path.suffix:
        case ".cubin":
            return whole, _from_cubin(path, name, arch, defines)
        case ".cu":
            return whole, _from_cuda(path, name, arch, defines)
        case ".py":
            return whole, _from_triton(path, name, arch, signature)
    raise UsageError(f"{path} ends in {path.suffix or 'nothing'!r}: only .cu, .cubin and .py have machine code")


def compare_machine_code(
    before: str, after: str, *, arch: str = ARCH, signature: str = "", defines: Mapping[str, str] = NO_DEFINES
) -> CodeDifference:
    """How the machine code of two targets differs; arguments and errors as for `disassemble`."""
    old, new = (disassemble(one, arch=arch, signature=signature, defines=defines) for one in (before, after))
    return diff_machine_code(old, new)


def _from_cubin(path: Path, name: str, arch: str, defines: Mapping[str, str]) -> tuple[MachineCode, ...]:
    found = read_cubin_file(path, name or None)
    if defines or arch not in (ARCH, found[0].arch):
        raise UsageError(
            f"{path.name} is machine code for {found[0].arch} already", next="--arch and --define are for sources"
        )
    return found


def _from_cuda(path: Path, name: str, arch: str, defines: Mapping[str, str]) -> tuple[MachineCode, ...]:
    source = path.read_text(encoding="utf-8", errors="replace")
    cubin = compile_cubin(source, arch, defines=defines, include_dirs=[path.parent], name=str(path))
    launches = {launch.entry: launch for launch in _parse_launches(source, path)}
    if not name and len(launches) == 1:
        (name,) = launches
    launch = launches.get(name)
    return read_cubin(
        cubin.code,
        name or None,
        threads=_launch_size(launch, "block"),
        dynamic_shared_bytes=_launch_size(launch, "shared") or 0,
    )


def _parse_launches(source: str, path: Path) -> list[LaunchDeclaration]:
    """The launches declared in its header; none without a header."""
    try:
        return parse_header(source, str(path)).launches
    except SignatureError:
        return []


def _launch_size(launch: LaunchDeclaration | None, kind: str) -> int | None:
    """The product of a launch's sizes where these hang on no input."""
    try:
        return prod(int(evaluate(one, {}, NUMBER_FUNCTIONS)) for one in launch.launch_sizes[kind]) if launch else None
    except (KeyError, ValueError, TypeError):
        return None


def _from_library(target: str, arch: str) -> tuple[MachineCode, ...]:
    found = find_signature(target.removeprefix(LIBRARY_PREFIX))
    if isinstance(found, CudaSignature):
        build = found.choose_build()
        cubin = compile_cubin(
            found.path.read_text("utf-8"),
            arch,
            defines=build.defines,
            include_dirs=[found.path.parent],
            name=str(found.path),
        )
        return read_cubin(cubin.code, found.entry, threads=build.threads, dynamic_shared_bytes=build.shared_bytes)
    _import_triton()
    home, _, name = found.function.partition(":")
    function = getattr(import_module(home), name)
    given = {one: found.params.get(one) for one in function.arg_names}
    types = {
        one: what if isinstance(what, str) and TRITON_TYPE.fullmatch(what) else "constexpr"
        for one, what in given.items()
    }
    constants = {(at,): what for at, (one, what) in enumerate(given.items()) if types[one] == "constexpr"}
    usual = [
        one != "constexpr" and not param.do_not_specialize
        for one, param in zip(types.values(), function.params, strict=True)
    ]
    aligned = {(at,): [["tt.divisibility", 16]] for at, here in enumerate(usual) if here}
    return _compile_triton(function, types, constants, arch, target, aligned, num_warps=found.num_warps)


def _import_triton() -> Any:
    try:
        import triton
    except ImportError as fault:
        raise MissingDependency(f"Triton is not installed: {fault}", next="pip install 'kernelwright[cuda]'") from None
    return triton


def _from_triton(path: Path, name: str, arch: str, signature: str) -> tuple[MachineCode, ...]:
    triton = _import_triton()
    module = import_file(path, UsageError)
    there = {key: one for key, one in vars(module).items() if isinstance(one, triton.runtime.JITFunction)}
    if not there:
        raise UsageError(f"{path} holds no Triton kernel", where=str(path))
    if not name and len(there) > 1:
        raise UsageError(
            f"{path} holds {len(there)} kernels: {', '.join(there)}",
            next=shlex.join(["kw", "sass", f"{path}:{next(iter(there))}"]),
        )
    if name and name not in there:
        raise NotFoundError(f"no Triton kernel {name!r} in {path}; there are {', '.join(there)}")
    function: Any = there[name or next(iter(there))]
    types, constants = _parse_signature(function, signature)
    return _compile_triton(function, types, constants, arch, str(path), {})


def _compile_triton(
    function: Any,
    types: dict[str, str],
    constants: dict[tuple[int, ...], Any],
    arch: str,
    where: str,
    aligned: dict[tuple[int, ...], Any],
    **options: Any,
) -> tuple[MachineCode, ...]:
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    capability = int(re.sub(r"\D", "", arch))
    source = ASTSource(fn=function, signature=types, constexprs=constants, attrs=aligned)
    target = GPUTarget("cuda", capability, 32)
    try:
        with compiling_for(target):
            compiled = _import_triton().compile(source, target=target, options=options or None)
    except Exception as fault:  # raised as many classes, none of them Triton's own
        lines = str(fault).strip().splitlines() or [type(fault).__name__]
        raise CompileError(
            f"Triton does not compile {function.fn.__name__} for {arch} with {', '.join(types.values())}: {lines[-1]}",
            next="check the source, and that --signature has the types it is called with",
            where=where,
        ) from fault
    return read_cubin(
        compiled.asm["cubin"],
        threads=32 * compiled.metadata.num_warps,
        dynamic_shared_bytes=compiled.metadata.shared,
    )


def _parse_signature(function: Any, text: str) -> tuple[dict[str, str], dict[tuple[int, ...], Any]]:
    """Types by parameter, and the values of those that are constants, by their place."""
    parameters = list(inspect.signature(function.fn).parameters.values())
    given = [part.strip() for part in text.split(",") if part.strip()]
    if len(given) != len(parameters):
        names = ", ".join(one.name for one in parameters)
        why = f"--signature names {len(given)}" if given else "their types are not to be seen in the source"
        raise UsageError(
            f"{function.fn.__name__} takes {names}: {why}",
            next=f'such as --signature "{", ".join(map(_guess_type, parameters))}"',
        )
    for one, kind in zip(parameters, given, strict=True):
        if not (_CONSTANT if _is_constant(one) else _SIGNATURE_TYPE).fullmatch(kind):
            wanted = "a number, for it is a constant" if _is_constant(one) else "a type such as *fp32 or i32"
            raise UsageError(f"--signature: {one.name} is {kind!r}, and must be {wanted}")
    types = {one.name: "constexpr" if _is_constant(one) else kind for one, kind in zip(parameters, given, strict=True)}
    constants = {
        (at,): ast.literal_eval(kind)
        for at, (one, kind) in enumerate(zip(parameters, given, strict=True))
        if _is_constant(one)
    }
    return types, constants


def _guess_type(parameter: inspect.Parameter) -> str:
    """What a parameter of this name usually is."""
    if _is_constant(parameter):
        return "1024"
    return "*fp32" if "ptr" in parameter.name.lower() or len(parameter.name) == 1 else "i32"


def _is_constant(parameter: inspect.Parameter) -> bool:
    return "constexpr" in str(parameter.annotation)
