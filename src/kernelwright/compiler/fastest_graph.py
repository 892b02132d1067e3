"""A Dynamo graph in several compiled forms, of which the first call keeps the fastest."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import torch
from torch import fx
from torch.utils import _pytree as pytree

from kernelwright.compiler.graph_replay import GraphReplay, has_only_torch_operators
from kernelwright.measure.clock import measure_steady_us

CLEAR_SPEEDUP = 1.02
"""Speedup over inductor's graph that our kernels need, and over the best form that its CUDA graph needs."""
GRAPH_BELOW_US = 5_000.0
"""Longer graphs are not captured: launches hide behind kernels, and a capture keeps its intermediate results."""
TIMING_BUDGET_S, NUM_ROUNDS = 0.05, 3
"""Of one form in one round: the forms alternate."""
INDUCTOR, EAGER, OWN_KERNELS, IN_GRAPH = "inductor", "eager", "kernels", "CUDA graph"
Compile = Callable[[fx.GraphModule, Sequence[Any]], Callable[..., Any]]


@dataclass
class FastestGraph:
    """Runs a graph as inductor compiles it; the first call with gradients, and the first without, times it against
    eager torch and `compile_own`'s graph, on inputs of that call; without gradients, on a GPU, also in a CUDA graph.

    Attributes:
        mutated: indices of the inputs that the graph changes; None if they are not known.
        times_us: of the forms, by whether gradients are computed, and name.
    """

    module: fx.GraphModule
    inductor: Callable[..., Any]
    compile_own: Compile
    mutated: frozenset[int] | None = None
    times_us: dict[bool, dict[str, float]] = field(default_factory=dict)
    _chosen: dict[bool, Callable[..., Any]] = field(default_factory=dict)
    _own: Callable[..., Any] | None = None

    def __call__(self, *args: Any) -> Any:
        """Run the graph."""
        differentiated = torch.is_grad_enabled() and any(map(_requires_grad, args))
        if differentiated not in self._chosen and not _is_capturing(args):
            self._chosen[differentiated] = self._choose(args, differentiated)
        return self._chosen.get(differentiated, self.inductor)(*args)

    def _choose(self, args: Sequence[Any], differentiated: bool) -> Callable[..., Any]:
        forms: dict[str, Callable[..., Any]] = {INDUCTOR: self.inductor, EAGER: self.module}
        try:
            self._own = self._own or self.compile_own(self.module, self._private(args))
            forms[OWN_KERNELS] = self._own
        except Exception as error:  # of torch, of a compiler, or ours: inductor's graph is there
            warnings.warn(f"the graph has no kernels: {type(error).__name__}: {str(error)[:200]}", stacklevel=2)
        times = self.times_us[differentiated] = self._time_forms(forms, args, differentiated)
        handicaps = {EAGER: 1.0, INDUCTOR: 1.0, OWN_KERNELS: CLEAR_SPEEDUP}
        fastest = min(times, key=lambda name: times[name] * handicaps[name], default=INDUCTOR)
        if differentiated or not self._may_replay(args, times.get(fastest, math.inf)):
            return forms[fastest]
        return self._faster_in_graph(forms[fastest], times[fastest], args) or forms[fastest]

    def _time_forms(
        self, forms: dict[str, Callable[..., Any]], args: Sequence[Any], differentiated: bool
    ) -> dict[str, float]:
        """The median of alternating rounds of each form that runs."""
        rounds: dict[str, list[float]] = {name: [] for name in forms}
        for _ in range(NUM_ROUNDS):
            for name in [*rounds]:
                try:
                    rounds[name].append(self._time_us(forms[name], args, differentiated))
                except Exception as error:  # of torch, of a compiler, or ours
                    warnings.warn(f"{name} is not used: {type(error).__name__}: {str(error)[:200]}", stacklevel=2)
                    del rounds[name]
        return {name: median(times) for name, times in rounds.items()}

    def _may_replay(self, args: Sequence[Any], time_us: float) -> bool:
        return (
            _is_on_gpu(args)
            and time_us < GRAPH_BELOW_US
            and self.mutated == frozenset()
            and has_only_torch_operators(self.module)
        )

    def _faster_in_graph(self, form: Callable[..., Any], time_us: float, args: Sequence[Any]) -> GraphReplay | None:
        """The form in a CUDA graph, if it can be captured and is clearly faster then."""
        try:
            with _unchanged_random_state("cuda"):
                replay = GraphReplay(form, args)
            self.times_us[False] |= (times := self._time_forms({IN_GRAPH: replay}, args, False))
        except Exception:  # what cannot be captured is called as it is
            return None
        return replay if times.get(IN_GRAPH, math.inf) * CLEAR_SPEEDUP < time_us else None

    def _time_us(self, form: Callable[..., Any], args: Sequence[Any], differentiated: bool) -> float:
        """The time of a call, with its backward pass if there is one."""
        private = self._private(args)
        leaves = [one for one in private if _requires_grad(one)]

        def call() -> Any:
            results = [one for one in pytree.tree_leaves(form(*private)) if _requires_grad(one)]
            if differentiated and results:
                torch.autograd.grad(results, leaves, [torch.randn_like(one) for one in results], allow_unused=True)

        device = "cuda" if _is_on_gpu(args) else "cpu"
        with _unchanged_random_state(device):
            call()  # compiles the backward pass
            return measure_steady_us(call, device, budget_s=TIMING_BUDGET_S)

    def _private(self, args: Sequence[Any]) -> list[Any]:
        """The inputs, with copies of those that the graph changes."""
        changed = range(len(args)) if self.mutated is None else self.mutated
        return [_copy_of(one) if index in changed else one for index, one in enumerate(args)]


