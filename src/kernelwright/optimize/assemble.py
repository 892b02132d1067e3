"""The file that a person owns: the program as it was, the kernels, and a `ModelNew` that uses them."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator, Sequence, Set
from pathlib import Path
from typing import Any

import torch
from torch import fx
from torch.utils import _pytree as pytree

from kernelwright.core.errors import ProblemError
from kernelwright.core.optimization import COMPILED
from kernelwright.optimize.differentiable import CALL, Differentiable, functions
from kernelwright.optimize.emit import Kernel, wrapped
from kernelwright.optimize.forward import Forward, Part
from kernelwright.optimize.generators import generator_for
from kernelwright.optimize.graph.capture import Captured
from kernelwright.problems import Problem
from kernelwright.problems.importing import split_target

FUTURE = "from __future__ import annotations\n"
GUARD = '''
def as_proved(*tensors) -> bool:
    """Whether the kernels were proved for such tensors{reservation}."""
    if {refusal}torch.compiler.is_compiling() or torch.is_autocast_enabled("{device}") or followed():
        return False
    recording = torch.is_grad_enabled()
    for tensor, (dtype, shape, strides, trained) in zip(tensors, PROVED, strict=True):
        if type(tensor) not in (torch.Tensor, torch.nn.Parameter) or tensor.dtype is not dtype:
            return False
        if not tensor.is_{device} or tensor.layout is not torch.strided or tensor.is_neg():
            return False
        if tensor.shape != shape or tensor.stride() != strides:
            return False
        if recording and tensor.requires_grad and not trained:
            return False
    return True


def followed() -> bool:
    """Whether torch wants to see every operator: it traces, transforms, or computes gradients forward."""
    return bool(
        torch._C._len_torch_dispatch_stack()
        or torch._C._get_tracing_state()
        or torch._C._functorch.peek_interpreter_stack()
        or torch.autograd.forward_ad._current_level >= 0
    )
'''
GUARD_NAMES = {"as_proved", "followed", "PROVED"}


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
    apart = _Apart(own, _names(problem, original))
    trains = {found.region.name for found in gradients}
    calls = {one.region.name: apart.call(one.region.name, one.region.name in trains) for one in parts}
    forward = Forward(captured, parts, calls, {one.region.name for one in kernels if not one.code} - trains)
    kernels = [one._replace(in_place=forward.in_place.get(one.region.name, {})) for one in kernels]
    pieces = [
        f'"""{about}"""\n\n{_future(original)}{generator.imports if parts else "import torch"}\n',
        _titled("the program as it was", original.replace(FUTURE, "")),
    ]
    if parts:
        pieces.append(_titled("kernels", apart(generator.text(kernels))))
        if gradients:
            pieces.append(_titled("gradients", apart(functions(gradients))))
        asking = trained & set(forward.inputs("self").values()) if gradients else set()
        reservation = "" if gradients else "; nothing here computes gradients"
        refusal = generator.absent if any(not kernel.code for kernel in kernels) else ""
        guard = GUARD.format(device=device, reservation=reservation, refusal=refusal)
        pieces.append(_titled("what they were proved for", apart(f"{_proved(forward, asking)}\n{guard}")))
    guard_name = apart("as_proved") if parts else ""
    pieces.append(_titled("the program as it is now", _model(problem, captured, forward, base, guard_name)))
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


# ---- names of the file that the program uses too


class _Apart:
    """Gives what the file defines other names where the program has the same; called with a text, renames there.

    Args:
        own: the texts that define it.
        taken: every name of the program.
    """

    def __init__(self, own: Sequence[str], taken: Set[str]) -> None:
        defined = {name for text in own for name in _defined(text)}
        self._new = {name: f"{name}_of_file" for name in (defined | GUARD_NAMES) & taken}

    def __call__(self, text: str) -> str:
        """Attributes keep their names, but for the functions of a library, which are the file's."""
        return re.sub(r"(?<!(?<!KERNELS)\.)\b\w+", lambda word: self._new.get(word[0], word[0]), text)

    def call(self, region: str, trains: bool) -> str:
        """How a region is called, for `Forward`."""
        return self((CALL if trains else "{name}({given})").replace("{name}", region))


def _defined(source: str) -> Iterator[str]:
    """The names that a module gives to what is its own."""
    for node in ast.parse(source).body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            yield node.name
        else:
            names = (one for one in ast.walk(node) if isinstance(one, ast.Name))
            yield from (name.id for name in names if isinstance(name.ctx, ast.Store))


