"""The file that a person owns: the program as it was, the kernels, and a `ModelNew` that uses them."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import fx
from torch.utils import _pytree as pytree

from kernelwright.optimize.capture import Captured
from kernelwright.optimize.differentiable import CALL, Differentiable, functions
from kernelwright.optimize.emit import Kernel, wrapped
from kernelwright.optimize.forward import Forward, Part, Unwritable
from kernelwright.optimize.generators import generator_for
from kernelwright.problems import Problem
from kernelwright.problems.importing import split_target

NO_GRADIENT = " or (torch.is_grad_enabled() and any(t.requires_grad for t in tensors))"
GUARD = '''
def as_proved(*tensors: torch.Tensor) -> bool:
    """Whether the kernels were proved for such tensors{reservation}."""
    if torch.compiler.is_compiling() or torch.is_autocast_enabled("{device}"){no_gradient}:
        return False
    for tensor, (dtype, shape, strides) in zip(tensors, PROVED, strict=True):
        if tensor.dtype is not dtype or tensor.shape != shape or tensor.stride() != strides:
            return False
    return all(tensor.device.type == "{device}" for tensor in tensors)
'''


def assemble(
    problem: Problem,
    captured: Captured,
    parts: Sequence[Part],
    kernels: Sequence[Kernel],
    about: str,
    device: str,
    gradients: Sequence[Differentiable] = (),
) -> str:
    """The whole file.

    Args:
        gradients: for each region its backward pass, for a program that is trained; `kernels` holds theirs too.
        parts: the regions that run as kernels; `kernels` holds one for each.
        about: what the head of the file says, without quotes.
    Raises:
        Unwritable: the program is not one that a file can hold.
    """
    original, base = _original(problem)
    forward = Forward(captured, parts, CALL if gradients else "{name}({given})")
    generator = generator_for(device)
    pieces = [
        f'"""{about}"""\n\n{generator.imports if parts else "import torch"}\n',
        _titled("the program as it was", original),
    ]
    if parts:
        pieces.append(_titled("kernels", generator.text(kernels)))
        if gradients:
            pieces.append(_titled("gradients", functions(gradients)))
        pieces.append(_titled("what they were proved for", f"{_proved(forward)}\n{_guard(device, bool(gradients))}"))
    pieces.append(_titled("the program as it is now", _model(problem, captured, forward, base, bool(parts))))
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


def _without_head(source: str) -> str:
    """A module without its docstring, its imports from __future__ and what only a script runs."""
    tree, lines = ast.parse(source), source.splitlines()
    for at, node in enumerate(tree.body):
        docstring = at == 0 and isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        future = isinstance(node, ast.ImportFrom) and node.module == "__future__"
        script = isinstance(node, ast.If) and "__name__" in ast.unparse(node.test)
        if docstring or future or script:
            assert node.end_lineno
            lines[node.lineno - 1 : node.end_lineno] = [""] * (node.end_lineno - node.lineno + 1)
    return "\n".join(lines).strip() + "\n"


# ---- guards and the new program


def _proved(forward: Forward) -> str:
    rows = [_layout(node.meta["val"]) for node in forward.inputs("self").values()]
    return "PROVED = (\n" + "".join(f"    {row},\n" for row in rows) + ")\n"


def _guard(device: str, trained: bool) -> str:
    if trained:
        return GUARD.format(device=device, reservation="", no_gradient="")
    return GUARD.format(device=device, reservation="; nothing here computes gradients", no_gradient=NO_GRADIENT)


def _layout(tensor: torch.Tensor) -> str:
    return f"({tensor.dtype}, {tuple(map(int, tensor.shape))}, {tuple(map(int, tensor.stride()))})"


def _model(problem: Problem, captured: Captured, forward: Forward, base: str, changed: bool) -> str:
    is_class = problem.module is not None
    head = f"class ModelNew({base if is_class else 'torch.nn.Module'}):\n"
    if not changed:
        return head + _indented(_untouched(problem, base))
    signature = _signature(problem)
    taken = ", ".join(["self", *map(str, signature.parameters.values())])
    given = ", ".join(_passed_on(parameter) for parameter in signature.parameters.values())
    original = f"super().forward({given})" if is_class else f"{base}({given})"
    unpacked, conditions = _arguments(problem, captured, signature)
    tensors = ", ".join(forward.inputs("self"))
    fits = " and ".join([*conditions, f"as_proved({tensors})"])
    body = [
        *unpacked,
        _if_not(fits, f"return {original}"),
        *forward.lines("self"),
    ]
    doc = f'"""{base} with kernels of its own, for the tensors that they were proved for; else {base} as it was."""'
    return head + _indented("\n".join([doc, "", wrapped(f"def forward({taken}):"), *map(_indented, body)]))


def _if_not(condition: str, then: str) -> str:
    line = f"if not ({condition}):" if " and " in condition else f"if not {condition}:"
    return f"{wrapped(line)}\n    {then}"


def _untouched(problem: Problem, base: str) -> str:
    if problem.module is not None:
        return f'"""{base} as it was: no kernel was faster."""\n'
    return f'"""{base} as it was: no kernel was faster."""\n\nforward = staticmethod({base})\n'


def _signature(problem: Problem) -> inspect.Signature:
    program: Any = problem.module.forward if problem.module is not None else problem.program
    signature = inspect.signature(program)
    plain = [p.replace(annotation=p.empty) for p in signature.parameters.values()]
    for parameter in plain:
        if parameter.default is not parameter.empty and not isinstance(
            parameter.default, (int, float, bool, str, type(None))
        ):
            raise Unwritable(f"the default of its argument {parameter.name} is no plain value")
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


def _arguments(problem: Problem, captured: Captured, signature: inspect.Signature) -> tuple[list[str], list[str]]:
    """Lines that name the tensors among the arguments, and conditions on everything else."""
    args, kwargs = problem.example
    leaves, _ = pytree.tree_flatten_with_path(signature.bind(*args, **kwargs).arguments)
    nodes = {int(source.name): node for node, source in captured.sources.items() if source.kind == "argument"}
    lines, conditions = [], []
    for place, (path, value) in enumerate(leaves):
        text = str(getattr(path[0], "key", path[0])) + pytree.keystr(path[1:])
        node: fx.Node | None = nodes.get(place)
        if isinstance(value, torch.Tensor) and node is not None:
            if node.users and node.name != text:
                lines.append(f"{node.name} = {text}")
        elif not isinstance(value, torch.Tensor):
            conditions.append(
                f"{text} is {value}" if value is None or isinstance(value, bool) else f"{text} == {value!r}"
            )
    return lines, conditions


def _indented(text: str) -> str:
    return textwrap.indent(text, "    ")
