"""`torch.compile(model, backend="kernelwright")`: Dynamo captures graphs, AOTAutograd adds their gradients, and each
region becomes a kernel with its most promising config.

The first call times each graph against inductor's and eager torch, and the fastest is kept. No kernel is tuned, and
only the first result of each is compared with torch's; `kernelwright.optimize` tunes and verifies.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import torch
from torch import fx
from torch.utils import _pytree as pytree

from kernelwright.compiler.backends import Backend, backend_for
from kernelwright.compiler.capture.capture import CapturedProgram, Source, build_decomposition_table, remove_aliases
from kernelwright.compiler.fastest_graph import FastestGraph, compile_with_inductor, has_static_sizes
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
    """Compile one Dynamo graph; registered with torch under this name.

    Graphs with dynamic sizes are left to inductor.
    """
    inductor, mutated = compile_with_inductor(module, inputs)
    if not has_static_sizes(inputs):
        return inductor
    return FastestGraph(module, inductor, compile_with_kernels, mutated)


def compile_with_kernels(module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
    """Compile one Dynamo graph and its gradient with kernels for their regions."""
    from functorch.compile import make_boxed_func
    from torch._dynamo.backends.common import aot_autograd

    def compiler(graph: fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        return make_boxed_func(compile_graph(graph, example_inputs))

    warm_up_mkl()  # the first results are compared with torch's
    table = build_decomposition_table()
    own = fx.GraphModule(module, copy.deepcopy(module.graph))
    return aot_autograd(fw_compiler=compiler, bw_compiler=compiler, decompositions=table)(own, list(inputs))


def compile_graph(module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
    """Compile a flat graph with kernels for its regions; without any region, return the graph's own forward.

    Args:
        inputs: example inputs; a graph with dynamic sizes is not compiled.
    """
    devices = {value.device.type for value in inputs if isinstance(value, torch.Tensor)}
    constants = any(node.op == "get_attr" for node in module.graph.nodes)
    if constants or len(devices) != 1 or not has_static_sizes(inputs):
        return module.forward
    backend = backend_for(devices.pop())
    remove_aliases(module.graph)
    fuse_means(module.graph)
    gather_diagonals(module.graph)
    sink_concats(module.graph)
    regions, _ = plan_regions(module.graph)
    parts, kernels = [], []
    for region, nodes in regions:
        for config in backend.generate_configs(region)[:1]:
            try:
                backend.emit([RegionKernel(region, config)])
            except Unsupported:
                continue
            parts.append(PlannedRegion(region, tuple(nodes)))
            kernels.append(RegionKernel(region, config))
    try:
        return _load_forward(module, backend, parts, kernels)
    except Exception as error:  # a generated kernel does not compile: torch runs its region instead
        built = [index for index, kernel in enumerate(kernels) if _builds(backend, kernel)]
        if len(built) == len(kernels):
            raise
        reason = next((line for line in str(error).splitlines() if "error" in line), str(error)[:200])
        warnings.warn(f"{len(kernels) - len(built)} of {len(kernels)} kernels do not build: {reason}", stacklevel=2)
        return _load_forward(module, backend, [parts[index] for index in built], [kernels[index] for index in built])


def _load_forward(
    module: fx.GraphModule, backend: Backend, parts: Sequence[PlannedRegion], kernels: Sequence[RegionKernel]
) -> Callable[..., Any]:
    if not parts:
        return module.forward
    captured = _as_captured(module)
    names = ", ".join(node.name for node in captured.sources)
    body = [line for text in ForwardCodegen(captured, parts).lines("self") for line in text.splitlines()]
    lines = [wrap_call(f"def forward({names}):"), *(f"    {line}" for line in body)]
    generated = load(f"{backend.emit_module(kernels)}\n\n" + "\n".join(lines) + "\n")
    for part in parts:
        _check_first_call(generated, part.region.name, build_reference(captured, part))
    return generated.forward


def _check_first_call(module: ModuleType, name: str, reference: Callable[..., Any]) -> None:
    """Compare a kernel's first call with torch, and replace the kernel by torch if its error against FP64 is larger."""
    kernel = getattr(module, name)

    def torch_fallback(*args: torch.Tensor) -> Any:
        results = reference(*args)
        return results[0] if len(results) == 1 else results

    def first_call(*args: torch.Tensor) -> Any:
        if not args or (torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()):
            return kernel(*args)
        try:
            with torch.autocast(args[0].device.type, enabled=False):
                mismatch = find_mismatch(reference, kernel, args)
        except torch.OutOfMemoryError:  # the FP64 reference takes several times the program's memory
            mismatch = None
        setattr(module, name, torch_fallback if mismatch else kernel)
        if mismatch:
            warnings.warn(f"kernel disabled, its first result was wrong: {mismatch.detail}", stacklevel=2)
        return getattr(module, name)(*args)

    setattr(module, name, first_call)


def _builds(backend: Backend, kernel: RegionKernel) -> bool:
    try:
        load(backend.emit_module([kernel]))
    except Exception:  # of any compiler; the caller reports the first error
        return False
    return True


def _as_captured(module: fx.GraphModule) -> CapturedProgram:
    placeholders = [node for node in module.graph.nodes if node.op == "placeholder"]
    (output,) = (node for node in module.graph.nodes if node.op == "output")
    values = output.args[0]
    results = tuple(("output", "") for _ in values)  # type: ignore[union-attr]
    sources = {node: Source("argument", str(index)) for index, node in enumerate(placeholders)}
    return CapturedProgram(module.graph, module, sources, results, pytree.tree_structure((0,) * len(results)))
