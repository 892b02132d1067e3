"""Imports between the files of one folder: `import ops` in a person's file means the `ops.py` beside it.

Python knows one module of a name, so that two folders with an `ops.py` each would share whichever came first, and a
folder is on the import path only while a file in it is loaded. Here every folder is a package of its own: its modules
are `kernelwright_folder_1a2b3c4d.ops`, a name by which pickle, inspect, torch.compile and Triton find them, and the
files in it have an `import` of their own that looks there, at any time.
"""

from __future__ import annotations

import builtins
import contextlib
import functools
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

from kernelwright.core.cache import digest

PREFIX = "kernelwright_folder_"


def install_local_import(module: ModuleType, folder: Path) -> None:
    """Gives a module that has not run yet the `import` of the files in `folder`."""
    name = PREFIX + digest(str(folder))[:8]
    if name not in sys.modules:
        sys.modules[name] = package = ModuleType(name, f"The files in {folder}.")
        package.__path__ = [str(folder)]
    if not any(isinstance(finder, _FolderFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _FolderFinder())
    _set_import(module, name)


@contextlib.contextmanager
def import_path(folder: Path) -> Iterator[None]:
    """Imports look into `folder` first, except for modules of the standard library."""
    standard = _StandardLibrary(folder)
    sys.path.insert(0, str(folder))
    sys.meta_path.insert(0, standard)
    try:
        yield
    finally:
        sys.meta_path.remove(standard)
        if str(folder) in sys.path:
            sys.path.remove(str(folder))


@contextlib.contextmanager
def isolated_import_path(folder: Path) -> Iterator[None]:
    """As `import_path`; what importlib takes from the folder meanwhile is not there for a file of another folder."""
    before = set(sys.modules)
    try:
        with import_path(folder):
            yield
    finally:
        new = [name for name in sys.modules if name not in before]
        tops = {name for name in new if "." not in name and _is_loaded_from(folder, name)}
        for name in new:
            if name.partition(".")[0] in tops:
                del sys.modules[name]


class _StandardLibrary:
    """Finds modules of the standard library, loaded or not, as if a folder were not on the import path."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder.resolve()

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if path is not None or name not in sys.stdlib_module_names:
            return None
        return PathFinder.find_spec(name, [place for place in sys.path if Path(place).resolve() != self._folder])


class _FolderFinder:
    """Finds the modules of the folders, and gives each the `import` of its folder."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if not name.startswith(PREFIX):
            return None
        spec = PathFinder.find_spec(name, path)
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = _FolderLoader(name, spec.loader.path)
        return spec


class _FolderLoader(SourceFileLoader):
    def exec_module(self, module: ModuleType) -> None:
        _set_import(module, module.__name__.partition(".")[0])
        super().exec_module(module)


def _set_import(module: ModuleType, package: str) -> None:
    vars(module)["__builtins__"] = vars(builtins) | {"__import__": functools.partial(_import, package)}


def _import(
    package: str,
    name: str,
    globals: Mapping[str, Any] | None = None,
    locals: Mapping[str, Any] | None = None,
    fromlist: Sequence[str] | None = (),
    level: int = 0,
) -> ModuleType:
    """What `import name` calls in a file of the folder that `package` stands for."""
    top = name.partition(".")[0]
    if level or not _is_sibling(package, top):
        return builtins.__import__(name, globals, locals, fromlist or (), level)
    found = builtins.__import__(f"{package}.{name}", globals, locals, fromlist or (), 0)
    return found if fromlist else sys.modules[f"{package}.{top}"]


def _is_sibling(package: str, name: str) -> bool:
    """Whether a name means a file beside: never one of Python's own, nor what is loaded already, such as torch.

    A folder without `__init__.py` gives way to an installed package of its name, as everywhere in Python.
    """
    if f"{package}.{name}" in sys.modules:
        return True
    if name in sys.modules or name in sys.stdlib_module_names:
        return False
    spec = PathFinder.find_spec(name, sys.modules[package].__path__)
    if spec is None or spec.origin is not None:
        return spec is not None
    installed = find_spec(name)
    return installed is None or installed.origin is None


def _is_loaded_from(folder: Path, name: str) -> bool:
    spec = PathFinder.find_spec(name, [str(folder)])
    loaded = getattr(sys.modules[name], "__file__", None)
    return spec is not None and spec.origin is not None and spec.origin == loaded
