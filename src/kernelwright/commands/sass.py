"""Machine code of whatever a person names: CUDA C++, a rung, a cubin, a Triton kernel. No GPU is needed."""

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
from kernelwright.core.progress import stage
from kernelwright.kernels.catalog import sample
from kernelwright.ladders import rung
from kernelwright.problems.header import Launch, parse_header
from kernelwright.problems.importing import find_file, import_file, split_target
from kernelwright.problems.integer_expressions import PLAIN, evaluate
from kernelwright.toolchain.cuda import compile_cubin
from kernelwright.toolchain.sass import difference, read_cubin, read_file
from kernelwright.toolchain.triton_target import compiling_for

ARCH = "sm_90a"
LADDERS = "ladders/"
LIBRARY = "kernels/"
TYPE = re.compile(r"\*?(i|u|fp|bf)\d+")
"""As Triton writes one."""
_TYPE = re.compile(r"\*?(fp8e4nv|fp8e5|fp16|bf16|fp32|fp64|i1|i8|i16|i32|i64|u8|u16|u32|u64)")
_CONSTANT = re.compile(r"-?\d+(\.\d+)?|True|False|None|'.*'|\".*\"")
NOTHING: Mapping[str, str] = MappingProxyType({})


def machine_code(
    target: str, *, arch: str = ARCH, signature: str = "", defines: Mapping[str, str] = NOTHING
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
    whole, found = _kernels(target, arch, signature, defines)
    first, *others = found
    if others:
        names, largest = ", ".join(one.kernel for one in found), max(found, key=lambda one: one.count)
        raise UsageError(
            f"{target} holds {len(found)} kernels: {names}",
            next=shlex.join(["kw", "sass", f"{whole}:{largest.kernel}"]),
        )
    return first


def largest_kernel(target: str) -> MachineCode:
    """The one of a target's kernels that has the most instructions, which is where the work is done."""
    return max(_kernels(target, ARCH, "", NOTHING)[1], key=lambda one: one.count)


def _kernels(target: str, arch: str, signature: str, defines: Mapping[str, str]) -> tuple[str, tuple[MachineCode, ...]]:
    """The target without the name of a kernel, and the kernels that are meant."""
    if target.startswith(LIBRARY):
        if defines or signature:
            raise UsageError(f"{target} is compiled as it is launched", next="--define is for .cu, --signature for .py")
        stage(f"compiling {target} for {arch}")
        return target, _of_library(target, arch)
    if target.startswith(LADDERS):
        ladder, which, name = [*target.removeprefix(LADDERS).split(":", 2), "", ""][:3]
        path, whole = rung(ladder, which).path, f"{LADDERS}{ladder}:{which}"
    else:
        whole, name = split_target(target)
        path = find_file(whole)
    stage(f"compiling {path.name} for {arch}")
    match path.suffix:
        case ".cubin":
            return whole, _of_cubin(path, name, arch, defines)
        case ".cu":
            return whole, _of_cuda(path, name, arch, defines)
        case ".py":
            return whole, _of_triton(path, name, arch, signature)
    raise UsageError(f"{path} ends in {path.suffix or 'nothing'!r}: machine code comes of .cu, .cubin and .py")


def machine_codes_differ(before: str, after: str, **options: Any) -> CodeDifference:
    """Two targets side by side."""
    return difference(machine_code(before, **options), machine_code(after, **options))


def _of_cubin(path: Path, name: str, arch: str, defines: Mapping[str, str]) -> tuple[MachineCode, ...]:
    found = read_file(path, name or None)
    if defines or arch not in (ARCH, found[0].arch):
        raise UsageError(
            f"{path.name} is machine code for {found[0].arch} already", next="--arch and --define are for sources"
        )
    return found


def _of_cuda(path: Path, name: str, arch: str, defines: Mapping[str, str]) -> tuple[MachineCode, ...]:
    source = path.read_text(encoding="utf-8", errors="replace")
    cubin = compile_cubin(source, arch, defines=defines, folders=[path.parent], name=str(path))
    launches = {launch.entry: launch for launch in _launches(source, path)}
    if not name and len(launches) == 1:
        (name,) = launches
    launch = launches.get(name)
    return read_cubin(
        cubin.code, name or None, threads=_number(launch, "block"), dynamic_shared_bytes=_number(launch, "shared") or 0
    )


def _launches(source: str, path: Path) -> list[Launch]:
    """What its header says of launches; nothing of a source without one."""
    try:
        return parse_header(source, str(path)).launches
    except SignatureError:
        return []


def _number(launch: Launch | None, kind: str) -> int | None:
    """The product of a launch's sizes where these hang on no input."""
    try:
        return prod(int(evaluate(one, {}, PLAIN)) for one in launch.sizes[kind]) if launch else None
    except (KeyError, ValueError, TypeError):
        return None


def _of_library(target: str, arch: str) -> tuple[MachineCode, ...]:
    found = sample(target.removeprefix(LIBRARY))
    _triton()
    home, _, name = found.function.partition(":")
    function = getattr(import_module(home), name)
    given = {one: found.given.get(one) for one in function.arg_names}
    types = {
        one: what if isinstance(what, str) and TYPE.fullmatch(what) else "constexpr" for one, what in given.items()
    }
    constants = {(at,): what for at, (one, what) in enumerate(given.items()) if types[one] == "constexpr"}
    usual = [
        one != "constexpr" and not param.do_not_specialize
        for one, param in zip(types.values(), function.params, strict=True)
    ]
    aligned = {(at,): [["tt.divisibility", 16]] for at, here in enumerate(usual) if here}
    return _compiled(function, types, constants, arch, target, aligned, num_warps=found.warps)


def _triton() -> Any:
    try:
        import triton
    except ImportError as fault:
        raise MissingDependency(f"Triton is not installed: {fault}", next="pip install 'kernelwright[cuda]'") from None
    return triton


def _of_triton(path: Path, name: str, arch: str, signature: str) -> tuple[MachineCode, ...]:
    triton = _triton()
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
    types, constants = _signature(function, signature)
    return _compiled(function, types, constants, arch, str(path), {})


def _compiled(
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
            compiled = _triton().compile(source, target=target, options=options or None)
    except Exception as fault:  # of many classes, none of them Triton's own
        said = str(fault).strip().splitlines() or [type(fault).__name__]
        raise CompileError(
            f"Triton does not compile {function.fn.__name__} for {arch} with {', '.join(types.values())}: {said[-1]}",
            next="check the source, and that --signature names the types that it is called with",
            where=where,
        ) from fault
    return read_cubin(
        compiled.asm["cubin"],
        threads=32 * compiled.metadata.num_warps,
        dynamic_shared_bytes=compiled.metadata.shared,
    )


def _signature(function: Any, text: str) -> tuple[dict[str, str], dict[tuple[int, ...], Any]]:
    """Types by parameter, and the values of those that are constants, by their place."""
    parameters = list(inspect.signature(function.fn).parameters.values())
    given = [part.strip() for part in text.split(",") if part.strip()]
    if len(given) != len(parameters):
        names = ", ".join(one.name for one in parameters)
        why = f"--signature names {len(given)}" if given else "their types are not to be seen in the source"
        raise UsageError(
            f"{function.fn.__name__} takes {names}: {why}",
            next=f'such as --signature "{", ".join(map(_likely, parameters))}"',
        )
    for one, kind in zip(parameters, given, strict=True):
        if not (_CONSTANT if _is_constant(one) else _TYPE).fullmatch(kind):
            wanted = "a number, for it is a constant" if _is_constant(one) else "a type such as *fp32 or i32"
            raise UsageError(f"--signature: {one.name} is {kind!r}, and must be {wanted}")
    types = {one.name: "constexpr" if _is_constant(one) else kind for one, kind in zip(parameters, given, strict=True)}
    constants = {
        (at,): ast.literal_eval(kind)
        for at, (one, kind) in enumerate(zip(parameters, given, strict=True))
        if _is_constant(one)
    }
    return types, constants


def _likely(parameter: inspect.Parameter) -> str:
    """What a parameter of this name usually is."""
    if _is_constant(parameter):
        return "1024"
    return "*fp32" if "ptr" in parameter.name.lower() or len(parameter.name) == 1 else "i32"


def _is_constant(parameter: inspect.Parameter) -> bool:
    return "constexpr" in str(parameter.annotation)
