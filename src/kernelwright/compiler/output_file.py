"""The output file: the original program, the kernels, and a `ModelNew` that uses them."""

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
"""For a program that is a function: `nn.Module.__call__` costs 16 to 30 us with cold caches."""
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
    """Assemble the file.

    Args:
        regions: the regions that run as kernels.
        kernels: one for each region, then those of the gradients.
        header: docstring of the file, without quotes.
        gradients: the backward pass of each region, for a program that is trained.
        trainable: the nodes that require a gradient at capture.
    Raises:
        ProblemError: the program cannot be written as a file.
    """
    original, base = _original_source(problem)
    backend = backend_for(device)
    generated = [backend.emit(kernels)] if regions else []
    generated += [emit_autograd_functions(gradients)] if gradients else []
    defined = GUARD_NAMES | {name for text in generated for name in list_defined_names(text)}
    rename = Renamer(defined, list_used_names(original) | set(_plain_signature(problem).parameters))
    trained_regions = {gradient.region.name for gradient in gradients}
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
        f'"""{header}"""\n\n{_future_import(original)}{backend.imports if regions else "import torch"}\n',
        _section("original program", original.replace(FUTURE_IMPORT, "")),
    ]
    if regions:
        pieces.append(_section("kernels", rename(backend.emit(kernels))))
        if gradients:
            pieces.append(_section("gradients", rename(emit_autograd_functions(gradients))))
        require_grad = trainable & set(forward.inputs("self").values()) if gradients else set()
        missing_kernels = backend.missing_kernels_check if any(not one.torch_source for one in kernels) else ""
        guard = emit_guard(forward, device, require_grad, bool(gradients), missing_kernels)
        pieces.append(_section("guards", rename(guard)))
    guard_name = rename("inputs_match") if regions else ""
    pieces.append(_section("optimised program", _emit_model(problem, captured, forward, base, guard_name)))
    return "\n\n".join(piece.strip("\n") + "\n" for piece in pieces)


def emit_torch_file(problem: Problem, variant: str, header: str) -> str:
    """Assemble the file of a program that torch runs as a whole.

    Args:
        variant: `torch.compile` or `torch`.
        header: docstring of the file, without quotes.
    """
    original, base = _original_source(problem)
    body = _torch_compile_body(problem, base) if variant == TORCH_COMPILE else _unchanged_body(problem, base)
    pieces = [
        f'"""{header}"""\n\n{_future_import(original)}import torch\n',
        _section("original program", original.replace(FUTURE_IMPORT, "")),
        _section("optimised program", _emit_class(problem, base, body)),
    ]
    return "\n\n".join(piece.strip("\n") + "\n" for piece in pieces)


def _section(title: str, text: str) -> str:
    return f"# ---- {title}\n\n{text.strip()}\n"


# ---- the original program


def _original_source(problem: Problem) -> tuple[str, str]:
    """The source of the problem and the name of the class or function in it; `Model` for an in-memory program."""
    if problem.source is None:
        return "# The loader defines Model.\n", "Model"
    location, name = split_target(problem.source)
    base = type(problem.module).__name__ if problem.module is not None else name or problem.name
    if not location.endswith(".py"):
        return f"from {location} import {base}\n", base
    return _strip_docstring_and_main(Path(location).read_text()), base


def _future_import(original: str) -> str:
    return FUTURE_IMPORT if FUTURE_IMPORT in original else ""


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


# ---- the new program


def _emit_class(problem: Problem, base: str, body: str) -> str:
    if problem.module is not None:
        return f"class ModelNew({base}):\n{_indent(body)}"
    return f"class ModelNew(torch.nn.Module):\n{_indent(body.rstrip())}\n\n    {DIRECT_CALL}\n"


def _emit_model(
    problem: Problem, captured: CapturedProgram, forward: ForwardCodegen, base: str, guard_name: str
) -> str:
    """`ModelNew`; `guard_name` is the function that checks the inputs of the kernels, empty if there are none."""
    if not guard_name:
        return _emit_class(problem, base, _unchanged_body(problem, base))
    signature = _plain_signature(problem)
    parameters = ", ".join(["self", *map(str, signature.parameters.values())])
    arguments = ", ".join(_forwarded_argument(parameter) for parameter in signature.parameters.values())
    shadowed = base in {node.name for node in captured.graph.nodes}
    original = f"{'self.original' if shadowed else base}({arguments})"
    if problem.module is not None:
        original = f"super().forward({arguments})"
    unpacked, conditions = emit_argument_checks(problem, captured, signature)
    if captured.training:
        conditions.insert(0, emit_mode_check(captured.training))
    tensors = ", ".join(forward.inputs("self"))
    tensor_checks = [f"{guard_name}({tensors})"]
    if any(kind != "output" for kind, _ in captured.results):
        tensor_checks.append(emit_no_alias_check(list(forward.inputs("self"))))
    guards = [conditions, tensor_checks] if unpacked else [[*conditions, *tensor_checks]]
    body = [
        *(_emit_early_return(" and ".join(guard), f"return {original}") for guard in guards[:-1] if guard),
        *unpacked,
        _emit_early_return(" and ".join(guards[-1]), f"return {original}"),
        *forward.lines("self"),
    ]
    doc = f'"""{base} with generated kernels for the verified input layouts; otherwise the original {base}."""'
    alias = [f"original = staticmethod({base})", ""] if shadowed and problem.module is None else []
    return _emit_class(
        problem, base, "\n".join([doc, "", *alias, wrap_call(f"def forward({parameters}):"), *map(_indent, body)])
    )


def _emit_early_return(condition: str, then: str) -> str:
    line = f"if not ({condition}):" if " and " in condition else f"if not {condition}:"
    return f"{wrap_call(line)}\n    {then}"


def _unchanged_body(problem: Problem, base: str) -> str:
    if problem.module is not None:
        return f'"""The original {base}: no kernel was faster."""\n'
    return f'"""The original {base}: no kernel was faster."""\n\nforward = staticmethod({base})\n'


def _torch_compile_body(problem: Problem, base: str) -> str:
    compiled = f"torch.compile({base}.forward, dynamic=False)"
    if problem.module is None:
        compiled = f"staticmethod(torch.compile({base}, dynamic=False))"
    return f'"""{base} compiled as a whole by torch.compile, the fastest variant here."""\n\nforward = {compiled}\n'


def _plain_signature(problem: Problem) -> inspect.Signature:
    program: Any = problem.module.forward if problem.module is not None else problem.program
    signature = inspect.signature(program)
    plain = [p.replace(annotation=p.empty) for p in signature.parameters.values()]
    for parameter in plain:
        if parameter.default is not parameter.empty and not isinstance(
            parameter.default, (int, float, bool, str, type(None))
        ):
            raise ProblemError(f"default of argument {parameter.name} is not a literal")
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
