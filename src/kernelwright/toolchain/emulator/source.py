"""Textual translation of a CUDA C++ source for g++, preserving line numbers; unsupported constructs are rejected."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

from kernelwright.core.errors import CandidateError, CompileError
from kernelwright.toolchain.cuda.includes import INCLUDE_DIR

NO_DEFINES: Mapping[str, str] = MappingProxyType({})
_COMMENT_OR_TEXT = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', re.DOTALL)
_WRAPPERS = re.compile(r'^[ \t]*#[ \t]*include[ \t]*[<"](kw/[^">]*)[">]', re.MULTILINE)
_TOOLKIT = re.compile(
    r'^[ \t]*#[ \t]*include[ \t]*[<"](?:cuda|cuda_runtime|cuda_runtime_api|device_launch_parameters)\.h[">]',
    re.MULTILINE,
)
EMULATED_INCLUDE_DIR = Path(__file__).parent / "include"
"""CPU versions of those PTX wrappers that can be emulated."""
_INCLUDED = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"]+)"[^\n]*', re.MULTILINE)
_PTX = re.compile(r"\basm\b(?:\s+volatile\b)?\s*\(")
_HOST = re.compile(r"<<<")
_DYNAMIC = re.compile(
    r"\bextern\s+__shared__\s+(?:(?:__align__|alignas)\s*\([^)]*\)\s*)?([\w:\s]+?)\s*\b(\w+)\s*\[\s*\]\s*;"
)
_BOUNDS = r"(?:__launch_bounds__\s*\((?:[^()]|\([^()]*\))*\)\s*)?"
MAX_NAMESPACE = 100
_NAMESPACE = re.compile(r'(?:\bnamespace(?:\s+[\w:]+)?|\bextern\s*"C")\s*$')
_KERNEL = re.compile(
    rf'(extern\s*"C"\s*)?__global__\s+{_BOUNDS}(?:static\s+)?void\s+{_BOUNDS}(\w+)\s*\(([^{{;]*?)\)\s*[{{;]'
)


@dataclass(frozen=True)
class CudaSource:
    """A translated source, to be compiled after `cuda_on_cpu.h`; line numbers are those of the original."""

    path: str
    text: str
    kernels: dict[str, tuple[str, ...]]
    """Parameter names of every kernel, by kernel name."""
    non_templates: tuple[str, ...]
    """Kernels of the file itself that are not templates, in source order."""

    def with_defines(self, defines: Mapping[str, str]) -> CudaSource:
        """The source after macro definitions."""
        lines = [f"#define {name} {value}\n" for name, value in defines.items()]
        return replace(self, text="".join([*lines, f'#line 1 "{self.path}"\n', self.text])) if lines else self

    def parameters(self, name: str) -> tuple[str, ...]:
        """Parameter names of a kernel; `name` may be an instance such as `sgemm<32>`."""
        return self.kernels[_strip_template_args(name)]

    def exported_kernels(self, name: str) -> tuple[str, ...]:
        """Kernels that the library exports so that `name` can be launched: all non-templates and `name`.

        Raises:
            CandidateError: no such kernel.
        """
        if _strip_template_args(name) not in self.kernels:
            available = ", ".join(self.kernels) or "no __global__ function"
            raise CandidateError(f"no kernel {name} in {self.path}: it has {available}", where=self.path)
        return self.non_templates if name in self.non_templates else (*self.non_templates, name)


def translate_source(text: str, path: str, included: set[Path] | None = None) -> CudaSource:
    """Translate a source for the CPU, inlining includes from its folder, `EMULATED_INCLUDE_DIR` and `INCLUDE_DIR`.

    Args:
        included: files that are already part of the translation unit.
    Raises:
        CompileError: it contains inline PTX, includes a PTX wrapper without a CPU version, or launches kernels.
    """
    included = set() if included is None else included
    bare = _COMMENT_OR_TEXT.sub(lambda match: _blank_out(match[0]), text)
    for match in _WRAPPERS.finditer(text):
        if bare[match.start() : match.end()].strip() and _find_wrapper(match[1]) is None:
            _raise_unsupported(f"{match[1]} is inline PTX, which needs a GPU", path, text, match.start(1))
    for pattern, reason in ((_PTX, "inline PTX, which needs a GPU"), (_HOST, "a launch; keep only kernels")):
        if match := pattern.search(bare):
            _raise_unsupported(reason, path, text, match.start())
    kernels, non_templates = _find_kernels(bare, text)
    rewritten = _DYNAMIC.sub(_rewrite_dynamic_shared, _TOOLKIT.sub("", text))
    inlined = _INCLUDED.sub(lambda match: _inline_include(match, path, included, kernels), rewritten)
    return CudaSource(path, inlined, kernels, non_templates)


def _find_wrapper(name: str) -> Path | None:
    """The CPU version of a device header of this package, or the header itself if it is plain C++."""
    if (emulated := EMULATED_INCLUDE_DIR / name).is_file():
        return emulated
    header = INCLUDE_DIR / name
    return header if header.is_file() and not _PTX.search(header.read_text(encoding="utf-8")) else None


def _inline_include(match: re.Match[str], path: str, included: set[Path], kernels: dict[str, tuple[str, ...]]) -> str:
    """The text of the included file between `#line` directives; adds its kernels."""
    own = Path(path).parent / match[1]
    file = own if own.is_file() else _find_wrapper(match[1])
    if file is None:
        return match[0]
    if file in included:
        return ""
    included.add(file)
    inner = translate_source(file.read_text(encoding="utf-8", errors="replace"), str(file), included)
    kernels.update(inner.kernels)
    after = match.string.count("\n", 0, match.start()) + 2
    return f'#line 1 "{file}"\n{inner.text}\n#line {after} "{path}"'


def _find_kernels(bare: str, text: str) -> tuple[dict[str, tuple[str, ...]], tuple[str, ...]]:
    kernels: dict[str, tuple[str, ...]] = {}
    non_templates: dict[str, None] = {}
    for match in _KERNEL.finditer(bare):
        kernels[match[2]] = tuple(_parameter(part) for part in _split(match[3]))
        if not re.search(r"template\s*<[^;{}]*>\s*$", bare[: match.start()]):
            non_templates[match[2]] = None
    return kernels, tuple(non_templates)


def _split(parameters: str) -> list[str]:
    parts = re.split(r",(?![^<(]*[>)])", parameters)
    return [part.strip() for part in parts if part.strip()]


def _parameter(text: str) -> str:
    words = re.findall(r"\w+", re.sub(r"\[[^\]]*\]|=.*", "", text))
    return words[-1] if words else "?"


def _rewrite_dynamic_shared(match: re.Match[str]) -> str:
    """In a function, a pointer, since g++ ignores the assembler's name in a template; outside, where its address is not
    constant, the array under that name."""
    kind, name, lines = " ".join(match[1].split()), match[2], "\n" * match[0].count("\n")
    if _is_in_function(_COMMENT_OR_TEXT.sub(lambda part: _blank_out(part[0]), match.string[: match.start()])):
        return f"{kind}* const {name} = reinterpret_cast<{kind}*>(kw_dynamic_shared);{lines}"
    return f"extern KW_STORAGE {kind} {name}[] KW_DYNAMIC;{lines}"


def _is_in_function(before: str) -> bool:
    """Whether a source without comments ends inside of braces that are not those of a namespace."""
    are_namespaces: list[bool] = []
    for brace in re.finditer(r"[{}]", before):
        if brace[0] == "{":
            are_namespaces.append(
                bool(_NAMESPACE.search(before[max(brace.start() - MAX_NAMESPACE, 0) : brace.start()]))
            )
        elif are_namespaces:
            are_namespaces.pop()
    return not all(are_namespaces)


def _blank_out(text: str) -> str:
    """Replace comments and string literals by spaces, except "C", since `extern "C"` is matched later."""
    return text if text == '"C"' else re.sub(r"[^\n]", " ", text)


def _strip_template_args(name: str) -> str:
    return name.split("<")[0].strip()


def _raise_unsupported(reason: str, path: str, text: str, offset: int) -> None:
    line = text.count("\n", 0, offset) + 1
    raise CompileError(f"line {line}: {reason}", where=f"{path}:{line}", next="--device cuda")
