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

from kernelwright.compiler.backends import Backend, backend_for
from kernelwright.compiler.capture.capture import CapturedProgram, Source, build_decomposition_table, remove_aliases
from kernelwright.compiler.forward_codegen import ForwardCodegen, PlannedRegion
from kernelwright.compiler.kernel_source import RegionKernel, load, wrap_call
from kernelwright.compiler.reference import build_reference
from kernelwright.compiler.regions.axes import Unsupported
from kernelwright.compiler.regions.partition import plan_regions
from kernelwright.compiler.rewrites.concat_sinking import sink_concats
from kernelwright.compiler.rewrites.diagonals import gather_diagonals
from kernelwright.compiler.rewrites.means import fuse_means
from kernelwright.problems.mkl_warmup import warm_up_mkl
from kernelwright.verification.quick_check import find_mismatch


def kernelwright(module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
    """Compiles one of Dynamo's graphs; registered with torch under this name."""
    from functorch.compile import make_boxed_func
    from torch._dynamo.backends.common import aot_autograd

    def compiler(graph: fx.GraphModule, given: Sequence[Any]) -> Callable[..., Any]:
        return make_boxed_func(compile_graph(graph, given))

    warm_up_mkl()  # the first answers are held against torch's
    table = build_decomposition_table()
    return aot_autograd(fw_compiler=compiler, bw_compiler=compiler, decompositions=table)(module, inputs)


def compile_graph(module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
    """A function that computes a flat graph, with kernels for its regions; the graph itself where there are none.

    Args:
        inputs: what it will be given; sizes that are not known make it stay as it is.
    """
    devices = {value.device.type for value in inputs if isinstance(value, torch.Tensor)}
    constants = any(node.op == "get_attr" for node in module.graph.nodes)
    if constants or len(devices) != 1 or not all(_is_static(value) for value in inputs):
        return module.forward
    generator = backend_for(devices.pop())
    remove_aliases(module.graph)
    fuse_means(module.graph)
    gather_diagonals(module.graph)
    sink_concats(module.graph)
    regions, _ = plan_regions(module.graph)
    parts, kernels = [], []
    for region, nodes in regions:
        for choice in generator.generate_configs(region)[:1]:
            try:
                generator.emit([RegionKernel(region, choice)])
            except Unsupported:
                continue
            parts.append(PlannedRegion(region, tuple(nodes)))
            kernels.append(RegionKernel(region, choice))
    try:
        return _load_forward(module, generator, parts, kernels)
    except Exception as fault:  # a kernel of ours that no compiler takes: the program is right without it
        built = [at for at, kernel in enumerate(kernels) if _builds(generator, kernel)]
        if len(built) == len(kernels):
            raise
        reason = next((line for line in str(fault).splitlines() if "error" in line), str(fault)[:200])
        warnings.warn(f"{len(kernels) - len(built)} of {len(kernels)} kernels do not build: {reason}", stacklevel=2)
        return _load_forward(module, generator, [parts[at] for at in built], [kernels[at] for at in built])


def _load_forward(
    module: fx.GraphModule, generator: Backend, parts: Sequence[PlannedRegion], kernels: Sequence[RegionKernel]
) -> Callable[..., Any]:
    if not parts:
        return module.forward
    captured = _as_captured(module)
    names = ", ".join(node.name for node in captured.sources)
    body = [line for text in ForwardCodegen(captured, parts).lines("self") for line in text.splitlines()]
    lines = [wrap_call(f"def forward({names}):"), *(f"    {line}" for line in body)]
    made = load(f"{generator.emit_module(kernels)}\n\n" + "\n".join(lines) + "\n")
    for part in parts:
        _check_first_call(made, part.region.name, build_reference(captured, part))
    return made.forward


def _check_first_call(module: ModuleType, name: str, reference: Callable[..., Any]) -> None:
    """Has a kernel's first call ask torch as well; from then on it is the kernel, or torch where the kernel was farther
    from FP64 than that."""
    kernel = getattr(module, name)

    def by_torch(*given: torch.Tensor) -> Any:
        results = reference(*given)
        return results[0] if len(results) == 1 else results

    def first(*given: torch.Tensor) -> Any:
        if not given or (torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()):
            return kernel(*given)
        try:
            with torch.autocast(given[0].device.type, enabled=False):
                wrong = find_mismatch(reference, kernel, given)
        except torch.OutOfMemoryError:  # FP64 takes several times what the program does
            wrong = None
        setattr(module, name, by_torch if wrong else kernel)
        if wrong:
            warnings.warn(f"a kernel is left to torch, as its first answer was wrong: {wrong.detail}", stacklevel=2)
        return getattr(module, name)(*given)

    setattr(module, name, first)


def _builds(generator: Backend, kernel: RegionKernel) -> bool:
    try:
        load(generator.emit_module([kernel]))
    except Exception:  # of whatever compiler: the caller says the first one's reason
        return False
    return True


def _as_captured(module: fx.GraphModule) -> CapturedProgram:
    placeholders = [node for node in module.graph.nodes if node.op == "placeholder"]
    (output,) = (node for node in module.graph.nodes if node.op == "output")
    values = output.args[0]
    results = tuple(("output", "") for _ in values)  # type: ignore[union-attr]
    sources = {node: Source("argument", str(at)) for at, node in enumerate(placeholders)}
    return CapturedProgram(module.graph, module, sources, results, pytree.tree_structure((0,) * len(results)))


def _is_static(value: Any) -> bool:
    if isinstance(value, torch.Tensor):
        return all(isinstance(size, int) for size in (*value.shape, *value.stride()))
    return isinstance(value, int)
