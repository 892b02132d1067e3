"""Which sources a result is built from, and their hashes: comments, docstrings and layout do not count."""

from __future__ import annotations

import ast
import functools
import json
import re
from collections.abc import Iterable
from pathlib import Path

from kernelwright.core.cache import digest
from kernelwright.toolchain.cuda.headers import INCLUDE, included

PACKAGE = Path(__file__).resolve().parent.parent
_C_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)


def source_hash(path: Path) -> str:
    """Hash of what a source means: Python by its syntax tree without docstrings, C++ without comments and layout, JSON
    without layout.

    The same under every Python version: a record made on one machine is checked on another. The `kw:` header of a C++
    source is a comment that means something, so it stays.
    """
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        return digest(_normal_python(text))
    if path.suffix == ".json":
        return digest(json.dumps(json.loads(text), sort_keys=True))
    header = [line for line in text.splitlines() if line.lstrip().startswith("// kw:")]
    return digest(" ".join([*header, *_C_COMMENT.sub(" ", text).split()]))


@functools.cache
def _normal_python(text: str) -> str:
    try:
        tree = ast.parse(text)
    except SyntaxError:  # a sample of the corpus that is meant to be none
        return text
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            kept = [child for child in node.body if not _is_docstring(child)]
            node.body = kept or [ast.Pass()]
    return _written(tree)


def _written(node: object) -> str:
    """A syntax tree as text. `ast.unparse` and `ast.dump` change with the Python version: empty fields, quotes."""
    if isinstance(node, ast.JoinedStr):  # 3.12 closes a format with an empty string that 3.11 leaves out
        node.values = [value for value in node.values if not (isinstance(value, ast.Constant) and value.value == "")]
    if isinstance(node, ast.AST):
        fields = ((name, value) for name, value in ast.iter_fields(node) if value not in (None, [], ()))
        inner = ",".join(f"{name}={_written(value)}" for name, value in fields if name not in ("ctx", "kind"))
        return f"{type(node).__name__}({inner})"
    return f"[{','.join(map(_written, node))}]" if isinstance(node, list) else repr(node)


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


DATA = (".json", ".h")
_LANGUAGES = ("sources", "header", "plan", "prototype", "cpp", "cuda")
BESIDE = ("report/", *(f"problems/{name}.py" for name in _LANGUAGES))
"""What shows a measurement, or loads candidates in languages that no record's programs are written in, and so cannot
change its numbers."""
_WALLS = "cage channel child faults filters guarded inspection landlock limits nursery warm __init__"
APART = ("core/records.py", "core/errors.py", *(f"sandbox/{name}.py" for name in _WALLS.split()))
"""What names results and errors, or keeps processes apart, and cannot change what is measured. `sandbox/confine.py`,
which says how threads wait and how memory is backed, can, and counts. `records.MARGIN` decides what is claimed of what
was measured: whoever changes it lets every record be made again."""


def import_closure(*modules: str) -> tuple[Path, ...]:
    """Every file of this package that the modules import, directly or through others, wherever the import stands, and
    what lies beside them as data, such as datasheets and C++ headers. What stands beside a measurement is left out."""
    todo, seen = [p for m in modules for p in _files(m)], set()
    while todo:
        path = todo.pop()
        if path in seen or _name(path).startswith(BESIDE):
            continue
        seen.add(path)
        todo.extend(file for name in imported(path) for file in _files(name))
    counted = {path for path in seen if not is_beside(_name(path))}
    beside = {data for path in counted for data in path.parent.iterdir() if data.suffix in DATA}
    return tuple(sorted(counted | beside))


def headers_of(sources: Iterable[Path], folder: Path) -> list[Path]:
    """Every header that CUDA C++ among the sources includes, from their own folder or this package's."""
    texts = [path.read_text(encoding="utf-8") for path in sources if path.suffix == ".cu"]
    return sorted({path for text in texts for path in included(text, [folder, INCLUDE])})


def is_beside(name: str) -> bool:
    """Whether a source, by its label, has no part in any record."""
    return name.removeprefix("kernelwright/").startswith((*BESIDE, *APART))


def _name(path: Path) -> str:
    return label(path, PACKAGE).removeprefix("kernelwright/")


def imported(path: Path) -> set[str]:
    """The names inside this package that a file imports, functions and lazy imports included."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return {name for name in names if name.startswith("kernelwright.")}


def _files(module: str) -> list[Path]:
    """The file of a module, or of a package that is named itself; nothing for a name that is no module."""
    base = PACKAGE.joinpath(*module.split(".")[1:])
    return [path for path in (base.with_suffix(".py"), base / "__init__.py") if path.is_file()]


def hashes(paths: Iterable[Path], root: Path) -> dict[str, str]:
    """Hash of each source by its path relative to `root`; sources of this package by `kernelwright/...`."""
    return {label(path, root): source_hash(path) for path in paths}


def label(path: Path, root: Path) -> str:
    path = path.resolve()
    if path.is_relative_to(PACKAGE):
        return str(Path("kernelwright") / path.relative_to(PACKAGE))
    return str(path.relative_to(root.resolve()))


def located(name: str, root: Path) -> Path:
    """The inverse of `label`."""
    parts = Path(name).parts
    return PACKAGE.joinpath(*parts[1:]) if parts[0] == "kernelwright" else root / name


def slug(machine: str) -> str:
    """A machine's name as its folder."""
    return re.sub(r"[^a-z0-9]+", "-", machine.lower()).strip("-")
