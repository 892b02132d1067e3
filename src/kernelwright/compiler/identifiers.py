"""The names of an optimised file and those of the program in it, kept apart."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Set


class Renamer:
    """Gives what the file defines other names where the program has the same; called with a text, renames there.

    Args:
        own: the names of what it defines.
        taken: every name of the program.
    """

    def __init__(self, own: Set[str], taken: Set[str]) -> None:
        self._new_names = {name: f"{name}_of_file" for name in own & taken}

    def __call__(self, text: str) -> str:
        """Attributes keep their names, but for the functions of a library, which are the file's."""
        return re.sub(r"(?<!(?<!KERNELS)\.)\b\w+", lambda word: self._new_names.get(word[0], word[0]), text)


def list_defined_names(source: str) -> Iterator[str]:
    """The names that a module gives to what is its own."""
    for node in ast.parse(source).body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            yield node.name
        else:
            names = (one for one in ast.walk(node) if isinstance(one, ast.Name))
            yield from (name.id for name in names if isinstance(name.ctx, ast.Store))


def list_used_names(source: str) -> set[str]:
    """Every name that a program knows or gives."""
    nodes = list(ast.walk(ast.parse(source)))
    known = {node.id for node in nodes if isinstance(node, ast.Name)}
    known |= {node.name for node in nodes if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    return known | {node.arg for node in nodes if isinstance(node, ast.arg)}
