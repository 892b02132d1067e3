"""Digests of sources that do not depend on names of local variables, comments, docstrings or formatting."""

from __future__ import annotations

import ast
import functools
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from kernelwright.core.cache import digest
from kernelwright.toolchain.cuda.includes import INCLUDE_DIR, read_includes

PACKAGE = Path(__file__).resolve().parent.parent
DATA_SUFFIXES = (".json", ".h")
_C_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
Names = Mapping[str, str]


def source_digest(path: Path) -> str:
    """Digest of a source file: Python by its syntax tree, C++ and CUDA C++ by their tokens, JSON by its content.

    Independent of the Python version. The `// kw:` header of a C++ source declares its interface and is included.
    """
    return digest(_normalized_text(path, path.stat().st_mtime_ns))


@functools.lru_cache(maxsize=4096)
def _normalized_text(path: Path, _modified_ns: int) -> str:
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        return normalize_python(text)
    if path.suffix == ".json":
        return json.dumps(json.loads(text), sort_keys=True)
    return normalize_cpp(text)


def normalize_cpp(text: str) -> str:
    """The tokens of C++ or CUDA C++ source, with its `kw:` header."""
    header = [line for line in text.splitlines() if line.lstrip().startswith("// kw:")]
    return " ".join([*header, *_C_COMMENT.sub(" ", text).split()])


@functools.lru_cache(maxsize=4096)
def normalize_python(text: str, qualname: str = "") -> str:
    """The syntax tree as text, with local variables numbered in order of appearance.

    Args:
        qualname: restrict to this function or class of the module; `Class.method` for a method.
    Raises:
        KeyError: the module defines no such name.
    """
    try:
        tree: ast.AST = ast.parse(text)
    except SyntaxError:  # corpus samples may be invalid on purpose
        return text
    for name in filter(None, qualname.split(".")):
        tree = _find_definition(tree, name)
    return "".join(_serialize(tree, {}))


def _find_definition(tree: ast.AST, name: str) -> ast.AST:
    for node in ast.iter_child_nodes(tree):
        if getattr(node, "name", None) == name:
            return node
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if any(isinstance(one, ast.Name) and one.id == name for one in targets):
            return node
    raise KeyError(name)


def _serialize(node: object, names: Names) -> Iterator[str]:
    """Like `ast.dump`, but independent of the Python version (empty fields, quotes)."""
    if isinstance(node, list):
        yield "["
        for one in node:
            yield from _serialize(one, names)
            yield ","
        yield "]"
        return
    if not isinstance(node, ast.AST):
        yield repr(node)
        return
    if isinstance(node, ast.Name):
        yield f"Name({names.get(node.id, node.id)})"
        return
    inner = names
    if isinstance(node, (*_FUNCTIONS, ast.Lambda)):
        inner = _rename_locals(node, names)
    elif isinstance(node, _COMPREHENSIONS):
        inner = _number_names(_target_names(one.target for one in node.generators), names)
    yield f"{type(node).__name__}("
    for field, value in ast.iter_fields(node):
        if field in ("ctx", "kind") or value in (None, [], ()):
            continue
        if field == "module" and str(value).startswith("kernelwright."):  # the location of a module does not count
            continue
        if field == "body" and isinstance(node, (ast.Module, ast.ClassDef, *_FUNCTIONS)):
            value = [one for one in value if not _is_docstring(one)] or [ast.Pass()]
        elif field == "values" and isinstance(node, ast.JoinedStr):  # 3.12 ends a format with an empty string
            value = [one for one in value if not (isinstance(one, ast.Constant) and one.value == "")]
        yield f"{field}="
        outside = field in ("decorator_list", "returns", "args")
        if field == "name" and isinstance(value, str):
            yield names.get(value, value)  # name of an inner function, a class or an exception
        else:
            yield from _serialize(value, names if outside else inner)
    yield ")"