def compile_with_inductor(
    module: fx.GraphModule, inputs: Sequence[Any]
) -> tuple[Callable[..., Any], frozenset[int] | None]:
    """Compile a Dynamo graph with inductor.

    Returns:
        The compiled graph, and the indices of the inputs that it changes, None if they are not known.
    """
    from torch._guards import TracingContext
    from torch._inductor.compile_fx import compile_fx

    own = fx.GraphModule(module, copy.deepcopy(module.graph))
    compiled: Any = compile_fx(own, list(inputs), config_patches={"fallback_random": True})  # eager's random numbers
    context = TracingContext.try_get()
    metadata = context.fw_metadata if context else None
    if metadata is None:
        return compiled, None
    return compiled, frozenset(index for index, info in enumerate(metadata.input_info) if info.mutates_data)


def has_static_sizes(inputs: Iterable[Any]) -> bool:
    """Whether no input is, or has, a symbolic size."""
    return all(
        all(isinstance(size, int) for size in (*value.shape, *value.stride()))
        if isinstance(value, torch.Tensor)
        else isinstance(value, int)
        for value in inputs
    )


def _requires_grad(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.requires_grad


def _is_on_gpu(args: Iterable[Any]) -> bool:
    return any(isinstance(one, torch.Tensor) and one.is_cuda for one in args)


def _copy_of(value: Any) -> Any:
    return value.detach().clone().requires_grad_(value.requires_grad) if isinstance(value, torch.Tensor) else value


def _is_capturing(args: Sequence[Any]) -> bool:
    """Whether a call cannot be repeated: a CUDA graph records it, or something traces or intercepts it."""
    return (
        torch.compiler.is_compiling()
        or torch._C._len_torch_dispatch_stack() > 0
        or bool(torch._C._functorch.peek_interpreter_stack())  # type: ignore
        or (_is_on_gpu(args) and torch.cuda.is_current_stream_capturing())
    )


@contextmanager
def _unchanged_random_state(device: str) -> Iterator[None]:
    with torch.random.fork_rng([torch.cuda.current_device()] if device == "cuda" else []):
        yield
