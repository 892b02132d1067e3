"""Renaming of generated names that collide with names of the original program."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Set


class Renamer:
    """Renames generated definitions whose names the program uses; call it on generated source.

    Args:
        own: the names that the generated code defines.
        taken: the names that the program uses.
    """

    def __init__(self, own: Set[str], taken: Set[str]) -> None:
        self._new_names = {name: f"{name}_of_file" for name in own & taken}

    def __call__(self, text: str) -> str:
        """Rename in a source text; attributes keep their names, except those of `KERNELS`."""
        return re.sub(r"(?<!(?<!KERNELS)\.)\b\w+", lambda name: self._new_names.get(name[0], name[0]), text)


def list_defined_names(source: str) -> Iterator[str]:
    """List the names that a module defines at its top level."""
    for node in ast.parse(source).body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            yield node.name
        else:
            names = (one for one in ast.walk(node) if isinstance(one, ast.Name))
            yield from (name.id for name in names if isinstance(name.ctx, ast.Store))


def list_used_names(source: str) -> set[str]:
    """List every name that a program reads, defines or has as a parameter."""
    nodes = list(ast.walk(ast.parse(source)))
    used = {node.id for node in nodes if isinstance(node, ast.Name)}
    used |= {node.name for node in nodes if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    return used | {node.arg for node in nodes if isinstance(node, ast.arg)}
