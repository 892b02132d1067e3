"""One way to run a whole program: the layers of its file, and its instance in memory."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch

from kernelwright.compiler.assembly.channels_last_layer import ChannelsLastLayer
from kernelwright.compiler.assembly.cuda_graph_layer import CudaGraphLayer
from kernelwright.compiler.assembly.cudnn_benchmark_layer import CudnnBenchmarkLayer
from kernelwright.compiler.assembly.output_file import MODEL_NEW, CompiledLayer, Layer, assemble_file, result_types
from kernelwright.compiler.kernel_source import load
from kernelwright.core.optimization import TORCH, TORCH_COMPILE
from kernelwright.problems.problem import MODEL_SEED, Problem, temporary_seed
from kernelwright.problems.state import copy_state

CHANNELS_LAST, CUDNN_BENCHMARK, IN_GRAPH = "channels-last", "cuDNN's fastest algorithms", "in a CUDA graph"
MAX_AUTOTUNE, MAX_AUTOTUNE_MODE = "max-autotune", "max-autotune-no-cudagraphs"


@dataclass(frozen=True)
class Variant:
    """One way to run the whole program.

    Attributes:
        engine: what computes: `torch`, `torch.compile` or `kernels`.
        layer: of the engine; None for torch.
        channels_last: images and weights are reordered.
        cudnn_benchmark: cuDNN times its algorithms.
        in_graph: it is replayed as a CUDA graph.
        max_autotune: torch.compile tunes products and convolutions.
    """

    engine: str
    layer: Layer | None = None
    channels_last: bool = False
    cudnn_benchmark: bool = False
    in_graph: bool = False
    max_autotune: bool = False

    @property
    def options(self) -> tuple[str, ...]:
        """The names of the options that it uses."""
        options = {
            MAX_AUTOTUNE: self.max_autotune,
            CHANNELS_LAST: self.channels_last,
            CUDNN_BENCHMARK: self.cudnn_benchmark,
            IN_GRAPH: self.in_graph,
        }
        return tuple(name for name, used in options.items() if used)

    @property
    def name(self) -> str:
        """`torch.compile, channels-last, in a CUDA graph`."""
        return ", ".join([self.engine, *self.options])

    @property
    def layers(self) -> tuple[Layer, ...]:
        """The layers of the output file."""
        wrappers: list[Layer | None] = [
            self.layer,
            ChannelsLastLayer() if self.channels_last else None,
            CudnnBenchmarkLayer() if self.cudnn_benchmark else None,
            CudaGraphLayer() if self.in_graph else None,
        ]
        return tuple(filter(None, wrappers))

    def source(self, problem: Problem, header: str) -> str:
        """The text of the output file."""
        return assemble_file(problem, self.layers, header)


EAGER = Variant(TORCH)
COMPILED = Variant(TORCH_COMPILE, CompiledLayer())
AUTOTUNED = Variant(TORCH_COMPILE, CompiledLayer(mode=MAX_AUTOTUNE_MODE), max_autotune=True)


def build_variant(variant: Variant, problem: Problem, program: Callable[..., Any], device: str) -> Callable[..., Any]:
    """A variant of a problem's program in memory; it shares the program's parameters, except in channels-last order."""
    if variant == EAGER:
        return program
    if variant == COMPILED:
        return torch.compile(program, dynamic=False)
    if variant == AUTOTUNED:
        return torch.compile(program, dynamic=False, mode=MAX_AUTOTUNE_MODE)
    text = variant.source(replace(problem, source=None), "A variant in memory.")
    new_class = getattr(load(text, names_in_memory(problem, program)), MODEL_NEW)
    if not variant.channels_last or not isinstance(program, torch.nn.Module):
        return clone_with_class(program, new_class)
    return _construct(new_class, problem).to(device)


def names_in_memory(problem: Problem, program: Any) -> dict[str, Any]:
    """The names that the source of a variant in memory needs: the original program, and the types of its results."""
    base = type(program) if isinstance(program, torch.nn.Module) else program
    return {name: one for one, name in result_types(problem).items()} | {"Model": base}


def clone_with_class(model: Any, cls: type[torch.nn.Module]) -> torch.nn.Module:
    """A shallow copy of the model with another class.

    It shares the model's dicts of parameters, buffers and modules, and so sees later changes of them; hooks are copied.
    """
    if not isinstance(model, torch.nn.Module):
        return cls()
    clone = copy.copy(model)
    for name, value in vars(model).items():
        if name.endswith("_hooks") and isinstance(value, dict):
            vars(clone)[name] = value.copy()
    clone.__class__ = cls
    return clone


def _construct(cls: type[torch.nn.Module], problem: Problem) -> torch.nn.Module:
    """Another instance with parameters and buffers of its own, of the same values."""
    with temporary_seed(MODEL_SEED):
        made = cls(*problem.init_inputs)
    copy_state(problem, made, problem.name)
    return made
