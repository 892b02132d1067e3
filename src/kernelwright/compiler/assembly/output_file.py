"""The output file: the original program, and on top of it layers of classes, of which the last is `ModelNew`."""

from __future__ import annotations

import ast
import inspect
import math
import sys
import textwrap
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, is_dataclass
from pathlib import Path
from typing import Any, Protocol

import torch

from kernelwright.compiler.identifiers import Renamer, list_defined_names, list_used_names
from kernelwright.core.errors import ProblemError
from kernelwright.problems import Problem
from kernelwright.problems.importing import split_target
from kernelwright.problems.signature import is_wrapped

DIRECT_CALL = "__call__ = forward"
"""For a program that is a function: `nn.Module.__call__` costs 16 to 30 us with cold caches."""
FUTURE_IMPORT = "from __future__ import annotations\n"
MODEL_NEW = "ModelNew"


class Layer(Protocol):
    """One class of the file."""

    @property
    def class_name(self) -> str:
        """The name of the class below another one; the last one is `ModelNew`."""
        ...

    @property
    def imports(self) -> str:
        """Import statements, each on a line."""
        ...

    def sections(self, problem: Problem) -> Sequence[tuple[str, str]]:
        """Titles and sources of the definitions that come before the classes."""
        ...

    def body(self, below: LayerBelow) -> str:
        """The body of the class, which defines `forward`."""
        ...


@dataclass(frozen=True)
class LayerBelow:
    """What a layer builds on.

    Attributes:
        name: the class below, or the original program.
        is_function: the original program is a function, and the layer is the first.
        rename: gives the names that sections define, where the program uses the same.
    """

    problem: Problem
    name: str
    is_function: bool
    rename: Renamer

    def signature(self) -> tuple[str, str]:
        """The parameters of `forward`, from `self`, and the arguments that pass them on."""
        signature = plain_signature(self.problem)
        parameters = ", ".join(filter(None, ["self", str(signature)[1:-1]]))
        return parameters, ", ".join(self._forwarded_arguments())

    def _forwarded_arguments(self) -> list[str]:
        """The arguments of a call of what is below; by keyword where a wrapper may look for them there."""
        parameters = list(plain_signature(self.problem).parameters.values())
        program: Any = self.problem.module if self.problem.module is not None else self.problem.program
        if is_wrapped(program):
            kinds = {inspect.Parameter.POSITIONAL_OR_KEYWORD: inspect.Parameter.KEYWORD_ONLY}
            parameters = [one.replace(kind=kinds.get(one.kind, one.kind)) for one in parameters]
        return [_forwarded_argument(one) for one in parameters]

    def split_arguments(self) -> tuple[str, str]:
        """The arguments that are passed on by position, each with a comma behind it, and those by keyword."""
        values = self._forwarded_arguments()
        positional = [one for one in values if "=" not in one and not one.startswith("**")]
        return "".join(f"{one}, " for one in positional).rstrip(), ", ".join(values[len(positional) :])

    def argument_names(self) -> list[str]:
        """The names of the arguments of `forward`."""
        return list(plain_signature(self.problem).parameters)

    def call(self, arguments: str) -> str:
        """The expression of a call of what is below."""
        return f"{self.name}({arguments})" if self.is_function else f"super().forward({arguments})"


def assemble_file(problem: Problem, layers: Sequence[Layer], header: str) -> str:
    """Assemble the file; without layers it runs the original program.

    Args:
        layers: from the one that calls the original program to the one that is `ModelNew`.
        header: docstring of the file, without quotes.
    Raises:
        ProblemError: the program cannot be written as a file.
    """
    original, base = original_source(problem)
    layers = layers or [OriginalLayer()]
    sections = [section for layer in layers for section in layer.sections(problem)]
    defined = {name for _, text in sections for name in list_defined_names(text)}
    class_names = [*(layer.class_name for layer in layers[:-1]), MODEL_NEW]
    used = list_used_names(original) | set(call_signature(problem).parameters)
    rename = Renamer(defined | set(class_names[:-1]), used)
    imports = dict.fromkeys(line for layer in layers for line in layer.imports.strip().splitlines())
    imports.setdefault("import torch")
    future = FUTURE_IMPORT if FUTURE_IMPORT in original else ""
    pieces = [
        "\n\n".join(filter(None, [f'"""{header}"""', future.strip(), _join_imports(imports)])),
        _section("original program", original.replace(FUTURE_IMPORT, "")),
        *(_section(title, rename(text)) for title, text in sections),
    ]
    below, classes = base, []
    for index, (layer, name) in enumerate(zip(layers, class_names, strict=True)):
        is_function = index == 0 and problem.module is None
        body = layer.body(LayerBelow(problem, below, is_function, rename)).rstrip()
        if problem.module is None and layer is layers[-1]:
            body += f"\n\n{DIRECT_CALL}"
        below_class = "torch.nn.Module" if is_function else below
        classes.append(f"class {rename(name)}({below_class}):\n{indent(body)}\n")
        below = rename(name)
    pieces.append(_section("optimised program", "\n\n".join(classes)))
    return "\n\n".join(piece.strip("\n") + "\n" for piece in pieces)


