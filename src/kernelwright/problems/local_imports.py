"""Imports between the files of one folder: `import ops` in a user file finds the `ops.py` next to it.

Python has one module per name, so that two folders with an `ops.py` each would share the first one, and a folder is on
the import path only while a file of it is loaded. Here every folder is its own package: its modules are named
`kernelwright_folder_1a2b3c4d.ops`, so that pickle, inspect, torch.compile and Triton find them, and its files have
their own `__import__`, which searches the folder at any time.
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
    """Set the `__import__` of the files in `folder` for a module that has not run yet."""
    name = PREFIX + digest(str(folder))[:8]
    if name not in sys.modules:
        sys.modules[name] = package = ModuleType(name, f"The files in {folder}.")
        package.__path__ = [str(folder)]
    if not any(isinstance(finder, _FolderFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _FolderFinder())
    _set_import(module, name)


@contextlib.contextmanager
def import_path(folder: Path) -> Iterator[None]:
    """Search `folder` first for imports, except for modules of the standard library."""
    finder = _StandardLibrary(folder)
    sys.path.insert(0, str(folder))
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        if str(folder) in sys.path:
            sys.path.remove(str(folder))


@contextlib.contextmanager
def isolated_import_path(folder: Path) -> Iterator[None]:
    """As `import_path`, but modules imported from the folder are removed again, hidden from files of other folders."""
    before = set(sys.modules)
    try:
        with import_path(folder):
            yield
    finally:
        new = [name for name in sys.modules if name not in before]
        top_level = {name for name in new if "." not in name and _is_loaded_from(folder, name)}
        for name in new:
            if name.partition(".")[0] in top_level:
                del sys.modules[name]


class _StandardLibrary:
    """Finds modules of the standard library, loaded or not, as if a folder were not on the import path."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder.resolve()

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if path is not None or name not in sys.stdlib_module_names:
            return None
        return PathFinder.find_spec(name, [entry for entry in sys.path if Path(entry).resolve() != self._folder])


class _FolderFinder:
    """Finds the modules of the folder packages, and sets the `__import__` of each."""

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
    """The `__import__` of files in the folder that `package` represents."""
    top = name.partition(".")[0]
    if level or not _is_sibling(package, top):
        return builtins.__import__(name, globals, locals, fromlist or (), level)
    module = builtins.__import__(f"{package}.{name}", globals, locals, fromlist or (), 0)
    return module if fromlist else sys.modules[f"{package}.{top}"]


def _is_sibling(package: str, name: str) -> bool:
    """Whether a name refers to a file in the same folder, not to a standard or already loaded module such as torch.

    A folder without `__init__.py` has lower priority than an installed package of its name, as in Python itself.
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
