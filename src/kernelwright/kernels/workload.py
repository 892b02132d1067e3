"""Benchmark workloads of library kernels: inputs, and implementations of the same work by this and other libraries."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any, Literal

import torch
from torch import Tensor

from kernelwright.core.library import EAGER, OURS
from kernelwright.core.work import Work
from kernelwright.kernels.rows.planning import CudaLaunch, Target

__all__ = [
    "DIRECTIONS",
    "EAGER",
    "OURS",
    "Direction",
    "Implementation",
    "Workload",
    "import_peers",
    "make_backward",
    "make_workloads",
    "randn",
]

Direction = Literal["forward", "backward", "both"]
DIRECTIONS: tuple[Direction, ...] = ("forward", "backward")
Implementation = Callable[..., Any]


@dataclass(frozen=True)
class Workload:
    """A kernel on one size.

    Attributes:
        kernel: name in the catalog.
        use_case: one of the kernel's uses, a direction if there is one use for each.
        direction: what is timed: forward, backward of existing results, or both.
        make_inputs: draws new inputs on the GPU; those that need gradients require them.
        implementations: functions of the inputs by name: `kernelwright`, `eager`, and the installed baselines.
        reference: the same in FP64, for FP64 inputs; None if results are random.
        work: minimum memory traffic and FLOPs.
        library_peers: baselines that `benchmark` provides, since they choose by timing; see `benchmark.kernel_library`.
        plan: the launches of ours on a GPU, if a run without arithmetic cannot collect them.
    """

    kernel: str
    use_case: str
    size: tuple[int, ...]
    direction: Direction
    make_inputs: Callable[[], tuple[Tensor, ...]]
    implementations: Mapping[str, Implementation]
    reference: Implementation | None
    work: Work
    library_peers: tuple[str, ...] = ()
    plan: Callable[[Target], Sequence[CudaLaunch]] | None = None


def make_workloads(
    shapes: Iterable[tuple[int, ...]],
    *,
    kernel: str,
    use_case: str,
    direction: Direction,
    implementations: Mapping[str, Implementation],
    reference: Implementation | None,
    make_inputs: Callable[..., tuple[Tensor, ...]],
    work: Callable[..., Work],
) -> Iterator[Workload]:
    """One use of a kernel on every shape; `make_inputs` takes the shape and whether gradients are needed, `work` the
    shape."""
    for size in shapes:
        yield Workload(
            kernel=kernel,
            use_case=use_case,
            size=size,
            direction=direction,
            make_inputs=partial(make_inputs, *size, direction != "forward"),
            implementations=implementations,
            reference=reference,
            work=work(*size),
        )


def randn(*shape: int, dtype: torch.dtype = torch.bfloat16, grad: bool = False) -> Tensor:
    """Normal random numbers on the GPU, drawn in FP32 and rounded."""
    return torch.randn(shape, device="cuda", dtype=torch.float32).to(dtype).requires_grad_(grad)


def import_peers(**peers: tuple[str, Callable[[Any], Implementation]]) -> dict[str, Implementation]:
    """The installed baselines by name.

    Args:
        peers: by name, `module:function` and an adapter from that function to an implementation.
    """
    implementations: dict[str, Implementation] = {}
    for name, (path, adapt) in peers.items():
        module, _, function = path.partition(":")
        try:
            implementations[name] = adapt(getattr(import_module(module), function))
        except Exception:  # a broken install fails in many ways; all count as not installed
            continue
    return implementations


def make_backward(inputs: Iterable[Tensor], results: Any) -> Callable[[], tuple[Tensor, ...]]:
    """A function that computes the gradients of the inputs, for random result gradients of unit size."""
    outputs = [tensor for tensor in (results if isinstance(results, tuple) else (results,)) if tensor.requires_grad]
    leaves = [tensor for tensor in inputs if tensor.requires_grad]
    device = outputs[0].device
    generator = torch.Generator(device).manual_seed(0)
    output_grads = [
        torch.randn(tensor.shape, device=device, generator=generator).bfloat16().to(tensor.dtype) for tensor in outputs
    ]
    return lambda: torch.autograd.grad(outputs, leaves, output_grads, retain_graph=True)
