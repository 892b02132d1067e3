"""`torch.compile(model, backend="kernelwright")`: Dynamo finds the graphs, AOTAutograd their gradients, regions become
kernels in their likeliest choice. Nothing is tuned here, and only the first answer of each kernel is held against
torch's; `kernelwright.optimize` tunes and proves."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import torch
from torch import fx
from torch.utils import _pytree as pytree

from kernelwright.compiler.backends import Generator, generator_for
from kernelwright.compiler.capture.capture import Captured, Source, decomposition_table, without_aliases
from kernelwright.compiler.forward_codegen import Forward, Part
from kernelwright.compiler.kernel_source import Kernel, load, wrapped
from kernelwright.compiler.reference import reference_of
from kernelwright.compiler.regions.axes import Misfit
from kernelwright.compiler.regions.partition import plan
from kernelwright.compiler.rewrites.concat_sinking import in_pieces
from kernelwright.compiler.rewrites.diagonals import pick_diagonals
from kernelwright.compiler.rewrites.means import recognise_means
from kernelwright.problems.mkl_warmup import settle_vector_math
from kernelwright.verification.quick_check import disagreement


def kernelwright(module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
    """Compiles one of Dynamo's graphs; registered with torch under this name."""
    from functorch.compile import make_boxed_func
    from torch._dynamo.backends.common import aot_autograd

    def compiler(graph: fx.GraphModule, given: Sequence[Any]) -> Callable[..., Any]:
        return make_boxed_func(compiled(graph, given))

    settle_vector_math()  # the first answers are held against torch's
    table = decomposition_table()
    return aot_autograd(fw_compiler=compiler, bw_compiler=compiler, decompositions=table)(module, inputs)


def compiled(module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
    """A function that computes a flat graph, with kernels for its regions; the graph itself where there are none.

    Args:
        inputs: what it will be given; sizes that are not known make it stay as it is.
    """
    devices = {value.device.type for value in inputs if isinstance(value, torch.Tensor)}
    constants = any(node.op == "get_attr" for node in module.graph.nodes)
    if constants or len(devices) != 1 or not all(_is_static(value) for value in inputs):
        return module.forward
    generator = generator_for(devices.pop())
    without_aliases(module.graph)
    recognise_means(module.graph)
    pick_diagonals(module.graph)
    in_pieces(module.graph)
    regions, _ = plan(module.graph)
    parts, kernels = [], []
    for region, nodes in regions:
        for choice in generator.choices(region)[:1]:
            try:
                generator.text([Kernel(region, choice)])
            except Misfit:
                continue
            parts.append(Part(region, tuple(nodes)))
            kernels.append(Kernel(region, choice))
    try:
        return _forward(module, generator, parts, kernels)
    except Exception as fault:  # a kernel of ours that no compiler takes: the program is right without it
        built = [at for at, kernel in enumerate(kernels) if _builds(generator, kernel)]
        if len(built) == len(kernels):
            raise
        reason = next((line for line in str(fault).splitlines() if "error" in line), str(fault)[:200])
        warnings.warn(f"{len(kernels) - len(built)} of {len(kernels)} kernels do not build: {reason}", stacklevel=2)
        return _forward(module, generator, [parts[at] for at in built], [kernels[at] for at in built])


def _forward(
    module: fx.GraphModule, generator: Generator, parts: Sequence[Part], kernels: Sequence[Kernel]
) -> Callable[..., Any]:
    if not parts:
        return module.forward
    captured = _captured(module)
    names = ", ".join(node.name for node in captured.sources)
    lines = [wrapped(f"def forward({names}):"), *(f"    {line}" for text in Forward(captured, parts).lines("self")
                                                for line in text.splitlines())]  # fmt: skip
    made = load(f"{generator.module(kernels)}\n\n" + "\n".join(lines) + "\n")
    for part in parts:
        _looked_at_once(made, part.region.name, reference_of(captured, part))
    return made.forward


def _looked_at_once(made: ModuleType, name: str, reference: Callable[..., Any]) -> None:
    """Has a kernel's first call ask torch as well; from then on it is the kernel, or torch where the kernel was farther
    from FP64 than that."""
    kernel = getattr(made, name)

    def by_torch(*given: torch.Tensor) -> Any:
        results = reference(*given)
        return results[0] if len(results) == 1 else results

    def first(*given: torch.Tensor) -> Any:
        if not given or (torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()):
            return kernel(*given)
        try:
            with torch.autocast(given[0].device.type, enabled=False):
                wrong = disagreement(reference, kernel, given)
        except torch.OutOfMemoryError:  # FP64 takes several times what the program does
            wrong = None
        setattr(made, name, by_torch if wrong else kernel)
        if wrong:
            warnings.warn(f"a kernel is left to torch, as its first answer was wrong: {wrong.detail}", stacklevel=2)
        return getattr(made, name)(*given)

    setattr(made, name, first)


def _builds(generator: Generator, kernel: Kernel) -> bool:
    try:
        load(generator.module([kernel]))
    except Exception:  # of whatever compiler: the caller says the first one's reason
        return False
    return True


def _captured(module: fx.GraphModule) -> Captured:
    placeholders = [node for node in module.graph.nodes if node.op == "placeholder"]
    (output,) = (node for node in module.graph.nodes if node.op == "output")
    values = output.args[0]
    results = tuple(("output", "") for _ in values)  # type: ignore[union-attr]
    sources = {node: Source("argument", str(at)) for at, node in enumerate(placeholders)}
    return Captured(module.graph, module, sources, results, pytree.tree_structure((0,) * len(results)))


def _is_static(value: Any) -> bool:
    if isinstance(value, torch.Tensor):
        return all(isinstance(size, int) for size in (*value.shape, *value.stride()))
    return isinstance(value, int)
