"""Grammar of the `kw:` comment block at the top of a C++ or CUDA C++ candidate.

    // kw: entry  row_sums                       the extern "C" function, which returns void
    // kw: dims   x: float32[M, N]               shape of an input or parameter, with the dtype if it matters
    // kw: out    out: float32[M]                one line per output, in the order of the program's outputs
    // kw: args   x, out, M, N                   arguments of the function, in its order
    // kw: returns dict                          only for programs that return a dict, a list, or nothing
    // kw: strided x                             only where the function reads x through stride(x, 0)
    // kw: let    tiles = cdiv(M, 32)            a name for a number, for the lines that follow

A kernel has additional lines for its launch; several kernels run in the order of their `entry` lines, each with the
lines that follow it:

    // kw: grid   cdiv(N, 32), cdiv(M, 32)       blocks, along one to three dimensions
    // kw: block  32, 32                         threads per block, likewise
    // kw: shared 4 * 32 * 33                    bytes of dynamic shared memory, if any
    // kw: cluster 2                             blocks per cluster, if any
    // kw: temp   part: float32[M, 8]            workspace that one kernel writes and the next reads
    // kw: map    x_map: x[128, 64]              tensor map of x for TMA, with the box that one copy moves

`docs/candidates.md` explains each line with an example.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field
from typing import NoReturn

from kernelwright.core.errors import SignatureError
from kernelwright.core.units import DTYPE_BYTES
from kernelwright.problems import integer_expressions
from kernelwright.problems.state import to_identifier

LINE_KINDS = ("entry", "dims", "let", "out", "temp", "map", "args", "returns", "strided")
LAUNCH_SIZE_KINDS = ("grid", "block", "shared", "cluster")
SWIZZLES = {"none": 0, "32": 32, "64": 64, "128": 128}
"""Bytes of a swizzle pattern by the word of a `map` line."""
RETURN_KINDS = ("tuple", "list", "dict", "none")
_LINE = re.compile(r"^\s*//\s*kw:\s*(\w*)\s*(.*?)\s*$")
_TENSOR = re.compile(r"^([A-Za-z_][\w.]*)\s*:\s*(?:(?P<dtype>\w+)\s*)?(?:\[(?P<inside>.*)\])?(?P<plain>.*)$")
_MAP = re.compile(r"^([A-Za-z_]\w*)\s*:\s*([A-Za-z_][\w.]*)\s*\[(.*)\]\s*(?:swizzle\s+(\w+))?$")
_NAME = re.compile(r"^[A-Za-z_][\w.]*$")


@dataclass(frozen=True)
class TensorDeclaration:
    """A tensor of the header. `dims` is None if the line has none; `like` names a tensor of the same shape."""

    name: str
    dtype: str | None
    dims: tuple[ast.expr, ...] | None
    line: int
    like: str | None = None

    @property
    def in_place(self) -> bool:
        """Whether it is an output written into an argument of the program."""
        return self.dtype is None and self.dims is None and self.like is None


@dataclass(frozen=True)
class MapDeclaration:
    """A tensor map: the elements that one copy moves along the last dimensions, and the bytes of its swizzle."""

    name: str
    tensor: str
    box: tuple[ast.expr, ...]
    swizzle: int
    line: int


@dataclass
class LaunchDeclaration:
    """One function and its arguments; `launch_sizes` are the sizes of a kernel launch, by the keyword of their line."""

    entry: str = ""
    line: int = 1
    args: list[tuple[str, ast.expr]] = field(default_factory=list)
    args_line: int = 1
    launch_sizes: dict[str, tuple[ast.expr, ...]] = field(default_factory=dict)
    size_lines: dict[str, int] = field(default_factory=dict)


@dataclass
class Header:
    """A parsed `kw:` block; names are identifiers, `norm.weight` is `norm_weight`."""

    path: str
    launches: list[LaunchDeclaration] = field(default_factory=list)
    dims: dict[str, TensorDeclaration] = field(default_factory=dict)
    outputs: dict[str, TensorDeclaration] = field(default_factory=dict)
    workspaces: dict[str, TensorDeclaration] = field(default_factory=dict)
    maps: dict[str, MapDeclaration] = field(default_factory=dict)
    named_expressions: dict[str, tuple[ast.expr, int]] = field(default_factory=dict)
    """Expressions of `let` lines by name, with their line numbers, in order."""
    returns: str = ""
    strided: set[str] = field(default_factory=set)

    @property
    def passed_names(self) -> set[str]:
        """Names of all arguments, and of the tensors whose maps are arguments."""
        names = {value.id for launch in self.launches for _, value in launch.args if isinstance(value, ast.Name)}
        return names | {self.maps[name].tensor for name in names & set(self.maps)}

    def fail(self, message: str, line: int) -> NoReturn:
        """Raise a SignatureError that points to a line of the file."""
        raise SignatureError(message, where=f"{self.path}:{line}", next="docs/candidates.md shows every kw: line")


def _current_launch(header: Header) -> LaunchDeclaration:
    """The launch that a line belongs to: the last one; lines before the first `entry` belong to the first."""
    if not header.launches:
        header.launches.append(LaunchDeclaration())
    return header.launches[-1]


def parse_header(source: str, path: str) -> Header:
    """Parse the `kw:` block of a source, which must precede the first line of code.

    Raises:
        SignatureError: the block is missing, or a line is unknown or incomplete; `where` is that line.
    """
    header = Header(path)
    for number, text in enumerate(source.splitlines(), 1):
        if text.strip() and not text.lstrip().startswith(("//", "/*", "*")):
            break
        if match := _LINE.match(text):
            _parse_line(header, match[1], match[2], number)
    if not header.launches or not header.launches[0].entry:
        header.fail("no `// kw: entry NAME` in the comment at the top", 1)
    for launch in header.launches:
        if not launch.args:
            header.fail(f"no `// kw: args ...` for {launch.entry} in the comment at the top", launch.line)
    if not header.outputs:
        header.fail("no `// kw: out ...` in the comment at the top: declare the outputs", header.launches[0].line)
    passed_names = header.passed_names
    for shape in header.outputs.values():
        if shape.name not in passed_names:
            header.fail(f"output {shape.name} is not among `kw: args`, so nothing would write it", shape.line)
    return header


def _parse_line(header: Header, kind: str, text: str, line: int) -> None:
    match kind:
        case "entry":
            if not header.launches or header.launches[-1].entry:
                header.launches.append(LaunchDeclaration())
            header.launches[-1].entry, header.launches[-1].line = text, line
            if not text.isidentifier():
                header.fail(f"entry {text!r} is not a function name", line)
        case "dims":
            for part in filter(None, map(str.strip, text.split(";"))):
                shape = _parse_dims(header, part, line)
                header.dims[shape.name] = shape
        case "let":
            name, sign, value = map(str.strip, text.partition("="))
            if not name.isidentifier() or not sign:
                header.fail(f"let {text!r} must be like `tiles = cdiv(M, 32)`", line)
            header.named_expressions[name] = _parse_expression(header, value, line), line
        case "out":
            shape = _parse_out(header, text, line)
            if shape.name in header.outputs:
                header.fail(f"output {shape.name} is declared twice", line)
            header.outputs[shape.name] = shape
        case "args":
            launch = _current_launch(header)
            launch.args_line = line if not launch.args else launch.args_line
            launch.args += [(part, _parse_expression(header, part, line)) for part in _split_on_commas(text)]
        case "grid" | "block" | "shared" | "cluster":
            launch = _current_launch(header)
            launch.launch_sizes[kind] = tuple(_parse_expression(header, part, line) for part in _split_on_commas(text))
            launch.size_lines[kind] = line
        case "temp":
            shape = _parse_out(header, text, line)
            header.workspaces[shape.name] = shape
        case "map":
            declared = _parse_map(header, text, line)
            header.maps[declared.name] = declared
        case "returns":
            header.returns = text
            if text not in RETURN_KINDS:
                header.fail(f"returns {text!r} must be one of {', '.join(RETURN_KINDS)}", line)
        case "strided":
            header.strided |= {to_identifier(name) for name in re.split(r"[\s,]+", text)}
        case _:
            header.fail(f"`kw: {kind}` is not one of {', '.join((*LINE_KINDS, *LAUNCH_SIZE_KINDS))}", line)


def _parse_dims(header: Header, text: str, line: int) -> TensorDeclaration:
    """`x: M N`, `x: float32[M, N]`, `x: [M, N]` or `x: float32`."""
    match = _TENSOR.match(text)
    if not match:
        header.fail(f"dims {text!r} must be like `x: M N` or `x: float32[M, N]`", line)
    dtype, inside, plain = match["dtype"], match["inside"], match["plain"].split()
    if inside is None and dtype not in DTYPE_BYTES:
        inside, dtype = ",".join([*([dtype] if dtype else []), *plain]), None
    elif plain:
        header.fail(f"dims {text!r}: write the shape of {match[1]} in brackets after its dtype", line)
    return TensorDeclaration(
        to_identifier(match[1]), _require_dtype(header, dtype, line), _parse_shape(header, inside, line), line
    )


def _parse_out(header: Header, text: str, line: int) -> TensorDeclaration:
    """`out: float32[M, N]`, `out: like x`, or `x` for an argument that is modified in place."""
    if _NAME.match(text):
        return TensorDeclaration(to_identifier(text), None, None, line)
    match = _TENSOR.match(text)
    if match and match["dtype"] == "like" and _NAME.match(match["plain"].strip()):
        return TensorDeclaration(to_identifier(match[1]), None, None, line, like=to_identifier(match["plain"].strip()))
    if not match or match["dtype"] is None or match["inside"] is None or match["plain"]:
        header.fail(f"out {text!r} must be like `out: float32[M, N]`, `out: like x`, or the name of an argument", line)
    return TensorDeclaration(
        to_identifier(match[1]),
        _require_dtype(header, match["dtype"], line),
        _parse_shape(header, match["inside"], line),
        line,
    )


def _parse_map(header: Header, text: str, line: int) -> MapDeclaration:
    """`x_map: x[128, 64]`, or `x_map: x[128, 32] swizzle 64`."""
    match = _MAP.match(text)
    if not match:
        header.fail(f"map {text!r} must be like `x_map: x[128, 64]` or `x_map: x[128, 32] swizzle 64`", line)
    name, tensor, inside, swizzle = match.groups(default="128")
    if swizzle not in SWIZZLES:
        header.fail(f"swizzle {swizzle!r} is not one of {', '.join(SWIZZLES)}", line)
    if name in header.maps:
        header.fail(f"map {name} is declared twice", line)
    box = _parse_shape(header, inside, line) or ()
    return MapDeclaration(name, to_identifier(tensor), box, SWIZZLES[swizzle], line)


def _require_dtype(header: Header, dtype: str | None, line: int) -> str | None:
    if dtype is not None and dtype not in DTYPE_BYTES:
        header.fail(f"{dtype!r} is not a dtype: one of {', '.join(DTYPE_BYTES)}", line)
    return dtype


def _parse_shape(header: Header, inside: str | None, line: int) -> tuple[ast.expr, ...] | None:
    return None if inside is None else tuple(_parse_expression(header, part, line) for part in _split_on_commas(inside))


def _parse_expression(header: Header, text: str, line: int) -> ast.expr:
    try:
        return integer_expressions.parse(to_identifier(text) if _NAME.match(text) else text)
    except ValueError as error:
        header.fail(str(error), line)


def _split_on_commas(text: str) -> list[str]:
    """The parts between commas that are not inside parentheses."""
    parts, depth = [""], 0
    for character in text:
        depth += (character == "(") - (character == ")")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts if part.strip()]
