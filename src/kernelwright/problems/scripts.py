"""Detect whether a Python file is a script, to be profiled while it runs, rather than a problem."""

from __future__ import annotations

import ast
import shlex
from pathlib import Path
from types import ModuleType


def watch_hints(module: ModuleType, location: str) -> list[str]:
    """The command that profiles the module's file while it runs, if it is a script."""
    path = Path(module.__file__ or "")
    return [shlex.join(["kw", "why", "--", "python", location])] if path.suffix == ".py" and is_script(path) else []


def is_script(path: Path) -> bool:
    """Whether the file computes something when it is run: it has `if __name__ == "__main__"`, a loop or a `with` at top
    level, or calls one of its own functions there. False for a file that cannot be parsed."""
    try:
        body = ast.parse(path.read_bytes()).body
    except (SyntaxError, ValueError, OSError):
        return False
    own = {node.name for node in body if isinstance(node, ast.FunctionDef)}
    return any(_is_executable_statement(node, own) for node in body)


def _is_executable_statement(node: ast.stmt, own: set[str]) -> bool:
    match node:
        case ast.If(test=test):
            return any(isinstance(part, ast.Name) and part.id == "__name__" for part in ast.walk(test))
        case ast.For() | ast.While() | ast.With():
            return True
        case ast.Expr(value=ast.Call(func=ast.Name(id=name))):
            return name in own
    return False
