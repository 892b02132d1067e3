"""Running a person's Python file, and saying which of its lines went wrong."""

from __future__ import annotations

import contextlib
import difflib
import importlib
import importlib.util
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from kernelwright.core.cache import digest
from kernelwright.core.errors import (
    CandidateError,
    CompileError,
    KernelwrightError,
    MissingDependency,
    NotFoundError,
    UsageError,
)
from kernelwright.problems.local_imports import import_path, install_local_import, isolated_import_path

SUFFIXES = (".py", ".cpp", ".cu")
INSTALL_COMMANDS = {"triton": "pip install 'kernelwright[cuda]'"}


def split_target(target: str) -> tuple[str, str]:
    """`file.py:function` -> (`file.py`, `function`); the second part is empty where nothing is named."""
    place, colon, name = target.rpartition(":")
    return (place, name) if colon and place and name.isidentifier() else (target, "")


def is_module_target(location: str, name: str) -> bool:
    """Whether `place:name` means a module that can be imported, not a file."""
    dotted = bool(name) and all(part.isidentifier() for part in location.split("."))
    return dotted and not location.endswith(".py") and not Path(location).exists()


def absolute_target(target: str) -> str:
    """The same target from any working folder: its file, when it names one, by its whole path.

    Raises:
        NotFoundError, UsageError: as `find_file`.
    """
    place, name = split_target(target)
    if is_module_target(place, name):
        return target
    return f"{find_file(place).absolute()}{':' + name if name else ''}"


def find_file(location: str) -> Path:
    """The file at `location`.

    Raises:
        NotFoundError: nothing is there; names the files beside it that are called nearly so.
        UsageError: it is a folder.
    """
    path = Path(location).expanduser()
    if path.is_file():
        return path
    if path.is_dir():
        raise UsageError(f"{location} is a folder, not a file", next=_did_you_mean(_files(path)[:5]))
    beside = _files(path.parent) if path.parent.is_dir() else []
    close = set(difflib.get_close_matches(path.name, [file.name for file in beside], n=3, cutoff=0.6))
    near = [file for file in beside if file.name in close or file.stem == path.name]
    raise NotFoundError(f"no file {location}", next=_did_you_mean(near), where=str(path.parent.absolute()))


def import_file(path: Path, error: type[KernelwrightError]) -> ModuleType:
    """A new module from a file, which can import the files beside it, now and when it is called.

    What it prints goes to stderr.

    Raises:
        error: the file does not run; `where` is the line of that file.
    """
    name = f"kernelwright_target_{path.stem}_{digest(str(path.absolute()))[:8]}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise error(f"{path} is not a Python file", where=str(path))
    module = importlib.util.module_from_spec(spec)
    folder = path.parent.absolute()
    install_local_import(module, folder)
    with reraise_as(path, error, "does not import"), isolated_import_path(folder):
        sys.modules[name] = module  # dataclasses, torch.compile and Triton look a function's module up by name
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[name]
            raise
    return module


def import_module(name: str, error: type[KernelwrightError]) -> ModuleType:
    """The module `package.module`, looked for from the working folder too.

    Raises:
        NotFoundError: there is none.
        error: it does not import.
    """
    with import_path(Path.cwd()):
        try:
            found = importlib.util.find_spec(name)
        except (ImportError, ValueError):
            found = None
        except Exception as fault:
            raise error(f"the package of {name} does not import: {fault!r}") from fault
        if found is None:
            hint = "give a path such as ./model.py, or package.module"
            raise NotFoundError(f"no file and no module {name}", next=hint)
        with reraise_as(Path(found.origin or name), error, "does not import"):
            return importlib.import_module(name)


def get_attribute(module: ModuleType, name: str, location: str, error: type[KernelwrightError]) -> Any:
    """`module.name`; raises `error` with near names when it is not there."""
    if hasattr(module, name):
        return getattr(module, name)
    own = defined_callables(module)
    near = difflib.get_close_matches(name, own, n=3)
    raise error(f"{location} has no {name!r}; it defines {join_names(own)}", next=_did_you_mean(near), where=location)


def defined_callables(module: ModuleType) -> list[str]:
    """The functions and classes that a module defines itself."""
    public = {name: value for name, value in vars(module).items() if callable(value) and not name.startswith("_")}
    return [name for name, value in public.items() if getattr(value, "__module__", None) == module.__name__]


def join_names(names: Iterable[str]) -> str:
    return ", ".join(names) or "nothing"


@contextlib.contextmanager
def reraise_as(path: Path | None, error: type[KernelwrightError], what: str) -> Iterator[None]:
    """Turns whatever a person's code raises into `error` with the line of `path` at which it went wrong.

    Python that does not parse becomes a CompileError where `error` is a CandidateError, as C++ that does not compile.
    """
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    except KernelwrightError:
        raise
    except ModuleNotFoundError as fault:
        if fault.name in INSTALL_COMMANDS:
            raise MissingDependency(
                f"{path} needs {fault.name}", next=INSTALL_COMMANDS[fault.name], where=str(path)
            ) from fault
        hint = f"install {fault.name}, or mend the import"
        raise error(f"{path} {what}: {fault}", where=error_location(fault, path), next=hint) from fault
    except (Exception, SystemExit) as fault:
        message = str(fault).partition("\n")[0]
        text = f"{path or 'it'} {what}: {type(fault).__name__}{': ' if message else ''}{message}"
        is_syntax = isinstance(fault, SyntaxError) and error is CandidateError
        raised = CompileError if is_syntax else error
        raise raised(
            text, where=error_location(fault, path), next="fix that line, or run again with --debug"
        ) from fault


def error_location(error: BaseException, path: Path | None) -> str:
    """`file:line` of the innermost line of `path` in a traceback, or of the syntax error in it."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}"
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if path and Path(frame.filename) == path.absolute()]
    return f"{path}:{own[-1].lineno}" if own else str(path or "")


def wrap_with_reraise(
    call: Callable[[], Any], path: Path | None, error: type[KernelwrightError], what: str
) -> Callable[[], Any]:
    """`call`, whose exceptions become `error`."""

    def run() -> Any:
        with reraise_as(path, error, what):
            return call()

    return run


def _files(folder: Path) -> list[Path]:
    return sorted(file for file in folder.iterdir() if file.suffix in SUFFIXES)


def _did_you_mean(near: Iterable[Any]) -> str:
    words = [str(one) for one in near]
    return f"did you mean {' or '.join(words)}?" if words else ""