def _names(problem: Problem, original: str) -> set[str]:
    """Every name that the program knows or gives."""
    nodes = list(ast.walk(ast.parse(original)))
    known = {node.id for node in nodes if isinstance(node, ast.Name)}
    known |= {node.name for node in nodes if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    return known | {node.arg for node in nodes if isinstance(node, ast.arg)} | set(_signature(problem).parameters)


# ---- guards and the new program


def _proved(forward: Forward, asking: Set[fx.Node]) -> str:
    rows = [_layout(node.meta["val"], node in asking) for node in forward.inputs("self").values()]
    return "PROVED = (\n" + "".join(f"    {row},\n" for row in rows) + ")\n"


def _layout(tensor: torch.Tensor, trained: bool) -> str:
    return f"({tensor.dtype}, {tuple(map(int, tensor.shape))}, {tuple(map(int, tensor.stride()))}, {trained})"


def _class(problem: Problem, base: str, body: str) -> str:
    parent = base if problem.module is not None else "torch.nn.Module"
    return f"class ModelNew({parent}):\n{_indented(body)}"


def _model(problem: Problem, captured: Captured, forward: Forward, base: str, guard: str) -> str:
    """`ModelNew`; `guard` is the function that says whether the kernels are proved for some tensors, if there are."""
    if not guard:
        return _class(problem, base, _untouched(problem, base))
    signature = _signature(problem)
    taken = ", ".join(["self", *map(str, signature.parameters.values())])
    given = ", ".join(_passed_on(parameter) for parameter in signature.parameters.values())
    hidden = base in {node.name for node in captured.graph.nodes}
    original = f"{'self.original' if hidden else base}({given})"
    if problem.module is not None:
        original = f"super().forward({given})"
    unpacked, conditions = _arguments(problem, captured, signature)
    if captured.training:
        conditions.insert(0, _in_mode(captured.training))
    tensors = ", ".join(forward.inputs("self"))
    proved = [f"{guard}({tensors})"]
    if any(kind != "output" for kind, _ in captured.results):
        proved.append(_apart(list(forward.inputs("self"))))
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


def _in_mode(training: tuple[bool, ...]) -> str:
    """Whether every module is in the mode that it was proved in."""
    if len(training) == 1:
        return "self.training" if training[0] else "not self.training"
    if any(training) and not all(training):
        return f"tuple(part.training for part in self.modules()) == {training}"
    return f"{'all' if training[0] else 'not any'}(part.training for part in self.modules())"


def _apart(tensors: Sequence[str]) -> str:
    """Whether no two tensors share memory: what is written into one must not be seen in another."""
    places = ", ".join(f"{tensor}.untyped_storage().data_ptr()" for tensor in tensors)
    return f"len({{{places}}}) == {len(tensors)}"


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
    return f'"""{base} as torch.compile makes it: as a whole faster here than its kernels."""\n\nforward = {called}\n'


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


def _arguments(problem: Problem, captured: Captured, signature: inspect.Signature) -> tuple[list[str], list[str]]:
    """Lines that name the tensors among the arguments, and conditions on everything else."""
    args, kwargs = problem.example
    bound = signature.bind(*args, **kwargs)
    bound.apply_defaults()
    leaves = pytree.tree_leaves((bound.args, bound.kwargs))
    nodes = {int(source.name): node for node, source in captured.sources.items() if source.kind == "argument"}
    node_of = {id(leaf): nodes.get(place) for place, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)}
    lines: list[str] = []
    conditions: list[str] = []
    for name, value in bound.arguments.items():
        conditions += _structure(name, value)
        for path, leaf in pytree.tree_flatten_with_path(value)[0]:
            text, node = name + pytree.keystr(path), node_of.get(id(leaf))
            if not isinstance(leaf, torch.Tensor):
                conditions.append(_same(text, leaf))
            elif node is not None and node.users and node.name != text:
                lines.append(f"{node.name} = {text}")
    return lines, conditions


def _structure(text: str, value: Any) -> list[str]:
    """Conditions that hold for containers with as many members, under the same keys."""
    if isinstance(value, dict):
        inside = [one for key, member in value.items() for one in _structure(f"{text}[{key!r}]", member)]
        return [f"list({text}) == {list(value)!r}", *inside]
    if isinstance(value, (list, tuple)):
        inside = [one for at, member in enumerate(value) for one in _structure(f"{text}[{at}]", member)]
        return [f"len({text}) == {len(value)}", *inside]
    return []


def _same(text: str, value: Any) -> str:
    if value is None or isinstance(value, bool):
        return f"{text} is {value}"
    literal = repr(value)
    if isinstance(value, float) and (value != value or abs(value) == float("inf")):
        literal = f'float("{value}")'
    return f"type({text}) is {type(value).__name__} and {text} == {literal}"


def _indented(text: str) -> str:
    return textwrap.indent(text, "    ")
