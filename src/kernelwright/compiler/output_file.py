"""The file that a person owns: the program as it was, the kernels, and a `ModelNew` that uses them."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Sequence, Set
from pathlib import Path
from typing import Any

from torch import fx

from kernelwright.compiler.backends import backend_for
from kernelwright.compiler.capture.capture import CapturedProgram
from kernelwright.compiler.differentiable import AUTOGRAD_CALL_TEMPLATE, RegionGradient, emit_autograd_functions
from kernelwright.compiler.forward_codegen import ForwardCodegen, PlannedRegion
from kernelwright.compiler.guards import (
    GUARD_NAMES,
    emit_argument_checks,
    emit_guard,
    emit_mode_check,
    emit_no_alias_check,
)
from kernelwright.compiler.identifiers import Renamer, list_defined_names, list_used_names
from kernelwright.compiler.kernel_source import RegionKernel, wrap_call
from kernelwright.core.errors import ProblemError
from kernelwright.core.optimization import TORCH_COMPILE
from kernelwright.problems import Problem
from kernelwright.problems.importing import split_target

CALL_TEMPLATE = "{name}({given})"
DIRECT_CALL = "__call__ = forward"
"""A function stays one to its callers: an nn.Module's own call costs 16 to 30 us where the caches are cold."""
FUTURE_IMPORT = "from __future__ import annotations\n"


def assemble(
    problem: Problem,
    captured: CapturedProgram,
    regions: Sequence[PlannedRegion],
    kernels: Sequence[RegionKernel],
    header: str,
    device: str,
    gradients: Sequence[RegionGradient] = (),
    trainable: Set[fx.Node] = frozenset(),
) -> str:
    """The whole file.

    Args:
        trainable: the nodes that asked for a gradient when it was proved.
        gradients: for each region its backward pass, for a program that is trained; `kernels` holds theirs too.
        regions: the regions that run as kernels; `kernels` holds one for each.
        header: what the head of the file says, without quotes.
    Raises:
        ProblemError: the program is not one that a file can hold.
    """
    original, base = _original_source(problem)
    generator = backend_for(device)
    own = [generator.emit(kernels)] if regions else []
    own += [emit_autograd_functions(gradients)] if gradients else []
    named = GUARD_NAMES | {name for text in own for name in list_defined_names(text)}
    rename = Renamer(named, list_used_names(original) | set(_plain_signature(problem).parameters))
    trained_regions = {found.region.name for found in gradients}
    names = [part.region.name for part in regions]
    calls = {
        name: rename((AUTOGRAD_CALL_TEMPLATE if name in trained_regions else CALL_TEMPLATE).replace("{name}", name))
        for name in names
    }
    forward = ForwardCodegen(
        captured, regions, calls, {one.region.name for one in kernels if not one.torch_source} - trained_regions
    )
    kernels = [one._replace(in_place=forward.in_place.get(one.region.name, {})) for one in kernels]
    pieces = [
        f'"""{header}"""\n\n{_future_import(original)}{generator.imports if regions else "import torch"}\n',
        _section("the program as it was", original.replace(FUTURE_IMPORT, "")),
    ]
    if regions:
        pieces.append(_section("kernels", rename(generator.emit(kernels))))
        if gradients:
            pieces.append(_section("gradients", rename(emit_autograd_functions(gradients))))
        asking = trainable & set(forward.inputs("self").values()) if gradients else set()
        absent = generator.missing_kernels_check if any(not kernel.torch_source for kernel in kernels) else ""
        proved = emit_guard(forward, device, asking, bool(gradients), absent)
        pieces.append(_section("what they were proved for", rename(proved)))
    as_proved = rename("as_proved") if regions else ""
    pieces.append(_section("the program as it is now", _emit_model(problem, captured, forward, base, as_proved)))
    return "\n\n".join(piece.strip("\n") + "\n" for piece in pieces)


def emit_torch_file(problem: Problem, variant: str, header: str) -> str:
    """The file of a program that runs as torch compiles it, or as it was.

    Args:
        variant: `torch.compile` or `torch`.
        header: what the head of the file says, without quotes.
    """
    original, base = _original_source(problem)
    body = _torch_compile_body(problem, base) if variant == TORCH_COMPILE else _unchanged_body(problem, base)
    pieces = [
        f'"""{header}"""\n\n{_future_import(original)}import torch\n',
        _section("the program as it was", original.replace(FUTURE_IMPORT, "")),
        _section("the program as it is now", _emit_class(problem, base, body)),
    ]
    return "\n\n".join(piece.strip("\n") + "\n" for piece in pieces)


