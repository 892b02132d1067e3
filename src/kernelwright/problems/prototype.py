"""Parse the prototype of a C++ function: number and types of its parameters.

ctypes does not check arguments, so a wrong count or type would read garbage instead of failing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

DTYPES_BY_C_TYPE = {
    "float": ("float32",),
    "double": ("float64",),
    "int64_t": ("int64",),
    "long": ("int64",),
    "longlong": ("int64",),
    "int32_t": ("int32",),
    "int": ("int32",),
    "int16_t": ("int16",),
    "uint16_t": ("uint16", "float16", "bfloat16"),
    "_Float16": ("float16",),
    "__half": ("float16",),
    "half": ("float16",),
    "__nv_bfloat16": ("bfloat16",),
    "size_t": ("int64",),
    "__bf16": ("bfloat16",),
    "kw::bf16": ("bfloat16",),
    "kw::f16": ("float16",),
    "int8_t": ("int8",),
    "uint8_t": ("uint8", "bool"),
    "bool": ("bool",),
}
_LAUNCH_ATTRIBUTES = re.compile(r"__(?:launch_bounds|cluster_dims)__\s*\([^)]*\)|__block_size__\s*\([^)]*\)")
"""Launch attributes of a kernel, between its return type and its name."""
QUALIFIERS = re.compile(r"\b(const|restrict|__restrict__|__restrict|std::|struct|signed)\b|std::")


@dataclass(frozen=True)
class Parameter:
    """One parameter as written in the source: its C type without qualifiers, and whether it is a pointer."""

    text: str
    type: str
    pointer: bool

    def accepts_scalar(self, c_type: str) -> bool:
        """Whether it accepts `int64_t` or `double` by value."""
        if self.pointer or self.type not in DTYPES_BY_C_TYPE:
            return not self.pointer
        return DTYPES_BY_C_TYPE[self.type] == DTYPES_BY_C_TYPE[c_type]

    def accepts_tensor(self, dtype: str) -> bool:
        """Whether a tensor of this dtype can be passed; True for types that are not in the table, such as void*."""
        return self.pointer and dtype in DTYPES_BY_C_TYPE.get(self.type, (dtype,))


@dataclass(frozen=True)
class Prototype:
    """Line, return type and parameters of a function definition."""

    line: int
    returns: str
    parameters: tuple[Parameter, ...]


def find_prototype(source: str, name: str) -> Prototype | None:
    """The definition of `name` in a C++ source; None if it cannot be parsed (a macro, a template)."""
    code = _blank_comments(source)
    match = re.search(rf"([\w]+)\s+{re.escape(name)}\s*\(([^(){{}}]*)\)\s*(?:noexcept\s*)?\{{", code)
    if not match:
        return None
    parts = [part for part in match[2].split(",") if part.strip() and part.strip() != "void"]
    line = code.count("\n", 0, match.start()) + 1
    return Prototype(line, match[1], tuple(map(_parse_parameter, parts)))


def find_extern_c_functions(source: str) -> list[str]:
    """Names of the functions that a source declares extern "C"."""
    code = _blank_comments(source)
    return re.findall(r'extern\s+"C"\s+(?:\w+\s+)+?(\w+)\s*\(', code)


def _parse_parameter(text: str) -> Parameter:
    text = " ".join(text.split())
    pointer = "*" in text or "[" in text
    words = QUALIFIERS.sub(" ", text).replace("*", " ").split("[")[0].split()
    type_words = words[:-1] if len(words) > 1 else words
    return Parameter(text, "".join(type_words), pointer)


def _blank_comments(source: str) -> str:
    """The source with comments and launch attributes blanked, and every newline kept."""
    for pattern in (re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL), _LAUNCH_ATTRIBUTES):
        source = pattern.sub(lambda match: " " + "\n" * match[0].count("\n"), source)
    return source
