"""The file that a person owns: the program as it was, the kernels, and a `ModelNew` that uses them."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Sequence, Set
from pathlib import Path
from typing import Any

from torch import fx

from kernelwright.compiler.backends import generator_for
from kernelwright.compiler.capture.capture import Captured
from kernelwright.compiler.differentiable import CALL, Differentiable, functions
from kernelwright.compiler.forward_codegen import Forward, Part
from kernelwright.compiler.guards import GUARD_NAMES, apart, arguments, guard, in_mode
from kernelwright.compiler.identifiers import Apart, defined_names, known_names
from kernelwright.compiler.kernel_source import Kernel, wrapped
from kernelwright.core.errors import ProblemError
from kernelwright.core.optimization import COMPILED
from kernelwright.problems import Problem
from kernelwright.problems.importing import split_target

PLAIN_CALL = "{name}({given})"
DIRECT_CALL = "__call__ = forward"
"""A function stays one to its callers: an nn.Module's own call costs 16 to 30 us where the caches are cold."""
FUTURE = "from __future__ import annotations\n"


def assemble(
    problem: Problem,
    captured: Captured,
    parts: Sequence[Part],
    kernels: Sequence[Kernel],
    about: str,
    device: str,
    gradients: Sequence[Differentiable] = (),
    trained: Set[fx.Node] = frozenset(),
) -> str:
    """The whole file.

    Args:
        trained: the nodes that asked for a gradient when it was proved.
        gradients: for each region its backward pass, for a program that is trained; `kernels` holds theirs too.
        parts: the regions that run as kernels; `kernels` holds one for each.
        about: what the head of the file says, without quotes.
    Raises:
        ProblemError: the program is not one that a file can hold.
    """
    original, base = _original(problem)
    generator = generator_for(device)
    own = [generator.text(kernels)] if parts else []
    own += [functions(gradients)] if gradients else []
    named = GUARD_NAMES | {name for text in own for name in defined_names(text)}
    rename = Apart(named, known_names(original) | set(_signature(problem).parameters))
    trained_regions = {found.region.name for found in gradients}
    names = [part.region.name for part in parts]
    calls = {name: rename((CALL if name in trained_regions else PLAIN_CALL).replace("{name}", name)) for name in names}
    forward = Forward(captured, parts, calls, {one.region.name for one in kernels if not one.code} - trained_regions)
    kernels = [one._replace(in_place=forward.in_place.get(one.region.name, {})) for one in kernels]
    pieces = [
        f'"""{about}"""\n\n{_future(original)}{generator.imports if parts else "import torch"}\n',
        _titled("the program as it was", original.replace(FUTURE, "")),
    ]
    if parts:
        pieces.append(_titled("kernels", rename(generator.text(kernels))))
        if gradients:
            pieces.append(_titled("gradients", rename(functions(gradients))))
        asking = trained & set(forward.inputs("self").values()) if gradients else set()
        absent = generator.absent if any(not kernel.code for kernel in kernels) else ""
        proved = guard(forward, device, asking, bool(gradients), absent)
        pieces.append(_titled("what they were proved for", rename(proved)))
    as_proved = rename("as_proved") if parts else ""
    pieces.append(_titled("the program as it is now", _model(problem, captured, forward, base, as_proved)))
    return "\n\n".join(piece.strip("\n") + "\n" for piece in pieces)


def assemble_whole(problem: Problem, way: str, about: str) -> str:
    """The file of a program that runs as torch compiles it, or as it was.

    Args:
        way: `torch.compile` or `torch`.
        about: what the head of the file says, without quotes.
    """
    original, base = _original(problem)
    body = _as_compiled(problem, base) if way == COMPILED else _untouched(problem, base)
    pieces = [
        f'"""{about}"""\n\n{_future(original)}import torch\n',
        _titled("the program as it was", original.replace(FUTURE, "")),
        _titled("the program as it is now", _class(problem, base, body)),
    ]
    return "\n\n".join(piece.strip("\n") + "\n" for piece in pieces)


def _titled(title: str, text: str) -> str:
    return f"# ---- {title}\n\n{text.strip()}\n"


# ---- the program as it was


def _original(problem: Problem) -> tuple[str, str]:
    """The source of the problem, and the name of the class or function in it: `Model` for one that lives in memory."""
    if problem.source is None:
        return "# Model is given by whoever loads this.\n", "Model"
    place, name = split_target(problem.source)
    base = type(problem.module).__name__ if problem.module is not None else name or problem.name
    if not place.endswith(".py"):
        return f"from {place} import {base}\n", base
    return _without_head(Path(place).read_text()), base