def _section(title: str, text: str) -> str:
    return f"# ---- {title}\n\n{text.strip()}\n"


# ---- the program as it was


def _original_source(problem: Problem) -> tuple[str, str]:
    """The source of the problem, and the name of the class or function in it: `Model` for one that lives in memory."""
    if problem.source is None:
        return "# Model is given by whoever loads this.\n", "Model"
    place, name = split_target(problem.source)
    base = type(problem.module).__name__ if problem.module is not None else name or problem.name
    if not place.endswith(".py"):
        return f"from {place} import {base}\n", base
    return _strip_docstring_and_main(Path(place).read_text()), base


def _future_import(original: str) -> str:
    return FUTURE_IMPORT if FUTURE_IMPORT in original else ""


def _strip_docstring_and_main(source: str) -> str:
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


def _emit_class(problem: Problem, base: str, body: str) -> str:
    if problem.module is not None:
        return f"class ModelNew({base}):\n{_indent(body)}"
    return f"class ModelNew(torch.nn.Module):\n{_indent(body.rstrip())}\n\n    {DIRECT_CALL}\n"


def _emit_model(problem: Problem, captured: CapturedProgram, forward: ForwardCodegen, base: str, as_proved: str) -> str:
    """`ModelNew`; `as_proved` is the function that says whether the kernels are for some tensors, if there are."""
    if not as_proved:
        return _emit_class(problem, base, _unchanged_body(problem, base))
    signature = _plain_signature(problem)
    taken = ", ".join(["self", *map(str, signature.parameters.values())])
    given = ", ".join(_forwarded_argument(parameter) for parameter in signature.parameters.values())
    hidden = base in {node.name for node in captured.graph.nodes}
    original = f"{'self.original' if hidden else base}({given})"
    if problem.module is not None:
        original = f"super().forward({given})"
    unpacked, conditions = emit_argument_checks(problem, captured, signature)
    if captured.training:
        conditions.insert(0, emit_mode_check(captured.training))
    tensors = ", ".join(forward.inputs("self"))
    proved = [f"{as_proved}({tensors})"]
    if any(kind != "output" for kind, _ in captured.results):
        proved.append(emit_no_alias_check(list(forward.inputs("self"))))
    guards = [conditions, proved] if unpacked else [[*conditions, *proved]]
    body = [
        *(_emit_early_return(" and ".join(guard), f"return {original}") for guard in guards[:-1] if guard),
        *unpacked,
        _emit_early_return(" and ".join(guards[-1]), f"return {original}"),
        *forward.lines("self"),
    ]
    doc = f'"""{base} with kernels of its own, for the tensors that they were proved for; else {base} as it was."""'
    alias = [f"original = staticmethod({base})", ""] if hidden and problem.module is None else []
    return _emit_class(
        problem, base, "\n".join([doc, "", *alias, wrap_call(f"def forward({taken}):"), *map(_indent, body)])
    )


def _emit_early_return(condition: str, then: str) -> str:
    line = f"if not ({condition}):" if " and " in condition else f"if not {condition}:"
    return f"{wrap_call(line)}\n    {then}"


def _unchanged_body(problem: Problem, base: str) -> str:
    if problem.module is not None:
        return f'"""{base} as it was: no kernel was faster."""\n'
    return f'"""{base} as it was: no kernel was faster."""\n\nforward = staticmethod({base})\n'


def _torch_compile_body(problem: Problem, base: str) -> str:
    called = f"torch.compile({base}.forward, dynamic=False)"
    if problem.module is None:
        called = f"staticmethod(torch.compile({base}, dynamic=False))"
    return f'"""{base} as torch.compile makes it: as a whole the fastest here."""\n\nforward = {called}\n'


def _plain_signature(problem: Problem) -> inspect.Signature:
    program: Any = problem.module.forward if problem.module is not None else problem.program
    signature = inspect.signature(program)
    plain = [p.replace(annotation=p.empty) for p in signature.parameters.values()]
    for parameter in plain:
        if parameter.default is not parameter.empty and not isinstance(
            parameter.default, (int, float, bool, str, type(None))
        ):
            raise ProblemError(f"the default of its argument {parameter.name} is no plain value")
    return inspect.Signature(plain)


def _forwarded_argument(parameter: inspect.Parameter) -> str:
    match parameter.kind:
        case parameter.VAR_POSITIONAL:
            return f"*{parameter.name}"
        case parameter.VAR_KEYWORD:
            return f"**{parameter.name}"
        case parameter.KEYWORD_ONLY:
            return f"{parameter.name}={parameter.name}"
    return parameter.name


def _indent(text: str) -> str:
    return textwrap.indent(text, "    ")
