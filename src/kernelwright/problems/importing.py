"""Import user Python files, and report the line that raised."""

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
    """Split `file.py:function` into (`file.py`, `function`); the second part is empty if there is none."""
    location, colon, name = target.rpartition(":")
    return (location, name) if colon and location and name.isidentifier() else (target, "")


def is_module_target(location: str, name: str) -> bool:
    """Whether `location:name` is an importable module rather than a file."""
    dotted = bool(name) and all(part.isidentifier() for part in location.split("."))
    return dotted and not location.endswith(".py") and not Path(location).exists()


def absolute_target(target: str) -> str:
    """The target with an absolute file path, so that it is valid from any working folder.

    Raises:
        NotFoundError, UsageError: as `find_file`.
    """
    location, name = split_target(target)
    if is_module_target(location, name):
        return target
    return f"{find_file(location).absolute()}{':' + name if name else ''}"


def find_file(location: str) -> Path:
    """The file at `location`.

    Raises:
        NotFoundError: it does not exist; suggests files of the same folder with similar names.
        UsageError: it is a folder.
    """
    path = Path(location).expanduser()
    if path.is_file():
        return path
    if path.is_dir():
        raise UsageError(f"{location} is a folder, not a file", next=_did_you_mean(_files(path)[:5]))
    files = _files(path.parent) if path.parent.is_dir() else []
    close = set(difflib.get_close_matches(path.name, [file.name for file in files], n=3, cutoff=0.6))
    near = [file for file in files if file.name in close or file.stem == path.name]
    raise NotFoundError(f"no file {location}", next=_did_you_mean(near), where=str(path.parent.absolute()))


def import_file(path: Path, error: type[KernelwrightError]) -> ModuleType:
    """Import a file as a new module that can import other files of its folder, both now and when it is called.

    Its output goes to stderr.

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
        sys.modules[name] = module  # dataclasses, torch.compile and Triton look up a function's module by name
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[name]
            raise
    return module


def import_module(name: str, error: type[KernelwrightError]) -> ModuleType:
    """Import `package.module`, also searching the working folder.

    Raises:
        NotFoundError: there is no such module.
        error: it does not import.
    """
    with import_path(Path.cwd()):
        try:
            spec = importlib.util.find_spec(name)
        except (ImportError, ValueError):
            spec = None
        except Exception as exc:
            raise error(f"the package of {name} does not import: {exc!r}") from exc
        if spec is None:
            hint = "give a path such as ./model.py, or package.module"
            raise NotFoundError(f"no file and no module {name}", next=hint)
        with reraise_as(Path(spec.origin or name), error, "does not import"):
            return importlib.import_module(name)


def get_attribute(module: ModuleType, name: str, location: str, error: type[KernelwrightError]) -> Any:
    """`module.name`; raises `error` with similar names if it does not exist."""
    if hasattr(module, name):
        return getattr(module, name)
    own = defined_callables(module)
    near = difflib.get_close_matches(name, own, n=3)
    raise error(f"{location} has no {name!r}; it defines {join_names(own)}", next=_did_you_mean(near), where=location)


def defined_callables(module: ModuleType) -> list[str]:
    """Public functions and classes defined in the module itself."""
    public = {name: value for name, value in vars(module).items() if callable(value) and not name.startswith("_")}
    return [name for name, value in public.items() if getattr(value, "__module__", None) == module.__name__]


def join_names(names: Iterable[str]) -> str:
    """Comma-separated names for a message; "nothing" if there are none."""
    return ", ".join(names) or "nothing"


@contextlib.contextmanager
def reraise_as(path: Path | None, error: type[KernelwrightError], what: str) -> Iterator[None]:
    """Convert any exception of user code to `error` with the line of `path` that raised it.

    A syntax error becomes a CompileError if `error` is CandidateError, like C++ that does not compile.
    """
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    except KernelwrightError:
        raise
    except ModuleNotFoundError as exc:
        if exc.name in INSTALL_COMMANDS:
            raise MissingDependency(
                f"{path} needs {exc.name}", next=INSTALL_COMMANDS[exc.name], where=str(path)
            ) from exc
        hint = f"install {exc.name}, or fix the import"
        raise error(f"{path} {what}: {exc}", where=error_location(exc, path), next=hint) from exc
    except (Exception, SystemExit) as exc:
        message = str(exc).partition("\n")[0]
        text = f"{path or 'the program'} {what}: {type(exc).__name__}{': ' if message else ''}{message}"
        is_syntax = isinstance(exc, SyntaxError) and error is CandidateError
        error_type = CompileError if is_syntax else error
        raise error_type(
            text, where=error_location(exc, path), next="fix that line, or run again with --debug"
        ) from exc


def error_location(error: BaseException, path: Path | None) -> str:
    """`file:line` of the innermost frame in `path`, or of the syntax error."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}"
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if path and Path(frame.filename) == path.absolute()]
    return f"{path}:{own[-1].lineno}" if own else str(path or "")


def wrap_with_reraise(
    call: Callable[[], Any], path: Path | None, error: type[KernelwrightError], what: str
) -> Callable[[], Any]:
    """Wrap `call` so that its exceptions become `error`."""

    def run() -> Any:
        with reraise_as(path, error, what):
            return call()

    return run


def _files(folder: Path) -> list[Path]:
    return sorted(file for file in folder.iterdir() if file.suffix in SUFFIXES)


def _did_you_mean(near: Iterable[Any]) -> str:
    names = [str(one) for one in near]
    return f"did you mean {' or '.join(names)}?" if names else ""