def _rename_locals(node: ast.AST, names: Names) -> Names:
    """Number a function's local variables. Parameters and imported names are kept: callers and modules use them."""
    arguments: ast.arguments = node.args  # type: ignore[attr-defined]
    parameters = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
    kept = {one.arg for one in parameters if one}
    inside = {name: number for name, number in names.items() if name not in kept}
    if isinstance(node, ast.Lambda):
        return inside
    bound: dict[str, None] = {}
    for one in _scope_nodes(node):
        if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store):
            bound[one.id] = None
        elif isinstance(one, (*_FUNCTIONS, ast.ClassDef)) or (isinstance(one, ast.ExceptHandler) and one.name):
            bound[str(one.name)] = None
        elif isinstance(one, ast.Global | ast.Nonlocal):
            kept |= set(one.names)
        elif isinstance(one, ast.Import | ast.ImportFrom):
            kept |= {alias.asname or alias.name.partition(".")[0] for alias in one.names}
    return _number_names([name for name in bound if name not in kept], inside)


def _scope_nodes(function: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a function's own scope in order; inner functions and classes are not entered."""
    todo = list(reversed(function.body))  # type: ignore[attr-defined]
    while todo:
        node = todo.pop()
        yield node
        if isinstance(node, (*_FUNCTIONS, ast.ClassDef, ast.Lambda)):
            continue
        if isinstance(node, _COMPREHENSIONS):
            todo.extend(one for one in ast.walk(node) if isinstance(one, ast.NamedExpr))
            continue
        todo.extend(reversed(list(ast.iter_child_nodes(node))))


def _target_names(targets: Iterable[ast.expr]) -> list[str]:
    return [one.id for target in targets for one in ast.walk(target) if isinstance(one, ast.Name)]


def _number_names(bound: Sequence[str], names: Names) -> Names:
    start = 1 + max((int(number[1:]) for number in names.values()), default=-1)
    return {**names, **{name: f"%{start + i}" for i, name in enumerate(dict.fromkeys(bound))}}


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


# ---- Import closures


def import_closure(*modules: str, leave_out: Sequence[str] = ()) -> tuple[Path, ...]:
    """Every file of this package that the modules import, directly or indirectly, at module level or in functions.

    Includes the data files in their folders (datasheets, C++ headers).

    Args:
        leave_out: path prefixes inside the package, such as `report/`.
    """
    todo, seen = [path for module in modules for path in _module_files(module)], set()
    while todo:
        path = todo.pop()
        if path in seen or str(path.relative_to(PACKAGE)).startswith(tuple(leave_out)):
            continue
        seen.add(path)
        todo.extend(file for name in imported_modules(path) for file in _module_files(name))
    data = {one for path in seen for one in path.parent.iterdir() if one.suffix in DATA_SUFFIXES}
    return tuple(sorted(seen | data))


def imported_modules(path: Path) -> frozenset[str]:
    """The names of this package that a file imports, also in functions."""
    return _imported_modules(path, path.stat().st_mtime_ns)


@functools.lru_cache(maxsize=4096)
def _imported_modules(path: Path, _modified_ns: int) -> frozenset[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return frozenset(name for name in names if name.startswith("kernelwright."))


def _module_files(module: str) -> list[Path]:
    """The file of a module or package; empty for a name that is not a module."""
    base = PACKAGE.joinpath(*module.split(".")[1:])
    return [path for path in (base.with_suffix(".py"), base / "__init__.py") if path.is_file()]


def find_headers(sources: Iterable[Path], folder: Path) -> list[Path]:
    """Every header that the CUDA C++ sources include, from their own folder, from `folder` or from this package."""
    found: set[Path] = set()
    for path in sources:
        if path.suffix == ".cu":
            found.update(read_includes(path.read_text(encoding="utf-8"), [path.parent, folder, INCLUDE_DIR]))
    return sorted(found)


def combined_digest(paths: Iterable[Path]) -> str:
    """One digest of several sources; file names do not count, so that a module can be renamed."""
    return digest(*sorted(source_digest(path) for path in paths))


def machine_slug(machine: str) -> str:
    """The folder name of a machine."""
    return re.sub(r"[^a-z0-9]+", "-", machine.lower()).strip("-")