@dataclass(frozen=True)
class OriginalLayer:
    """The original program, unchanged."""

    class_name: str = "Original"
    imports: str = ""

    def sections(self, problem: Problem) -> Sequence[tuple[str, str]]:
        """None."""
        return ()

    def body(self, below: LayerBelow) -> str:
        """A docstring; the class of a function calls it."""
        doc = f'"""The original {below.name}: nothing was faster."""\n'
        return f"{doc}\nforward = staticmethod({below.name})\n" if below.is_function else doc


@dataclass(frozen=True)
class CompiledLayer:
    """The program compiled as a whole by torch.compile, in its default mode or another."""

    class_name: str = "Compiled"
    imports: str = ""
    mode: str = ""

    def sections(self, problem: Problem) -> Sequence[tuple[str, str]]:
        """None."""
        return ()

    def body(self, below: LayerBelow) -> str:
        """The compiled forward function."""
        options = "dynamic=False" + (f', mode="{self.mode}"' if self.mode else "")
        compiled = f"torch.compile({below.name}.forward, {options})"
        if below.is_function:
            compiled = f"staticmethod(torch.compile({below.name}, {options}))"
        return f'"""{below.name} compiled as a whole by torch.compile."""\n\nforward = {compiled}\n'


def _join_imports(lines: dict[str, None]) -> str:
    """Imports of modules first, then those from modules."""
    plain, from_modules = ([line for line in lines if line.startswith(kind)] for kind in ("import", "from"))
    return "\n".join([*plain, *from_modules]) + "\n"


def _section(title: str, text: str) -> str:
    return f"# ---- {title}\n\n{text.strip()}\n"


def original_source(problem: Problem) -> tuple[str, str]:
    """The source of the problem and the name of the class or function in it; `Model` for an in-memory program."""
    if problem.source is None:
        return "# The loader defines Model.\n", "Model"
    location, name = split_target(problem.source)
    base = type(problem.module).__name__ if problem.module is not None else name or problem.name
    if not location.endswith(".py"):
        return f"from {location} import {base}\n", base
    text, folder = Path(location).read_text(), Path(location).resolve().parent
    path_line = f"sys.path.insert(0, {str(folder)!r})  # the modules of the original program\n\n"
    imports_neighbors = any((folder / name).exists() for name in _imported_files(text))
    return (f"import sys\n\n{path_line}" if imports_neighbors else "") + _strip_docstring_and_main(text), base


def _imported_files(source: str) -> Iterator[str]:
    """The files and folders that a module would import if they were next to it."""
    for node in ast.walk(ast.parse(source)):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [node.module]
        for name in names:
            top = name.partition(".")[0]
            yield from (f"{top}.py", f"{top}/__init__.py")


def _strip_docstring_and_main(source: str) -> str:
    """A module's source without its docstring and its `if __name__` block."""
    tree, lines = ast.parse(source), source.splitlines()
    for index, node in enumerate(tree.body):
        docstring = index == 0 and isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        script = isinstance(node, ast.If) and "__name__" in ast.unparse(node.test)
        if docstring or script:
            assert node.end_lineno
            lines[node.lineno - 1 : node.end_lineno] = [""] * (node.end_lineno - node.lineno + 1)
    return "\n".join(lines).strip() + "\n"


def call_signature(problem: Problem) -> inspect.Signature:
    """The signature of the function, or of the module's `forward`."""
    return inspect.signature(problem.module.forward if problem.module is not None else problem.program)


def plain_signature(problem: Problem) -> inspect.Signature:
    """The signature of the program without annotations.

    Raises:
        ProblemError: a default value cannot be written in a file.
    """
    plain = [p.replace(annotation=p.empty) for p in call_signature(problem).parameters.values()]
    for parameter in plain:
        if parameter.default is not parameter.empty and not _is_literal(parameter.default):
            raise ProblemError(f"default of argument {parameter.name} is not a literal")
    return inspect.Signature(plain)


def _is_literal(value: Any) -> bool:
    """Whether `repr` writes a value as an expression in a file that imports torch."""
    if type(value) in (tuple, list):
        return all(map(_is_literal, value))
    if isinstance(value, float):
        return math.isfinite(value)
    return type(value) in (int, bool, str, type(None), torch.dtype)


def result_types(problem: Problem) -> dict[type, str]:
    """The named tuples and dataclasses among the globals of the program's module, with their names there."""
    home = type(problem.module) if problem.module is not None else inspect.unwrap(problem.program)
    module = sys.modules.get(getattr(home, "__module__", ""))
    named = {value: name for name, value in vars(module).items() if isinstance(value, type)} if module else {}
    return {one: name for one, name in named.items() if is_dataclass(one) or issubclass(one, (tuple, OrderedDict))}


def _forwarded_argument(parameter: inspect.Parameter) -> str:
    match parameter.kind:
        case parameter.VAR_POSITIONAL:
            return f"*{parameter.name}"
        case parameter.VAR_KEYWORD:
            return f"**{parameter.name}"
        case parameter.KEYWORD_ONLY:
            return f"{parameter.name}={parameter.name}"
    return parameter.name


def indent(text: str) -> str:
    """Indent by four spaces."""
    return textwrap.indent(text, "    ")
