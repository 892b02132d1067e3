"""What a member of the library is measured on: inputs, and everybody's program for the same work."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any, Literal

import torch
from torch import Tensor

from kernelwright.core.library import EAGER, OURS
from kernelwright.core.work import Work

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
    """
    Attributes:
        kernel: its name in the catalog.
        use_case: which of its uses, a direction where it has one of each.
        direction: what is timed: the results, the gradients of results that are there, or both.
        make_inputs: drawn anew on the GPU at each call; those that want gradients say so.
        implementations: of the inputs, by name: `kernelwright`, `eager`, and the peers that are installed.
        reference: the same in FP64, of inputs in FP64; None where results are random.
        work: bytes that must pass.
    """

    kernel: str
    use_case: str
    size: tuple[int, ...]
    direction: Direction
    make_inputs: Callable[[], tuple[Tensor, ...]]
    implementations: Mapping[str, Implementation]
    reference: Implementation | None
    work: Work


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
    """One use of a kernel on every shape: `work` is of a shape, `make_inputs` of that and of whether they want
    gradients."""
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
    return torch.randn(shape, device="cuda", dtype=torch.float32).to(dtype).requires_grad_(grad)


def import_peers(**peers: tuple[str, Callable[[Any], Implementation]]) -> dict[str, Implementation]:
    """Peers' programs by name, of those that are installed: where a function is, `module:name`, and how it is called
    here."""
    found: dict[str, Implementation] = {}
    for name, (path, called) in peers.items():
        module, _, function = path.partition(":")
        try:
            found[name] = called(getattr(import_module(module), function))
        except Exception:  # of whatever kind: a peer that cannot be imported here is not installed here
            continue
    return found


def make_backward(inputs: Iterable[Tensor], results: Any) -> Callable[[], tuple[Tensor, ...]]:
    """A call that gives the gradients of results, each as if the next layers had given it values of its own size."""
    outputs = [one for one in (results if isinstance(results, tuple) else (results,)) if one.requires_grad]
    wanted = [one for one in inputs if one.requires_grad]
    device = outputs[0].device
    draw = torch.Generator(device).manual_seed(0)
    given = [torch.randn(one.shape, device=device, generator=draw).bfloat16().to(one.dtype) for one in outputs]
    return lambda: torch.autograd.grad(outputs, wanted, given, retain_graph=True)
