"""A CUDA C++ source as text: what g++ cannot take is refused, what it can is rewritten on the same line."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from kernelwright.core.errors import CandidateError, CompileError

_COMMENT_OR_TEXT = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', re.DOTALL)
_WRAPPERS = re.compile(r'^[ \t]*#[ \t]*include[ \t]*[<"](kw/[^">]*)[">]', re.MULTILINE)
_TOOLKIT = re.compile(
    r'^[ \t]*#[ \t]*include[ \t]*[<"](?:cuda|cuda_runtime|cuda_runtime_api|device_launch_parameters)\.h[">]',
    re.MULTILINE,
)
EMULATED_INCLUDE_DIR = Path(__file__).parent / "include"
"""Those of the package's wrappers of PTX that have a meaning on the CPU."""
_INCLUDED = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"]+)"[^\n]*', re.MULTILINE)
_PTX = re.compile(r"\basm\b(?:\s+volatile\b)?\s*\(")
_HOST = re.compile(r"<<<")
_DYNAMIC = re.compile(
    r"\bextern\s+__shared__\s+(?:(?:__align__|alignas)\s*\([^)]*\)\s*)?([\w:\s]+?)\s*\b(\w+)\s*\[\s*\]\s*;"
)
_BOUNDS = r"(?:__launch_bounds__\s*\((?:[^()]|\([^()]*\))*\)\s*)?"
_KERNEL = re.compile(
    rf'(extern\s*"C"\s*)?__global__\s+{_BOUNDS}(?:static\s+)?void\s+{_BOUNDS}(\w+)\s*\(([^{{;]*?)\)\s*[{{;]'
)


@dataclass(frozen=True)
class CudaSource:
    """A source that is ready for `cuda_on_cpu.h`, whose lines have the numbers of the text that it was made of."""

    path: str
    text: str
    kernels: dict[str, tuple[str, ...]]
    """Every kernel's name and its parameters' names."""
    non_templates: tuple[str, ...]
    """Kernels that are no templates, in the order of the source."""

    def parameters(self, name: str) -> tuple[str, ...]:
        """The names of a kernel's parameters; `name` may be an instance such as `sgemm<32>`."""
        return self.kernels[_strip_template_args(name)]

    def exported_kernels(self, name: str) -> tuple[str, ...]:
        """The kernels of the library in which one is asked for.

        Raises:
            CandidateError: there is no such kernel.
        """
        if _strip_template_args(name) not in self.kernels:
            there = ", ".join(self.kernels) or "no __global__ function"
            raise CandidateError(f"no kernel {name} in {self.path}: it has {there}", where=self.path)
        return self.non_templates if name in self.non_templates else (*self.non_templates, name)


def translate_source(text: str, path: str, included: set[Path] | None = None) -> CudaSource:
    """A source for the CPU, with what it includes of the files beside it and of `EMULATED_INCLUDE_DIR`.

    Args:
        included: the files that stand in the text already.
    Raises:
        CompileError: it holds inline PTX, includes the wrappers of PTX, or launches kernels itself.
    """
    included = set() if included is None else included
    bare = _COMMENT_OR_TEXT.sub(lambda match: _blank_out(match[0]), text)
    for match in _WRAPPERS.finditer(text):
        if bare[match.start() : match.end()].strip() and not (EMULATED_INCLUDE_DIR / match[1]).is_file():
            _raise_unsupported(f"{match[1]} is inline PTX, which only a GPU executes", path, text, match.start(1))
    for pattern, reason in ((_PTX, "inline PTX, which only a GPU executes"), (_HOST, "a launch: keep kernels only")):
        if match := pattern.search(bare):
            _raise_unsupported(reason, path, text, match.start())
    kernels, plain = _find_kernels(bare, text)
    ready = _DYNAMIC.sub(_rewrite_dynamic_shared, _TOOLKIT.sub("", text))
    return CudaSource(path, _INCLUDED.sub(lambda match: _inline_include(match, path, included), ready), kernels, plain)


def _inline_include(match: re.Match[str], path: str, included: set[Path]) -> str:
    """A file in place of its include; lines keep their numbers."""
    file = next(
        (place / match[1] for place in (Path(path).parent, EMULATED_INCLUDE_DIR) if (place / match[1]).is_file()), None
    )
    if file is None:
        return match[0]
    if file in included:
        return ""
    included.add(file)
    inner = translate_source(file.read_text(encoding="utf-8", errors="replace"), str(file), included)
    after = match.string.count("\n", 0, match.start()) + 2
    return f'#line 1 "{file}"\n{inner.text}\n#line {after} "{path}"'


def _find_kernels(bare: str, text: str) -> tuple[dict[str, tuple[str, ...]], tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    plain: dict[str, None] = {}
    for match in _KERNEL.finditer(bare):
        found[match[2]] = tuple(_parameter(part) for part in _split(match[3]))
        if not re.search(r"template\s*<[^;{}]*>\s*$", bare[: match.start()]):
            plain[match[2]] = None
    return found, tuple(plain)


def _split(parameters: str) -> list[str]:
    parts = re.split(r",(?![^<(]*[>)])", parameters)
    return [part.strip() for part in parts if part.strip()]


def _parameter(text: str) -> str:
    words = re.findall(r"\w+", re.sub(r"\[[^\]]*\]|=.*", "", text))
    return words[-1] if words else "?"


def _rewrite_dynamic_shared(match: re.Match[str]) -> str:
    lines = "\n" * match[0].count("\n")
    return f"extern KW_STORAGE {' '.join(match[1].split())} {match[2]}[] KW_DYNAMIC;{lines}"


def _blank_out(text: str) -> str:
    """Comments as spaces; a text keeps its quotes and, when it is C, itself, since `extern "C"` is looked for."""
    return text if text == '"C"' else re.sub(r"[^\n]", " ", text)


def _strip_template_args(name: str) -> str:
    return name.split("<")[0].strip()


def _raise_unsupported(reason: str, path: str, text: str, at: int) -> None:
    line = text.count("\n", 0, at) + 1
    raise CompileError(f"line {line} holds {reason}", where=f"{path}:{line}", next="--device cuda")