def _future(original: str) -> str:
    return FUTURE if FUTURE in original else ""


def _without_head(source: str) -> str:
    """A module without its docstring and what only a script runs."""
    tree, lines = ast.parse(source), source.splitlines()
    for at, node in enumerate(tree.body):
        docstring = at == 0 and isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        script = isinstance(node, ast.If) and "__name__" in ast.unparse(node.test)
        if docstring or script:
            assert node.end_lineno
            lines[node.lineno - 1 : node.end_lineno] = [""] * (node.end_lineno - node.lineno + 1)
    return "\n".join(lines).strip() + "\n"


# ---- the new program


def _class(problem: Problem, base: str, body: str) -> str:
    if problem.module is not None:
        return f"class ModelNew({base}):\n{_indented(body)}"
    return f"class ModelNew(torch.nn.Module):\n{_indented(body.rstrip())}\n\n    {DIRECT_CALL}\n"


def _model(problem: Problem, captured: Captured, forward: Forward, base: str, as_proved: str) -> str:
    """`ModelNew`; `as_proved` is the function that says whether the kernels are for some tensors, if there are."""
    if not as_proved:
        return _class(problem, base, _untouched(problem, base))
    signature = _signature(problem)
    taken = ", ".join(["self", *map(str, signature.parameters.values())])
    given = ", ".join(_passed_on(parameter) for parameter in signature.parameters.values())
    hidden = base in {node.name for node in captured.graph.nodes}
    original = f"{'self.original' if hidden else base}({given})"
    if problem.module is not None:
        original = f"super().forward({given})"
    unpacked, conditions = arguments(problem, captured, signature)
    if captured.training:
        conditions.insert(0, in_mode(captured.training))
    tensors = ", ".join(forward.inputs("self"))
    proved = [f"{as_proved}({tensors})"]
    if any(kind != "output" for kind, _ in captured.results):
        proved.append(apart(list(forward.inputs("self"))))
    guards = [conditions, proved] if unpacked else [[*conditions, *proved]]
    body = [
        *(_if_not(" and ".join(guard), f"return {original}") for guard in guards[:-1] if guard),
        *unpacked,
        _if_not(" and ".join(guards[-1]), f"return {original}"),
        *forward.lines("self"),
    ]
    doc = f'"""{base} with kernels of its own, for the tensors that they were proved for; else {base} as it was."""'
    alias = [f"original = staticmethod({base})", ""] if hidden and problem.module is None else []
    return _class(problem, base, "\n".join([doc, "", *alias, wrapped(f"def forward({taken}):"), *map(_indented, body)]))


def _if_not(condition: str, then: str) -> str:
    line = f"if not ({condition}):" if " and " in condition else f"if not {condition}:"
    return f"{wrapped(line)}\n    {then}"


def _untouched(problem: Problem, base: str) -> str:
    if problem.module is not None:
        return f'"""{base} as it was: no kernel was faster."""\n'
    return f'"""{base} as it was: no kernel was faster."""\n\nforward = staticmethod({base})\n'


def _as_compiled(problem: Problem, base: str) -> str:
    called = f"torch.compile({base}.forward, dynamic=False)"
    if problem.module is None:
        called = f"staticmethod(torch.compile({base}, dynamic=False))"
    return f'"""{base} as torch.compile makes it: as a whole the fastest here."""\n\nforward = {called}\n'


def _signature(problem: Problem) -> inspect.Signature:
    program: Any = problem.module.forward if problem.module is not None else problem.program
    signature = inspect.signature(program)
    plain = [p.replace(annotation=p.empty) for p in signature.parameters.values()]
    for parameter in plain:
        if parameter.default is not parameter.empty and not isinstance(
            parameter.default, (int, float, bool, str, type(None))
        ):
            raise ProblemError(f"the default of its argument {parameter.name} is no plain value")
    return inspect.Signature(plain)


def _passed_on(parameter: inspect.Parameter) -> str:
    match parameter.kind:
        case parameter.VAR_POSITIONAL:
            return f"*{parameter.name}"
        case parameter.VAR_KEYWORD:
            return f"**{parameter.name}"
        case parameter.KEYWORD_ONLY:
            return f"{parameter.name}={parameter.name}"
    return parameter.name


def _indented(text: str) -> str:
    return textwrap.indent(text, "    ")
